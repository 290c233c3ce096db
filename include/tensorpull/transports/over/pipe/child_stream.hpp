// A child process as a byte_stream: what is written goes to its standard input, and what it writes to its standard
// output is read.
#pragma once

#include <tensorpull/core/detail/replace.hpp>
#include <tensorpull/links/posix/posix_stream.hpp>
#include <tensorpull/links/posix/wait.hpp>
#include <tensorpull/std/stop_token.hpp>
#include <tensorpull/system/detail/file_descriptor.hpp>

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <csignal>

namespace tensorpull {

/// Owns a child process and the socket that is the child's standard input and output. (A socket, since a pipe would
/// raise SIGPIPE.) One thread at a time. Its end ends the child: it hears the end of its input, has `patience` to
/// finish, then gets SIGTERM, and after as long again SIGKILL. No zombie is left. `closed` has the child's exit status
/// in io_result::system, as a shell shows it (128 and the signal's number, if a signal ended it) and with a minus sign,
/// so that it is no errno: -255 is that of ssh when it cannot connect. It is 0 if the child ended well, and if it has
/// not ended although it has closed its output, or another part of the program has waited for it.
class child_stream {
 public:
  static constexpr std::size_t most_words = 255;  ///< of a command
  /// for a child whose input has ended, and again after SIGTERM
  static constexpr std::chrono::milliseconds patience{1000};
  static constexpr std::chrono::milliseconds short_patience{15};  ///< the same, when a stop is requested

  /// Starts a program with these arguments, of which the first is its name (found by PATH, if it has no slash). The
  /// child has this program's environment and standard error, a process group of its own, no signal blocked, SIGPIPE as
  /// the system has it by default, and no other descriptor of this program. (A command that asks something at the
  /// terminal, as ssh does for a password, is stopped there by the terminal: use keys.) `hurry`: if a stop is
  /// requested, the child's end is not waited for any longer than short_patience; it has to live as long as the stream.
  /// Errors: bad_address with errno: there is no such program (ENOENT), or it cannot be run (EACCES, ENOEXEC, ...);
  /// invalid_argument: no words, or more than most_words; connection_failed with errno: the system has no room for
  /// another process or descriptor.
  static result<child_stream> start(std::span<const char* const> words, const stop_token& hurry = {}) noexcept {
    if (words.empty() || words.size() > most_words) return failure(errc::invalid_argument, words.size());
    std::array<char*, most_words + 1> arguments;  // posix_spawn does not write to them
    for (std::size_t i = 0; i < words.size(); ++i) arguments[i] = const_cast<char*>(words[i]);
    arguments[words.size()] = nullptr;
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      return failure(errc::connection_failed, 0, std::string_view(words[0]), errno);
    child_stream out{posix_stream(ends[0]), hurry};
    const detail::file_descriptor theirs(ends[1]);
    const int failed = spawn(arguments.data(), theirs.get(), out.child_);
    if (failed == 0) return out;
    const bool ours = failed == EAGAIN || failed == ENOMEM || failed == EMFILE || failed == ENFILE;
    return failure(ours ? errc::connection_failed : errc::bad_address, 0, std::string_view(words[0]), failed);
  }

  child_stream(child_stream&& other) noexcept
      : socket_(std::move(other.socket_)), hurry_(other.hurry_), child_(std::exchange(other.child_, 0)),
        status_(other.status_) {}
  child_stream& operator=(child_stream&& other) noexcept { return detail::replace(*this, std::move(other)); }
  ~child_stream() {
    if (child_ == 0) return;
    // not closed: what it wrote and nobody read would look to the child like a reset
    ::shutdown(socket_.native_handle(), SHUT_RDWR);
    for (const int signal : {SIGTERM, SIGKILL}) {
      if (ends_within(patience)) return;
      // it may have left the group that it was given
      const pid_t whom = ::kill(-child_, signal) == 0 ? -child_ : child_;
      if (whom == child_) ::kill(child_, signal);
      ::kill(whom, SIGCONT);  // a child that was stopped hears it, too
    }
    (void)ends_within(patience);  // only a child that waits for a device that does not answer is still there
  }

