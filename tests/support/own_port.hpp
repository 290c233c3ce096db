// Ports of the loopback interface that are a test's own while nobody listens there: before its owner has been started,
// or between two that listen at the same place.
#pragma once

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <utility>

namespace test {

namespace detail {

/// A socket that has a port of the loopback interface, and does nothing with it.
class held_port {
 public:
  /// Number 0: any.
  held_port(int family, int kind, std::uint16_t number) : fd_(::socket(family, kind | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    if (kind == SOCK_STREAM) (void)::setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (family == AF_INET6) (void)::setsockopt(fd_, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    sockaddr_in6 six{};
    sockaddr_in four{};
    four.sin_family = AF_INET, four.sin_addr.s_addr = htonl(INADDR_LOOPBACK), four.sin_port = htons(number);
    six.sin6_family = AF_INET6, six.sin6_addr = in6addr_loopback, six.sin6_port = htons(number);
    auto* const a = family == AF_INET6 ? reinterpret_cast<sockaddr*>(&six) : reinterpret_cast<sockaddr*>(&four);
    socklen_t size = family == AF_INET6 ? sizeof six : sizeof four;
    error_ = ::bind(fd_, a, size) == 0 && ::getsockname(fd_, a, &size) == 0 ? 0 : errno;
    number_ = ntohs(family == AF_INET6 ? six.sin6_port : four.sin_port);
  }
  held_port(held_port&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), number_(other.number_), error_(other.error_) {}
  ~held_port() {
    if (fd_ >= 0) ::close(fd_);
  }
  std::uint16_t number() const { return number_; }
  /// EADDRINUSE: somebody else has it.
  int error() const { return error_; }

 private:
  int fd_;
  std::uint16_t number_;
  int error_;
};

}  // namespace detail

/// A TCP port of 127.0.0.1, and of ::1 where there is one. A program that listens at its number with SO_REUSEADDR, as
/// servers do, gets it, and the system gives it to nobody else. While nobody listens a connection is refused.
class own_port {
 public:
  operator std::uint16_t() const { return both_.first.number(); }  // NOLINT: it stands for its number

 private:
  using two = std::pair<detail::held_port, detail::held_port>;
  static two any() {
    for (;;) {
      detail::held_port four(AF_INET, SOCK_STREAM, 0), six(AF_INET6, SOCK_STREAM, four.number());
      EXPECT_EQ(four.error(), 0);
      if (six.error() != EADDRINUSE) return two(std::move(four), std::move(six));
    }
  }
  two both_ = any();
};

/// A UDP port of a loopback address that is this process's alone: 127.0.0.0/8 has more addresses than there are
/// processes. At 127.0.0.1 the port is held, so the system gives it to no socket of every address either.
class own_udp_port {
 public:
  own_udp_port() {
    EXPECT_EQ(held_.error(), 0);
    const in_addr mine{htonl((127u << 24) + (1u << 16) + static_cast<std::uint32_t>(::getpid()))};
    char text[INET_ADDRSTRLEN];
    address_ = std::string(::inet_ntop(AF_INET, &mine, text, sizeof text)) + ":" + std::to_string(held_.number());
  }
  /// "127.1.2.3:4567", where nobody receives until a test does.
  const std::string& address() const { return address_; }

 private:
  detail::held_port held_{AF_INET, SOCK_DGRAM, 0};
  std::string address_;
};

}  // namespace test
