// Processes that a test makes.
#pragma once

#include "waiting.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <concepts>
#include <csignal>
#include <utility>

namespace test {

/// A child of this process. It ends with its object, at the latest with the thread that has made it.
class child_process {
 public:
  /// A fork of this process, which exits with what `run` returns. Made while this process has one thread, if it does
  /// more than to exec.
  template <std::invocable Run>
  explicit child_process(Run run) : id_(::fork()) {
    EXPECT_GE(id_, 0);
    if (id_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::_exit(run());
  }
  /// A program, found as a shell finds it; status 127: there is none. The last of its words is null.
  explicit child_process(const char* const* line)
      : child_process([line] {
          ::execvp(line[0], const_cast<char* const*>(line));
          return 127;
        }) {}
  child_process(const child_process&) = delete;
  ~child_process() { kill(); }

  void signal(int number) const {
    if (id_ > 0) ::kill(id_, number);
  }
  /// Ends it at once.
  void kill() {
    signal(SIGKILL);
    if (id_ > 0) ::waitpid(std::exchange(id_, -1), &status_, 0);
  }
  bool ended() {
    if (id_ > 0 && ::waitpid(id_, &status_, WNOHANG) == id_) id_ = -1;
    return id_ <= 0;
  }
  /// Its exit status, or minus the signal that ended it. The test fails, and the process is killed, if it does not end
  /// within the limit.
  int wait(std::string_view what = "a process ends", std::chrono::milliseconds limit = ample_time) {
    if (!eventually(what, [&] { return ended(); }, limit)) kill();
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : -WTERMSIG(status_);
  }
  /// Whether it has stopped after SIGSTOP, with all of its threads.
  bool stopped() const { return ::waitpid(id_, nullptr, WUNTRACED | WNOHANG) == id_; }

 private:
  pid_t id_ = -1;
  int status_ = 0;
};

/// What one of two processes says to the other: one object, through a pipe.
template <class T>
class one_word {
 public:
  one_word() { EXPECT_EQ(::pipe2(ends_, O_CLOEXEC), 0); }
  one_word(const one_word&) = delete;
  ~one_word() {
    for (const int end : ends_) ::close(end);
  }
  void tell(const T& object) const { (void)!::write(ends_[1], &object, sizeof object); }
  /// Waits for it.
  T hear() const {
    T object{};
    pollfd ready{ends_[0], POLLIN, 0};
    EXPECT_EQ(::poll(&ready, 1, static_cast<int>(std::chrono::milliseconds(ample_time).count())), 1) << "no word came";
    if (ready.revents != 0) {
      EXPECT_EQ(::read(ends_[0], &object, sizeof object), static_cast<ssize_t>(sizeof object));
    }
    return object;
  }

 private:
  int ends_[2]{-1, -1};
};

/// What `run` returns in a process of its own, or minus the signal that ended it.
template <std::invocable Run>
int in_a_process(Run run) {
  return child_process(std::move(run)).wait();
}

}  // namespace test