  /// The process; 0: it has ended, and was waited for.
  pid_t process() const noexcept { return child_; }
  /// The descriptor of this end.
  int native_handle() const noexcept { return socket_.native_handle(); }

  io_result read_some(scatter_list spans) noexcept { return with_status(socket_.read_some(spans), {}); }
  io_result write_some(gather_list spans) noexcept { return socket_.write_some(spans); }
  io_result read_or_wait(scatter_list spans, std::chrono::milliseconds timeout) noexcept {
    return with_status(socket_.read_or_wait(spans, timeout), std::min(timeout, detail::wait_step));
  }
  io_ready wait(bool read, bool write, std::chrono::milliseconds timeout) noexcept {
    const io_ready now = socket_.wait(read, write, timeout);
    pollfd end{native_handle(), 0, 0};
    if (now.read && detail::poll_for(&end, 1, {}) == 1)
      (void)ends_within(std::min(timeout, detail::wait_step));  // so that the read that follows knows the status
    return now;
  }

 private:
  child_stream(posix_stream socket, const stop_token& hurry) noexcept : socket_(std::move(socket)), hurry_(hurry) {}

  /// 0 or errno.
  static int spawn(char** arguments, int end, pid_t& child) noexcept {
    struct actions {
      posix_spawn_file_actions_t of;
      int failed = ::posix_spawn_file_actions_init(&of);
      ~actions() { ::posix_spawn_file_actions_destroy(&of); }
    } files;
    struct attributes {
      posix_spawnattr_t of;
      int failed = ::posix_spawnattr_init(&of);
      ~attributes() { ::posix_spawnattr_destroy(&of); }
    } how;
    sigset_t none, pipes;
    sigemptyset(&none);
    sigemptyset(&pipes);
    sigaddset(&pipes, SIGPIPE);
    int failed = 0;
    const auto first = [&](int result) { failed = failed != 0 ? failed : result; };
    first(files.failed);
    first(how.failed);
    first(::posix_spawn_file_actions_adddup2(&files.of, end, STDIN_FILENO));
    first(::posix_spawn_file_actions_adddup2(&files.of, end, STDOUT_FILENO));
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)
    // also those that the program has forgotten to mark
    first(::posix_spawn_file_actions_addclosefrom_np(&files.of, STDERR_FILENO + 1));
#endif
    first(::posix_spawnattr_setsigmask(&how.of, &none));
    first(::posix_spawnattr_setsigdefault(&how.of, &pipes));
    first(::posix_spawnattr_setflags(&how.of, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF));
    if (failed != 0) return failed;
    failed = ::posix_spawnp(&child, arguments[0], &files.of, &how.of, arguments, environ);
    if (failed != 0) child = 0;
    return failed;
  }

  /// Adds the child's status to the end of the stream. A child closes its output a moment before it ends: `most` is the
  /// time to wait for that.
  io_result with_status(io_result io, std::chrono::milliseconds most) noexcept {
    if (io.status == io_status::closed && ends_within(most)) io.system = status_;
    return io;
  }
  /// Whether the child has ended, or ends within the time; then it is no zombie any more.
  bool ends_within(std::chrono::milliseconds most) noexcept {
    const auto start = std::chrono::steady_clock::now();
    for (std::chrono::milliseconds step{1};; step = std::min(2 * step, std::chrono::milliseconds(16))) {
      if (child_ == 0) return true;
      int how = 0;
      const pid_t found = ::waitpid(child_, &how, WNOHANG);
      if (found == child_) status_ = -(WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how));
      if (found == child_ || (found < 0 && errno == ECHILD)) child_ = 0;
      if (child_ == 0) return true;
      if (std::chrono::steady_clock::now() - start >= (hurry_.stop_requested() ? std::min(most, short_patience) : most))
        return false;
      detail::pause(step);
    }
  }

  posix_stream socket_;
  stop_token hurry_;
  pid_t child_ = 0;
  int status_ = 0;
};

static_assert(byte_stream<child_stream>);

}  // namespace tensorpull
