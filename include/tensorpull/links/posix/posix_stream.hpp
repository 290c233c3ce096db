// A connected stream socket as a byte_stream: plain system calls, no event library.
#pragma once

#include <tensorpull/core/detail/replace.hpp>
#include <tensorpull/links/posix/detail/tcp_line.hpp>
#include <tensorpull/links/posix/pollable_stream.hpp>
#include <tensorpull/links/posix/wait.hpp>
#include <tensorpull/std/algorithm.hpp>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace tensorpull {

namespace detail {

/// Calls `io` with the first spans, at most `Most`, as the kernel takes them. A function of its own: its array is on
/// the stack only during the call.
template <std::size_t Most, class Byte, class Io>
[[gnu::noinline]] ssize_t with_first(std::span<const std::span<Byte>> spans, Io io) noexcept {
  std::array<iovec, Most> vector;
  msghdr header{};
  for (; header.msg_iovlen < std::min(spans.size(), Most); ++header.msg_iovlen)
    vector[header.msg_iovlen] = {const_cast<std::byte*>(spans[header.msg_iovlen].data()),
                                 spans[header.msg_iovlen].size()};
  header.msg_iov = vector.data();
  return io(&header);
}
/// The same with an array that suits their number: most calls have a few spans, and a small machine has a small stack.
template <class Byte, class Io>
ssize_t with_vector(std::span<const std::span<Byte>> spans, Io io) noexcept {
  return spans.size() <= 8 ? with_first<8>(spans, io) : with_first<64>(spans, io);
}

inline io_result io_outcome(ssize_t n, bool zero_is_end) noexcept {
  if (n > 0) return {io_status::ok, 0, static_cast<std::size_t>(n)};
  if (n == 0) return {zero_is_end ? io_status::closed : io_status::would_block, 0, 0};
  const int e = errno;
  if (e == EAGAIN || e == EWOULDBLOCK || e == EINTR) return {io_status::would_block, 0, 0};
  // a fault of this end: bad memory, too little memory, a bad descriptor, too many descriptors that are passed;
  // anything else means that the connection is lost
  const bool ours = e == EFAULT || e == EINVAL || e == EBADF || e == ENOTSOCK || e == ENOMEM || e == ENOBUFS ||
                    e == ETOOMANYREFS;
  return {ours ? io_status::failed : io_status::closed, e, 0};
}

inline io_result receive_some(int fd, scatter_list spans) noexcept {
  return io_outcome(with_vector(spans, [=](msghdr* m) noexcept { return ::recvmsg(fd, m, MSG_DONTWAIT); }), true);
}
inline io_result send_some(int fd, gather_list spans) noexcept {
  return io_outcome(
      with_vector(spans, [=](msghdr* m) noexcept { return ::sendmsg(fd, m, MSG_DONTWAIT | MSG_NOSIGNAL); }), false);
}

/// How a connect stands: 0: connected; EINPROGRESS: under way; otherwise why it failed. Does not wait.
inline int connect_outcome(int fd) noexcept {
  pollfd p = polled(fd, {false, true});
  if (poll_for(&p, 1, {}) == 0) return EINPROGRESS;
  int failed = 0;
  socklen_t size = sizeof failed;
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &size) != 0 ? errno : failed;
}

}  // namespace detail

/// Owns a connected socket. One thread at a time.
class posix_stream {
 public:
  /// No socket.
  posix_stream() noexcept = default;
  /// Takes the descriptor over. `connecting`: a connect is under way, and establish() is how it ends.
  explicit posix_stream(int fd, bool connecting = false) noexcept : state_{fd, connecting} {}
  posix_stream(posix_stream&& other) noexcept : state_(other.state_) { other.state_.fd = -1; }
  posix_stream& operator=(posix_stream&& other) noexcept { return detail::replace(*this, std::move(other)); }
  ~posix_stream() {
    if (state_.fd >= 0) ::close(state_.fd);
  }

  /// The descriptor; -1: none.
  int native_handle() const noexcept { return state_.fd; }
  /// Gives up the descriptor, which is the caller's then.
  int release() noexcept {
    wake_at(1);
    return std::exchange(state_.fd, -1);
  }

  io_result read_some(scatter_list spans) noexcept {
    if (state_.gone) return {io_status::closed, ETIMEDOUT, 0};
    return or_end(detail::receive_some(state_.fd, spans));
  }
  io_result write_some(gather_list spans) noexcept { return detail::send_some(state_.fd, spans); }

  /// Waits and reads in one system call instead of two. The socket's own receive time-out ends the wait; it is rounded
  /// up to 1 ms. If the other end is near, a read of 128 KiB or more waits for half as many bytes, at most 128 KiB, and
  /// takes the bytes that are there when the time is over. From afar such a wait would hold up the kernel, which makes
  /// the window larger as bytes are read.
  io_result read_or_wait(scatter_list spans, std::chrono::milliseconds timeout) noexcept {
    // 0 would mean no time-out, and the kernel knows no time that means "never"
    timeout = std::min<std::chrono::milliseconds>(std::max(timeout, std::chrono::milliseconds(1)),
                                                  std::chrono::hours(1));
    if (timeout != state_.receive_timeout) {
      const int flags = ::fcntl(state_.fd, F_GETFL);
      if (flags < 0 || ((flags & O_NONBLOCK) != 0 && ::fcntl(state_.fd, F_SETFL, flags & ~O_NONBLOCK) != 0))
        return read_some(spans);
      const auto us = std::chrono::duration_cast<std::chrono::microseconds>(timeout);
      const timeval t{static_cast<time_t>(us.count() / 1'000'000), static_cast<suseconds_t>(us.count() % 1'000'000)};
      if (::setsockopt(state_.fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t) != 0) return read_some(spans);
      state_.receive_timeout = timeout;
    }
    std::size_t asked = 0;
    for (const auto& s : spans) asked += s.size();
    if (asked >= worth_waking) look_how_far();
    const int most = asked >= 2 * worth_waking ? worth_waking : worth_waking / 2;
    wake_at(asked >= worth_waking && state_.near == nearness::near ? most : 1);
    return or_end(detail::io_outcome(
        detail::with_vector(spans, [fd = state_.fd](msghdr* m) noexcept { return ::recvmsg(fd, m, 0); }), true));
  }

