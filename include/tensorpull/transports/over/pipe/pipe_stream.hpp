// Two descriptors as a byte_stream: one to read from, one to write to. They may be pipes, which raise SIGPIPE and have
// no flag against it.
#pragma once

#include <tensorpull/core/detail/replace.hpp>
#include <tensorpull/links/posix/posix_stream.hpp>
#include <tensorpull/system/detail/file_descriptor.hpp>
#include <tensorpull/system/detail/held_signal.hpp>

#include <sys/stat.h>

namespace tensorpull {

/// Owns two descriptors. One thread at a time. SIGPIPE is held back from the thread that writes, while it writes, and
/// its disposition stays as it is. An event loop cannot wait for it, since it has two descriptors (pollable_stream, 2):
/// sessions and pulls can.
class pipe_stream {
 public:
  /// Takes the descriptors over. From now until its end they do not block: what others have of the same pipe does not
  /// either.
  pipe_stream(int from, int to) noexcept
      : from_(from), to_(to), from_flags_(unblocked(from)), to_flags_(unblocked(to)) {}
  pipe_stream(pipe_stream&&) noexcept = default;
  pipe_stream& operator=(pipe_stream&& other) noexcept { return detail::replace(*this, std::move(other)); }
  ~pipe_stream() {
    if (to_) (void)::fcntl(to_.get(), F_SETFL, to_flags_);
    if (from_) (void)::fcntl(from_.get(), F_SETFL, from_flags_);
  }

  /// Takes over the standard input and output of this program, which another program has started with pipes or sockets
  /// for them. The output of this program goes to its standard error afterwards, and it reads nothing. Errors:
  /// bad_address: they are no pipes (a terminal, a file; taken over before); io with errno.
  static result<pipe_stream> standard() noexcept {
    if (!carries(STDIN_FILENO)) return failure(errc::bad_address, 0, std::string_view("standard input"));
    if (!carries(STDOUT_FILENO)) return failure(errc::bad_address, 0, std::string_view("standard output"));
    detail::file_descriptor from(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)),
        to(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
    const detail::file_descriptor nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
    if (!from || !to || !nothing || ::dup2(nothing.get(), STDIN_FILENO) < 0) return failure(errc::io, 0, {}, errno);
    if (::dup2(STDERR_FILENO, STDOUT_FILENO) < 0 && ::dup2(nothing.get(), STDOUT_FILENO) < 0)
      return failure(errc::io, 0, {}, errno);
    return pipe_stream(from.release(), to.release());
  }

  io_result read_some(scatter_list spans) noexcept {
    return detail::io_outcome(
        detail::with_vector(
            spans,
            [this](msghdr* m) noexcept { return ::readv(from_.get(), m->msg_iov, static_cast<int>(m->msg_iovlen)); }),
        true);
  }
  io_result write_some(gather_list spans) noexcept {
    detail::held_signal quiet(SIGPIPE);
    const auto n = detail::with_vector(
        spans, [this](msghdr* m) noexcept { return ::writev(to_.get(), m->msg_iov, static_cast<int>(m->msg_iovlen)); });
    if (n < 0 && errno == EPIPE) quiet.forget();
    return detail::io_outcome(n, false);
  }
  io_ready wait(bool read, bool write, std::chrono::milliseconds timeout) noexcept {
    pollfd both[2]{{read ? from_.get() : -1, POLLIN, 0}, {write ? to_.get() : -1, POLLOUT, 0}};
    if (detail::poll_for(both, 2, timeout) <= 0) return {};
    return {both[0].revents != 0, both[1].revents != 0};
  }

 private:
  static bool carries(int fd) noexcept {
    struct stat about{};
    return ::fstat(fd, &about) == 0 && (S_ISFIFO(about.st_mode) || S_ISSOCK(about.st_mode));
  }
  /// Returns the flags from before.
  static int unblocked(int fd) noexcept {
    const int before = ::fcntl(fd, F_GETFL);
    if (before >= 0) (void)::fcntl(fd, F_SETFL, before | O_NONBLOCK);
    return before;
  }

  detail::file_descriptor from_, to_;
  int from_flags_, to_flags_;
};

static_assert(byte_stream<pipe_stream>);

}  // namespace tensorpull
