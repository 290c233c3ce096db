// The options of a connected TCP socket. The kernel's own defaults suit a network between two machines.
#pragma once

#include <tensorpull/links/posix/detail/tcp_line.hpp>
#include <tensorpull/links/posix/ip_address.hpp>
#include <tensorpull/std/chrono.hpp>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstring>

namespace tensorpull::detail {

/// The send buffer in bytes if both ends are on one machine. (The kernel limits it to net.core.wmem_max, and doubles it
/// for its own bookkeeping.) There a deep buffer hides no delay, but what the receiver copies has left the cache. With
/// 256 KiB it is still in a core's cache, which moved a quarter more bytes a second to one recipient, and half as much
/// more to 16 (bench/reference.md).
inline constexpr int same_machine_send_buffer = 256 * 1024;

/// Equal addresses may still be two machines, if a network translates addresses. If the handshake took longer than
/// this, the kernel's default stays. If not, one buffer a round trip is still 256 MiB/s or more.
inline constexpr std::chrono::microseconds same_machine_handshake{1000};

/// Whether packets between two addresses seem to stay on one machine: the addresses are equal, or both are in
/// 127.0.0.0/8.
inline bool same_machine(const in6_addr& a, const in6_addr& b) noexcept {
  const auto loopback = [](const in6_addr& x) { return IN6_IS_ADDR_V4MAPPED(&x) && x.s6_addr[12] == 127; };
  return !IN6_IS_ADDR_UNSPECIFIED(&a) && (std::memcmp(&a, &b, sizeof a) == 0 || (loopback(a) && loopback(b)));
}

/// Whether both ends of a connected socket seem to be on one machine: by the addresses, and by the time that its
/// handshake took.
inline bool to_same_machine(int fd) noexcept {
  sockaddr_storage here{}, there{};
  socklen_t here_size = sizeof here, there_size = sizeof there;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&here), &here_size) != 0 ||
      ::getpeername(fd, reinterpret_cast<sockaddr*>(&there), &there_size) != 0 ||
      !same_machine(address_of(here), address_of(there)))
    return false;
  tcp_info connection{};
  socklen_t size = sizeof connection;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &connection, &size) != 0) return false;
  const std::chrono::microseconds took(connection.tcpi_rtt);
  return took > took.zero() && took <= same_machine_handshake;  // 0: not measured
}

/// Called once for each connected socket. If the kernel refuses an option, speed or a sign of life is lost, so errors
/// are ignored.
inline void tune_connected(int fd) noexcept {
  const int on = 1;
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ask_silent_end(fd, usual_signs);
  if (to_same_machine(fd))
    (void)::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &same_machine_send_buffer, sizeof same_machine_send_buffer);
}

}  // namespace tensorpull::detail
