// A TCP line that is gone. The kernel takes its time to say so, so the tests say it in its place.
#pragma once

#include "network.hpp"
#include "support/clocks.hpp"
#include "support/threads.hpp"

#include <tensorpull/transports/over/tcp/tcp_listener.hpp>

#include <netinet/tcp.h>
#include <sys/syscall.h>

#include <atomic>
#include <cstring>
#include <optional>

namespace test {

/// What the kernel says of a TCP socket; none: the truth.
inline std::optional<tcp_info> told;
/// Of which sockets it says so: those whose other end has this port; 0: of all.
inline std::uint16_t told_of = 0;
/// How often somebody has looked after a line.
inline std::atomic<int> looks{0};

inline std::uint16_t port_at_the_other_end(int fd) {
  sockaddr_in there{};
  socklen_t size = sizeof there;
  return ::getpeername(fd, reinterpret_cast<sockaddr*>(&there), &size) == 0 ? ntohs(there.sin_port) : std::uint16_t{0};
}

// In the place of the C library's: one file of a program includes this header.
extern "C" int getsockopt(int fd, int level, int name, void* value, socklen_t* size) noexcept {
  if (level == IPPROTO_TCP && name == TCP_INFO) ++looks;
  if (!told || level != IPPROTO_TCP || name != TCP_INFO || (told_of != 0 && told_of != port_at_the_other_end(fd)))
    return static_cast<int>(::syscall(SYS_getsockopt, fd, level, name, value, size));
  *size = std::min<socklen_t>(*size, sizeof *told);
  std::memcpy(value, &*told, *size);
  return 0;
}

inline constexpr auto longest = static_cast<std::uint32_t>(tp::detail::longest_silence.count());

/// A line over which nothing has come for so long, with a request that was sent again, or questions of the kernel's.
inline tcp_info line(std::uint32_t silent, std::uint8_t again, std::uint8_t asked) {
  tcp_info of{};
  of.tcpi_unacked = asked == 0;
  of.tcpi_retransmits = again;
  of.tcpi_probes = asked;
  of.tcpi_last_ack_recv = of.tcpi_last_data_recv = silent;
  return of;
}

/// Every line to this port is gone from now on, as long as the object is there; 0: every line.
struct gone_line {
  explicit gone_line(std::uint16_t to = 0) {
    told_of = to;
    told = line(longest + 1, 1, 0);
  }
  gone_line(const gone_line&) = delete;
  gone_line& operator=(const gone_line&) = delete;
  ~gone_line() { told.reset(); }
};

inline int option(int fd, int level, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  return ::getsockopt(fd, level, name, &value, &size) == 0 ? value : -1;
}
/// Whether the kernel asks for a sign of life as often as while bytes are due.
inline bool asks(int fd) {
  return option(fd, SOL_SOCKET, SO_KEEPALIVE) == 1 && option(fd, IPPROTO_TCP, TCP_KEEPIDLE) == 5;
}

/// Once bytes are due at this socket, they do not come for longer than a line may be silent, and for `more` once
/// somebody has looked after the line.
class silence {
 public:
  explicit silence(int fd, std::chrono::milliseconds more = 0ms)
      : thread_([=] {
          if (!eventually("bytes are due", [&] { return asks(fd); })) return;
          const int before = looks;
          pass_time(tp::detail::longest_silence + 1s);
          if (more != 0ms && eventually("somebody looks after the line", [&] { return looks != before; }))
            pass_time(more);
        }) {}

 private:
  joined_thread thread_;
};

struct ends {
  tp::posix_stream left, right;
};
inline ends connected() {
  auto listener = tp::tcp_listener::open(any_port);
  auto left = tp::tcp_connect(local(listener->port()), steady_clock::now() + 10s);
  auto right = listener->accept(10s);
  return {std::move(*left), std::move(*right)};
}

}  // namespace test
