// A Unix socket that passes descriptors along with its bytes (unix(7), SCM_RIGHTS).
#pragma once

#include <tensorpull/system/detail/file_descriptor.hpp>
#include <tensorpull/transports/over/unix_socket/unix_stream.hpp>

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <array>
#include <cstring>
#include <span>
#include <utility>

namespace tensorpull {

/// Descriptors that arrived with bytes. Those that nobody takes are closed.
struct passed_descriptors {
  static constexpr std::size_t most = 2;  ///< that one write passes

  std::array<detail::file_descriptor, most> fd{};  ///< the first `count` are used
  std::size_t count = 0;                           ///< how many arrived
};

/// Owns a connected Unix socket. One thread at a time. It keeps the last descriptors until they are taken, so a peer
/// that sends many takes no more than two entries of this program's table.
class shared_stream : public unix_stream {
 public:
  /// No socket.
  shared_stream() noexcept = default;
  /// Takes the socket over.
  explicit shared_stream(unix_stream&& s) noexcept : unix_stream(std::move(s)) {}

  io_result read_some(scatter_list spans) noexcept {
    note_read();
    alignas(cmsghdr) std::array<char, CMSG_SPACE(passed_descriptors::most * sizeof(int))> control;
    return detail::io_outcome(detail::with_vector(spans,
                                                  [&](msghdr* m) noexcept {
                                                    m->msg_control = control.data();
                                                    m->msg_controllen = control.size();
                                                    const ssize_t n = ::recvmsg(native_handle(), m,
                                                                                MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
                                                    if (n >= 0) keep(*m);
                                                    return n;
                                                  }),
                              true);
  }
  io_result read_or_wait(scatter_list spans, std::chrono::milliseconds timeout) noexcept {
    const io_result now = read_some(spans);
    return now.status == io_status::would_block && wait(true, false, timeout).read ? read_some(spans) : now;
  }

  using unix_stream::write_some;
  /// The same, with descriptors passed with the first byte; at most passed_descriptors::most. The bytes go without them
  /// if the system passes no more now, or if the other end leaves earlier ones unread: the system's limit is for all
  /// programs of a user together, and a peer that reads nothing would use it up.
  io_result write_some(gather_list spans, std::span<const int> descriptors) noexcept {
    note_read();
    if (passed_ == most_unread) return write_some(spans);
    const io_result io = pass(spans, descriptors);
    if (io.status == io_status::failed && io.system == ETOOMANYREFS) return write_some(spans);
    if (io.bytes > 0) ++passed_;
    return io;
  }

  /// The last descriptors that arrived, if nobody has taken them.
  passed_descriptors take_descriptors() noexcept { return std::exchange(came_, {}); }

 private:
  /// Writes whose descriptors may be unread. One is enough for one pull at a time; the rest is for frames that lie
  /// unread behind it.
  static constexpr unsigned most_unread = 8;

  io_result pass(gather_list spans, std::span<const int> descriptors) const noexcept {
    alignas(cmsghdr) std::array<char, CMSG_SPACE(passed_descriptors::most * sizeof(int))> control{};
    return detail::io_outcome(detail::with_vector(spans,
                                                  [&](msghdr* m) noexcept {
                                                    m->msg_control = control.data();
                                                    m->msg_controllen = CMSG_SPACE(descriptors.size_bytes());
                                                    cmsghdr* const about = CMSG_FIRSTHDR(m);
                                                    about->cmsg_level = SOL_SOCKET;
                                                    about->cmsg_type = SCM_RIGHTS;
                                                    about->cmsg_len = CMSG_LEN(descriptors.size_bytes());
                                                    std::memcpy(CMSG_DATA(about), descriptors.data(),
                                                                descriptors.size_bytes());
                                                    return ::sendmsg(native_handle(), m, MSG_DONTWAIT | MSG_NOSIGNAL);
                                                  }),
                              false);
  }
  /// If the other end has read everything, no descriptor is in flight.
  void note_read() noexcept {
    int unread = 0;
    if (passed_ > 0 && ::ioctl(native_handle(), SIOCOUTQ, &unread) == 0 && unread == 0) passed_ = 0;
  }
  void keep(msghdr& m) noexcept {
    for (cmsghdr* about = CMSG_FIRSTHDR(&m); about != nullptr; about = CMSG_NXTHDR(&m, about)) {
      if (about->cmsg_level != SOL_SOCKET || about->cmsg_type != SCM_RIGHTS) continue;
      passed_descriptors now;
      const std::size_t count = (about->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < count; ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(about) + i * sizeof(int), sizeof fd);
        detail::file_descriptor owned(fd);
        if (now.count < now.fd.size()) now.fd[now.count++] = std::move(owned);
      }
      came_ = std::move(now);
    }
    if ((m.msg_flags & MSG_CTRUNC) != 0) came_ = {};  // some did not fit, or this program has no room for them
  }

  passed_descriptors came_;
  unsigned passed_ = 0;  // writes with descriptors since the other end had read everything
};

static_assert(pollable_stream<shared_stream>);

}  // namespace tensorpull
