// What the bare loops share: TCP sockets, mostly of the loopback interface, and sending and receiving all of something.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace bench {

/// `address` is in the order of the host.
inline int listen_on(std::uint32_t address, std::uint16_t& port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(address);
  socklen_t size = sizeof a;
  if (fd < 0 || ::bind(fd, reinterpret_cast<sockaddr*>(&a), size) != 0 || ::listen(fd, 4096) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&a), &size) != 0)
    std::abort();
  port = ntohs(a.sin_port);
  return fd;
}
inline int listen_on_loopback(std::uint16_t& port) { return listen_on(INADDR_LOOPBACK, port); }
inline void no_delay(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}
/// -1: nobody listens there.
inline int connect_to(std::uint32_t address, std::uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(address);
  a.sin_port = htons(port);
  if (fd < 0) std::abort();
  if (::connect(fd, reinterpret_cast<sockaddr*>(&a), sizeof a) != 0) {
    ::close(fd);
    return -1;
  }
  no_delay(fd);
  return fd;
}
inline int connect_to_loopback(std::uint16_t port) {
  const int fd = connect_to(INADDR_LOOPBACK, port);
  if (fd < 0) std::abort();
  return fd;
}
inline bool send_all(int fd, const std::byte* p, std::size_t n) {
  while (n > 0) {
    const ssize_t k = ::send(fd, p, n, MSG_NOSIGNAL);
    if (k <= 0) return false;
    p += k;
    n -= static_cast<std::size_t>(k);
  }
  return true;
}
inline bool receive_all(int fd, std::byte* p, std::size_t n) {
  while (n > 0) {
    const ssize_t k = ::recv(fd, p, n, 0);
    if (k <= 0) return false;
    p += k;
    n -= static_cast<std::size_t>(k);
  }
  return true;
}

/// A pull: so many bytes from there.
struct bare_request {
  std::uint64_t offset, length;
};
/// Pulls `bytes` in chunks with a window of requests in flight. `landed(bytes so far)` after each chunk.
template <class Landed>
void bare_pull(int fd, std::byte* to, std::size_t bytes, std::size_t chunk, std::size_t window, Landed landed) {
  std::uint64_t asked = 0, got = 0;
  while (got < bytes) {
    while (asked < bytes && asked < got + window * chunk) {
      const bare_request r{asked, bytes - asked < chunk ? bytes - asked : chunk};
      if (!send_all(fd, reinterpret_cast<const std::byte*>(&r), sizeof r)) std::abort();
      asked += r.length;
    }
    const std::size_t n = bytes - got < chunk ? bytes - got : chunk;
    if (!receive_all(fd, to + got, n)) std::abort();
    got += n;
    landed(got);
  }
}

}  // namespace bench
