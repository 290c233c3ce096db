// What a connected TCP socket is set to. The kernel's own defaults are for the network between two machines.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <chrono>
#include <cstring>

namespace tensorpull::detail {

/// Bytes that a sender may have in the kernel where both ends are on one machine (less where net.core.wmem_max is less; the kernel counts twice as
/// many, for its own bookkeeping). There a deep buffer hides no delay: it only makes what the receiver copies cold. With 256 KiB the copies
/// meet in the cache of a core, which moved a quarter more bytes a second to one recipient and half as much more to 16 (bench/README.md).
inline constexpr int same_machine_send_buffer = 256 * 1024;

/// Addresses that are alike may still be two machines, where a network translates them. What takes longer to shake hands than this is left to the
/// kernel; what does not is moved by the buffer above at 256 MiB/s or more.
inline constexpr std::chrono::microseconds same_machine_handshake{1000};

/// An internet address in the notation of IPv6, where IPv4 has a part of its own (RFC 4291, 2.5.5.2); of no internet socket the unspecified one.
inline in6_addr address_of(const sockaddr_storage& s) noexcept {
  in6_addr out{};
  if (s.ss_family == AF_INET6) return reinterpret_cast<const sockaddr_in6&>(s).sin6_addr;
  if (s.ss_family == AF_INET) {
    out.s6_addr[10] = out.s6_addr[11] = 0xff;
    std::memcpy(out.s6_addr + 12, &reinterpret_cast<const sockaddr_in&>(s).sin_addr, 4);
  }
  return out;
}

/// Whether packets between two addresses stay on one machine, as far as addresses tell: they are alike, or both are of 127.0.0.0/8.
inline bool same_machine(const in6_addr& a, const in6_addr& b) noexcept {
  const auto loopback = [](const in6_addr& x) { return IN6_IS_ADDR_V4MAPPED(&x) && x.s6_addr[12] == 127; };
  return !IN6_IS_ADDR_UNSPECIFIED(&a) && (std::memcmp(&a, &b, sizeof a) == 0 || (loopback(a) && loopback(b)));
}

/// The same of a connected socket, by its addresses and by the time that its handshake took.
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

/// For each socket, once it is connected. What the kernel refuses here costs speed alone, so nothing is told.
inline void tune_connected(int fd) noexcept {
  const int on = 1;
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (to_same_machine(fd)) (void)::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &same_machine_send_buffer, sizeof same_machine_send_buffer);
}

}  // namespace tensorpull::detail
