// A signal that a system call raises beside its error, kept from the thread that makes the call.
#pragma once

#include <cerrno>
#include <csignal>

namespace tensorpull::detail {

/// Some failures of a write raise a signal that ends the process by default: SIGXFSZ beyond RLIMIT_FSIZE, SIGPIPE
/// without a reader. While this lives, the calling thread only sees the error. Nothing changes for other threads, nor
/// for the process.
class held_signal {
 public:
  explicit held_signal(int signal) noexcept : signal_(signal) {
    sigemptyset(&set_);
    sigaddset(&set_, signal);
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
    was_pending_ = sigismember(&before_, signal) == 1 && pending();
  }
  held_signal(const held_signal&) = delete;
  held_signal& operator=(const held_signal&) = delete;
  ~held_signal() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  /// Takes back the signal that came with the error. Keeps errno.
  void forget() noexcept {
    const int system = errno;
    int taken = 0;
    if (!was_pending_ && pending()) sigwait(&set_, &taken);
    errno = system;
  }

 private:
  bool pending() const noexcept {
    sigset_t now;
    sigemptyset(&now);
    sigpending(&now);
    return sigismember(&now, signal_) == 1;
  }
  sigset_t set_, before_;
  int signal_;
  bool was_pending_ = false;
};

}  // namespace tensorpull::detail
