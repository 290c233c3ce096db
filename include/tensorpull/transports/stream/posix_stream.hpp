// A connected stream socket as a byte_stream: plain system calls, no event library.
#pragma once

#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/links/concept.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace tensorpull {

namespace detail {

/// Spans as the kernel wants them; what does not fit the array is left for the next call.
class io_vector {
 public:
  template <class Byte>
  explicit io_vector(std::span<const std::span<Byte>> spans) noexcept {
    for (const auto& s : spans) {
      if (count_ == vector_.size()) break;
      vector_[count_++] = {const_cast<std::byte*>(s.data()), s.size()};
    }
    header_.msg_iov = vector_.data();
    header_.msg_iovlen = count_;
  }
  msghdr* header() noexcept { return &header_; }

 private:
  std::array<iovec, 64> vector_;
  std::size_t count_ = 0;
  msghdr header_{};
};

inline io_result io_outcome(ssize_t n, bool zero_is_end) noexcept {
  if (n > 0) return {io_status::ok, 0, static_cast<std::size_t>(n)};
  if (n == 0) return {zero_is_end ? io_status::closed : io_status::would_block, 0, 0};
  const int e = errno;
  if (e == EAGAIN || e == EWOULDBLOCK || e == EINTR) return {io_status::would_block, 0, 0};
  // what this end did to itself: memory that may not be written or read, too little of it, a descriptor that is none
  const bool ours = e == EFAULT || e == EINVAL || e == EBADF || e == ENOTSOCK || e == ENOMEM || e == ENOBUFS;
  return {ours ? io_status::failed : io_status::closed, e, 0};
}

inline io_result receive_some(int fd, std::span<const std::span<std::byte>> spans) noexcept {
  io_vector v(spans);
  return io_outcome(::recvmsg(fd, v.header(), MSG_DONTWAIT), true);
}
inline io_result send_some(int fd, std::span<const std::span<const std::byte>> spans) noexcept {
  io_vector v(spans);
  return io_outcome(::sendmsg(fd, v.header(), MSG_DONTWAIT | MSG_NOSIGNAL), false);
}

/// A descriptor that somebody else owns and waits for.
struct borrowed_stream {
  int fd;
  io_result read_some(std::span<const std::span<std::byte>> spans) noexcept { return receive_some(fd, spans); }
  io_result write_some(std::span<const std::span<const std::byte>> spans) noexcept { return send_some(fd, spans); }
  io_ready wait(bool, bool, std::chrono::milliseconds) noexcept { return {}; }
};

/// Waits; a signal ends it early.
inline void pause(std::chrono::milliseconds time) noexcept { (void)::poll(nullptr, 0, static_cast<int>(std::min<std::chrono::milliseconds::rep>(time.count(), 1 << 30))); }

}  // namespace detail

/// Owns the descriptor. Thread-compatible: one thread at a time.
class posix_stream {
 public:
  posix_stream() noexcept = default;
  explicit posix_stream(int fd) noexcept : fd_(fd) {}
  posix_stream(posix_stream&& other) noexcept : fd_(std::exchange(other.fd_, -1)), receive_timeout_(other.receive_timeout_) {}
  posix_stream& operator=(posix_stream&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(receive_timeout_, other.receive_timeout_);
    return *this;
  }
  ~posix_stream() {
    if (fd_ >= 0) ::close(fd_);
  }

  int native_handle() const noexcept { return fd_; }
  int release() noexcept { return std::exchange(fd_, -1); }

  io_result read_some(std::span<const std::span<std::byte>> spans) noexcept { return detail::receive_some(fd_, spans); }
  io_result write_some(std::span<const std::span<const std::byte>> spans) noexcept { return detail::send_some(fd_, spans); }

  /// One system call where wait() and read_some() are two. The socket's own receive time-out ends the wait.
  io_result read_or_wait(std::span<const std::span<std::byte>> spans, std::chrono::milliseconds timeout) noexcept {
    timeout = std::max(timeout, std::chrono::milliseconds(1));  // 0 would mean for ever
    if (timeout != receive_timeout_) {
      const int flags = ::fcntl(fd_, F_GETFL);
      if (flags < 0 || ((flags & O_NONBLOCK) != 0 && ::fcntl(fd_, F_SETFL, flags & ~O_NONBLOCK) != 0)) return read_some(spans);
      const auto us = std::chrono::duration_cast<std::chrono::microseconds>(timeout);
      const timeval t{static_cast<time_t>(us.count() / 1'000'000), static_cast<suseconds_t>(us.count() % 1'000'000)};
      if (::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t) != 0) return read_some(spans);
      receive_timeout_ = timeout;
    }
    detail::io_vector v(spans);
    return detail::io_outcome(::recvmsg(fd_, v.header(), 0), true);
  }

  io_ready wait(bool read, bool write, std::chrono::milliseconds timeout) noexcept {
    pollfd p{fd_, static_cast<short>((read ? POLLIN : 0) | (write ? POLLOUT : 0)), 0};
    const int ms = static_cast<int>(std::max<std::int64_t>(0, std::min<std::int64_t>(timeout.count(), 1 << 30)));
    if (::poll(&p, 1, ms) <= 0) return {};
    const bool broken = (p.revents & (POLLERR | POLLHUP | POLLNVAL)) != 0;  // the next read or write says what it is
    return {(p.revents & POLLIN) != 0 || (broken && read), (p.revents & POLLOUT) != 0 || (broken && write)};
  }

 private:
  int fd_ = -1;
  std::chrono::milliseconds receive_timeout_{-1};
};

static_assert(byte_stream<posix_stream>);

}  // namespace tensorpull
