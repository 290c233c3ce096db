// lwIP's functions over this host's sockets. The numbers of the two differ, and are translated here.
#define LWIP_COMPAT_SOCKETS 0
#include "transports/lwip_subset.hpp"

namespace {
// taken before this host's headers turn the names into macros
constexpr int nonblocking = lwip::O_NONBLOCK, set_flags = lwip::F_SETFL, socket_level = lwip::SOL_SOCKET,
              error_option = lwip::SO_ERROR;
constexpr short in = lwip::POLLIN, out = lwip::POLLOUT, failed = lwip::POLLERR, gone = lwip::POLLHUP;
constexpr int inet = lwip::AF_INET, tcp = lwip::SOCK_STREAM;
}  // namespace

#include "transports/lwip_shim.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>

namespace {

int refuse(int why) noexcept {
  errno = why;
  return -1;
}
/// How many bytes this call may move; 0: it fails.
std::size_t allowed(int s, std::size_t n) noexcept {
  if ((::fcntl(s, F_GETFL) & O_NONBLOCK) == 0) ++test::lwip_shim::waited;
  if (test::lwip_shim::fails_after >= 0 && test::lwip_shim::fails_after-- == 0) return 0;
  return std::min<std::size_t>(n, test::lwip_shim::most);
}

}  // namespace

namespace lwip {

extern "C" {

int lwip_socket(int domain, int type, int protocol) {
  if (domain != inet || type != tcp || protocol != 0) return refuse(EINVAL);
  const int s = ::socket(PF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (s >= 0) ++test::lwip_shim::open;
  return s;
}
int lwip_connect(int s, const sockaddr* name, socklen_t namelen) {
  sockaddr_in to{};
  if (namelen != sizeof to) return refuse(EINVAL);
  std::memcpy(&to, name, sizeof to);
  if (to.sin_len != sizeof to || to.sin_family != inet) return refuse(EINVAL);
  ::sockaddr_in host{};
  host.sin_family = PF_INET;
  host.sin_port = to.sin_port;
  host.sin_addr.s_addr = to.sin_addr.s_addr;
  return ::connect(s, reinterpret_cast<const ::sockaddr*>(&host), sizeof host);
}
ssize_t lwip_recv(int s, void* mem, std::size_t len, int flags) {
  if (flags != 0) return refuse(EINVAL);
  const std::size_t most = allowed(s, len);
  return most == 0 ? refuse(ENOMEM) : static_cast<int>(::recv(s, mem, most, 0));
}
ssize_t lwip_send(int s, const void* dataptr, std::size_t size, int flags) {
  if (flags != 0) return refuse(EINVAL);
  const std::size_t most = allowed(s, size);
  return most == 0 ? refuse(ENOMEM) : static_cast<int>(::send(s, dataptr, most, MSG_NOSIGNAL));
}
int lwip_poll(pollfd* fds, nfds_t nfds, int timeout) {
  if (nfds > 1 || (nfds == 1) != (fds != nullptr)) return refuse(EINVAL);
  if (nfds == 0) return ::poll(nullptr, 0, timeout);
  if ((fds->events & ~(in | out)) != 0) return refuse(EINVAL);
  ::pollfd p{fds->fd,
             static_cast<short>(((fds->events & in) != 0 ? POLLIN : 0) | ((fds->events & out) != 0 ? POLLOUT : 0)), 0};
  const int n = ::poll(&p, 1, timeout);
  fds->revents = static_cast<short>(((p.revents & POLLIN) != 0 ? in : 0) | ((p.revents & POLLOUT) != 0 ? out : 0) |
                                    ((p.revents & (POLLERR | POLLNVAL)) != 0 ? failed : 0) |
                                    ((p.revents & POLLHUP) != 0 ? gone : 0));
  return n;
}
int lwip_fcntl(int s, int cmd, int val) {
  if (cmd != set_flags || (val & ~nonblocking) != 0) return refuse(ENOSYS);
  return ::fcntl(s, F_SETFL, val != 0 ? O_NONBLOCK : 0);
}
int lwip_getsockopt(int s, int level, int optname, void* optval, socklen_t* optlen) {
  if (level != socket_level || optname != error_option) return refuse(ENOPROTOOPT);
  return ::getsockopt(s, SOL_SOCKET, SO_ERROR, optval, optlen);
}
int lwip_close(int s) {
  --test::lwip_shim::open;
  return ::close(s);
}
/// Near the end of its 32 bits, so that it wraps in the first minute.
std::uint32_t sys_now() {
  static const auto start = std::chrono::steady_clock::now();
  return 0xffff'f000u +
         static_cast<std::uint32_t>(
             std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start).count());
}

}  // extern "C"

}  // namespace lwip
