// What lwIP's <lwip/sockets.h> declares of BSD's sockets, and the library's driver uses: these names, lwIP's
// signatures, layouts and numbers (api/sockets.c and include/lwip/sockets.h of lwIP 2.2). lwIP has them outside of a
// namespace; here a host's own sockets have these names already.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace lwip {

using socklen_t = std::uint32_t;
using nfds_t = unsigned;
using in_addr_t = std::uint32_t;
using ssize_t = int;

struct in_addr {
  in_addr_t s_addr;
};
struct sockaddr {
  std::uint8_t sa_len;
  std::uint8_t sa_family;
  char sa_data[14];
};
struct sockaddr_in {
  std::uint8_t sin_len;
  std::uint8_t sin_family;
  std::uint16_t sin_port;
  in_addr sin_addr;
  char sin_zero[8];
};
struct pollfd {
  int fd;
  short events;
  short revents;
};

inline constexpr int AF_INET = 2;
inline constexpr int SOCK_STREAM = 1;
inline constexpr int SOL_SOCKET = 0xfff;
inline constexpr int SO_ERROR = 0x1007;
inline constexpr int F_SETFL = 4;
inline constexpr int O_NONBLOCK = 1;
inline constexpr short POLLIN = 0x1;
inline constexpr short POLLOUT = 0x2;
inline constexpr short POLLERR = 0x4;
inline constexpr short POLLHUP = 0x200;

extern "C" {
int lwip_socket(int domain, int type, int protocol);
int lwip_connect(int s, const struct sockaddr* name, socklen_t namelen);
ssize_t lwip_recv(int s, void* mem, std::size_t len, int flags);
ssize_t lwip_send(int s, const void* dataptr, std::size_t size, int flags);
int lwip_poll(struct pollfd* fds, nfds_t nfds, int timeout);
int lwip_fcntl(int s, int cmd, int val);
int lwip_getsockopt(int s, int level, int optname, void* optval, socklen_t* optlen);
int lwip_close(int s);
/// Milliseconds since the start, which wrap (lwip/sys.h).
std::uint32_t sys_now();
}

}  // namespace lwip

// lwIP gives its functions BSD's names as macros, unless its options say otherwise. They would change the library's
// functions of these names, so the library's headers stand before this one.
#ifndef LWIP_COMPAT_SOCKETS
#define LWIP_COMPAT_SOCKETS 1
#endif
#if LWIP_COMPAT_SOCKETS == 1
#define socket(domain, type, protocol) lwip_socket(domain, type, protocol)
#define connect(s, name, namelen) lwip_connect(s, name, namelen)
#define recv(s, mem, len, flags) lwip_recv(s, mem, len, flags)
#define send(s, dataptr, size, flags) lwip_send(s, dataptr, size, flags)
#define poll(fds, nfds, timeout) lwip_poll(fds, nfds, timeout)
#define getsockopt(s, level, optname, opval, optlen) lwip_getsockopt(s, level, optname, opval, optlen)
#define read(s, mem, len) lwip_read(s, mem, len)
#define write(s, dataptr, len) lwip_write(s, dataptr, len)
#define close(s) lwip_close(s)
#define fcntl(s, cmd, val) lwip_fcntl(s, cmd, val)
#define ioctl(s, cmd, argp) lwip_ioctl(s, cmd, argp)
#endif
