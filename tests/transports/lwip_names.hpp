// The header in which a program names its socket functions: the page of links/lwip shows it.
#pragma once

#include "transports/lwip_subset.hpp"  // on a device: <lwip/sockets.h>

#include <cstddef>

namespace device {

using namespace lwip;

struct device_sockets {
  static constexpr int would_block = EWOULDBLOCK;
  static constexpr int in_progress = EINPROGRESS;

  static int open() noexcept {
    const int s = lwip_socket(AF_INET, SOCK_STREAM, 0);
    if (s >= 0) (void)lwip_fcntl(s, F_SETFL, O_NONBLOCK);
    return s;
  }
  static int begin_connect(int s, const sockaddr_in& to) noexcept {
    return lwip_connect(s, reinterpret_cast<const sockaddr*>(&to), sizeof to);
  }
  static int receive(int s, void* to, std::size_t n) noexcept { return lwip_recv(s, to, n, 0); }
  static int transmit(int s, const void* from, std::size_t n) noexcept { return lwip_send(s, from, n, 0); }
  static void wait(int s, bool& read, bool& write, int ms) noexcept {
    pollfd p{read || write ? s : -1, static_cast<short>((read ? POLLIN : 0) | (write ? POLLOUT : 0)), 0};
    const int n = lwip_poll(&p, 1, ms);
    const bool failed = n > 0 && (p.revents & ~(POLLIN | POLLOUT)) != 0;
    read = n > 0 && (failed || (p.revents & POLLIN) != 0);
    write = n > 0 && (failed || (p.revents & POLLOUT) != 0);
  }
  static int pending_error(int s) noexcept {
    int why = 0;
    socklen_t size = sizeof why;
    return lwip_getsockopt(s, SOL_SOCKET, SO_ERROR, &why, &size) == 0 ? why : errno;
  }
  static void release(int s) noexcept { (void)lwip_close(s); }
  static int last_error() noexcept { return errno; }
};

}  // namespace device
