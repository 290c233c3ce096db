// SIGPIPE during a conformance check: it is counted, and does not end the program.
#pragma once

#include <tensorpull/testing/conformance/conformance_report.hpp>

#include <csignal>

namespace tensorpull::testing::detail {

/// Counts SIGPIPE during its lifetime. Does nothing if the system has no such signal.
class pipe_signals {
 public:
  pipe_signals() noexcept {
#ifdef SIGPIPE
    count() = 0;
    before_ = std::signal(SIGPIPE, [](int) { count() = count() + 1; });
#endif
  }
  pipe_signals(const pipe_signals&) = delete;
  pipe_signals& operator=(const pipe_signals&) = delete;
  ~pipe_signals() {
#ifdef SIGPIPE
    std::signal(SIGPIPE, before_);
#endif
  }
  /// Fails the current check if a signal has arrived since the last time.
  static void judge(conformance_report& report) noexcept {
    if (count() > 0)
      report.fail(
          "SIGPIPE came %d times: send with MSG_NOSIGNAL; for a pipe or a FIFO, hold the signal back in the thread while it writes",
          static_cast<int>(count()));
    count() = 0;
  }

 private:
  static volatile std::sig_atomic_t& count() noexcept {
    static volatile std::sig_atomic_t n = 0;
    return n;
  }

  void (*before_)(int) = nullptr;
};

}  // namespace tensorpull::testing::detail
