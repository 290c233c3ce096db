// What a connected TCP socket is set to. The kernel's own defaults are for the network between two machines.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstring>

namespace tensorpull::detail {

/// Bytes that a sender may have in the kernel where both ends are on one machine (the kernel counts twice as many, for its own bookkeeping). There
/// a deep buffer hides no delay: it only makes what the receiver copies cold. With 256 KiB the copies meet in the cache of a core, which
/// moved a quarter more bytes a second to one recipient and half as much more to 16 (bench/README.md).
inline constexpr int same_machine_send_buffer = 256 * 1024;

/// Whether a connected socket leads back to this machine: its two addresses are alike.
inline bool to_same_machine(int fd) noexcept {
  sockaddr_storage here{}, there{};
  socklen_t here_size = sizeof here, there_size = sizeof there;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&here), &here_size) != 0 ||
      ::getpeername(fd, reinterpret_cast<sockaddr*>(&there), &there_size) != 0 || here.ss_family != there.ss_family)
    return false;
  if (here.ss_family == AF_INET) {
    const auto address = [](const sockaddr_storage& s) { return reinterpret_cast<const sockaddr_in*>(&s)->sin_addr.s_addr; };
    return address(here) == address(there);
  }
  if (here.ss_family == AF_INET6) {
    const auto address = [](const sockaddr_storage& s) { return &reinterpret_cast<const sockaddr_in6*>(&s)->sin6_addr; };
    return std::memcmp(address(here), address(there), sizeof(in6_addr)) == 0;
  }
  return false;
}

/// For each socket, once it is connected. What the kernel refuses here costs speed alone, so nothing is told.
inline void tune_connected(int fd) noexcept {
  const int on = 1;
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (to_same_machine(fd)) (void)::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &same_machine_send_buffer, sizeof same_machine_send_buffer);
}

}  // namespace tensorpull::detail