  /// While bytes are due, a TCP line that carries nothing for detail::longest_silence is at its end (closed, with
  /// ETIMEDOUT). The time begins with this call, since before it nobody asked for a sign of life so often; a pause of
  /// at most detail::short_pause does not end it. Other sockets have no line that can be lost.
  void expect_bytes(bool on) noexcept {
    if (on && state_.bytes_are == due::no) {
      look_how_far();  // before the first request: with that the other end learns how much it may send
      state_.bytes_are = detail::asks_as_program_wishes(state_.fd) ? due::yes : due::asked_for;
      if (state_.bytes_are == due::asked_for) detail::ask_silent_end(state_.fd, detail::due_signs);
      if (now() - state_.due_until > detail::short_pause.count()) state_.due_since = now();
    } else if (!on && state_.bytes_are != due::no) {
      if (state_.bytes_are == due::asked_for) detail::ask_silent_end(state_.fd, detail::usual_signs);
      state_.bytes_are = due::no;
      state_.due_until = now();
    }
  }

  /// How the connect stands; does not wait.
  establishment establish() noexcept {
    if (!state_.connecting) return {};
    const int failed = detail::connect_outcome(state_.fd);
    if (failed == EINPROGRESS) return {io_status::would_block, 0, {false, true}};
    state_.connecting = false;
    return failed == 0 ? establishment{} : establishment{io_status::failed, failed, {}};
  }

  io_ready wait(bool read, bool write, std::chrono::milliseconds timeout) noexcept {
    if (read) wake_at(1);
    pollfd p = detail::polled(state_.fd, {read, write});  // a connection that is gone would end any wait at once
    if (detail::poll_for(&p, 1, timeout) <= 0) return {read && silent(), false};
    const bool broken = (p.revents & (POLLERR | POLLHUP | POLLNVAL)) != 0;  // the next read or write reports it
    return {(p.revents & POLLIN) != 0 || (broken && read), (p.revents & POLLOUT) != 0 || (broken && write)};
  }

 private:
  /// Bytes that have to be there before a read of twice as many ends its wait: an end that is woken for each packet
  /// spends its time waking up. Never more than half of what is asked for: a read that has taken less goes on to wait,
  /// and Linux wakes it only when as many bytes have arrived besides.
  static constexpr int worth_waking = 128 * 1024;
  /// Once: whether the other end is near, and if not, that much is about to arrive.
  void look_how_far() noexcept {
    if (state_.near != nearness::unknown) return;
    state_.near = detail::is_near(state_.fd) ? nearness::near : nearness::far;
    if (state_.near == nearness::near) return;
    detail::expect_much(state_.fd);
    state_.wakes_at = 1;
  }
  /// Says how many bytes end a wait. A socket that cannot be told goes on as it is.
  void wake_at(int bytes) noexcept {
    if (state_.wakes_at == bytes) return;
    state_.wakes_at = bytes;
    (void)::setsockopt(state_.fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
  }

  /// The outcome of a read; if nothing was there and the line is gone, the end.
  io_result or_end(const io_result& io) noexcept {
    return io.status == io_status::would_block && silent() ? io_result{io_status::closed, ETIMEDOUT, 0} : io;
  }
  /// Whether the connection is gone; the next read reports it. Asked if nothing has arrived.
  bool silent() noexcept {
    state_.gone = state_.gone ||
                  (state_.bytes_are != due::no && now() - state_.due_since > detail::longest_silence.count() &&
                   detail::line_is_gone(state_.fd));
    return state_.gone;
  }

  enum class nearness : std::uint8_t {
    unknown,
    near,
    far,
  };
  /// Whether bytes are due, and whether it was this object that made the kernel ask for a sign of life more often.
  enum class due : std::uint8_t {
    no,
    yes,
    asked_for,
  };
  /// Milliseconds of a clock that begins anew after 49 days.
  static std::uint32_t now() noexcept {
    return static_cast<std::uint32_t>(std::chrono::steady_clock::now().time_since_epoch().count() / 1'000'000);
  }

  /// All that there is, so that nothing stays behind when a stream is moved.
  struct state {
    int fd = -1;
    bool connecting = false;
    nearness near = nearness::unknown;
    due bytes_are = due::no;
    bool gone = false;
    int wakes_at = 1;
    std::uint32_t due_since = 0, due_until = 0;
    std::chrono::milliseconds receive_timeout{-1};
  };
  state state_{};
};

static_assert(pollable_stream<posix_stream>);

}  // namespace tensorpull
