// Accepts TCP connections one at a time, with plain sockets: for programs that give each to a session or a relay, and
// for event loops.
#pragma once

#include <tensorpull/links/posix/detail/accept.hpp>
#include <tensorpull/transports/over/tcp/tcp_connect.hpp>

namespace tensorpull {

/// A listening socket. Movable; the destructor closes it.
class tcp_listener {
 public:
  /// Listens on "host:port", or on ":port" for every local address of IPv4. Port 0: a free one. `backlog`: connections
  /// that may wait. Errors: bad_address, unknown_host, connection_failed with errno.
  static result<tcp_listener> open(std::string_view address, int backlog = 128) noexcept {
    const auto parsed = parse_address(address);
    if (!parsed) return failure(parsed.error());
    const auto list = detail::resolve(*parsed, address, true);
    if (!list) return failure(list.error());
    const addrinfo& a = **list;
    posix_stream s(::socket(a.ai_family, a.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a.ai_protocol));
    const int on = 1;
    sockaddr_storage bound{};
    socklen_t size = sizeof bound;
    if (s.native_handle() < 0 || ::setsockopt(s.native_handle(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        ::bind(s.native_handle(), a.ai_addr, a.ai_addrlen) != 0 || ::listen(s.native_handle(), backlog) != 0 ||
        ::getsockname(s.native_handle(), reinterpret_cast<sockaddr*>(&bound), &size) != 0)
      return failure(errc::connection_failed, 0, address, errno);
    const auto port = bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&bound)->sin6_port
                                                  : reinterpret_cast<const sockaddr_in*>(&bound)->sin_port;
    return tcp_listener(std::move(s), ntohs(port));
  }

  /// The port that it listens on.
  std::uint16_t port() const noexcept { return port_; }
  /// The descriptor, which stays the listener's.
  int native_handle() const noexcept { return socket_.native_handle(); }

  /// The next connection; does not wait. Errors: timed_out: none is waiting; out_of_memory with errno: no descriptors
  /// or memory now; io with errno.
  result<posix_stream> accept() noexcept {
    auto s = detail::accept_socket(native_handle());
    if (s) detail::tune_connected(s->native_handle());
    return s;
  }
  /// The next connection; waits for it. Errors: timed_out, cancelled (noticed within 0.1 s), out_of_memory, io with
  /// errno.
  result<posix_stream> accept(std::chrono::milliseconds timeout, const stop_token& stop = {}) noexcept {
    return detail::accept_within(*this, socket_, timeout, stop);
  }

 private:
  tcp_listener(posix_stream s, std::uint16_t port) noexcept : socket_(std::move(s)), port_(port) {}
  posix_stream socket_;
  std::uint16_t port_;
};

static_assert(stream_listener<tcp_listener, posix_stream>);

}  // namespace tensorpull
