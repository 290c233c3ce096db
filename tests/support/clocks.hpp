// The clocks of a program of tests are its own (clocks.cpp): time passes without a wait, and the wall clock can jump.
#pragma once

#include "threads.hpp"

#include <atomic>
#include <chrono>

namespace test {

/// The monotonic clock is later at once, and with it steady_clock, all that asks it, and timers of the kernel's
/// (timerfd_settime). A wait of the kernel's that has begun, like poll's, ends no earlier for that: the library's have
/// at most 50 ms.
void pass_time(std::chrono::nanoseconds time) noexcept;

/// As long as it lives, time passes so many times as fast. For waits that somebody else would have to end: a budget
/// that must not be over has to be as many times as long.
class fast_clock {
 public:
  explicit fast_clock(int times)
      : thread_([=](const std::stop_token& stop) {
          for (auto before = std::chrono::steady_clock::now(); !stop.stop_requested();) {
            look_again_soon();
            pass_time((times - 1) * (std::chrono::steady_clock::now() - before));
            before = std::chrono::steady_clock::now();
          }
        }) {}

 private:
  joined_thread thread_;
};

/// As long as it lives, time passes so many times as slowly: for what counts how often something is asked for again,
/// since the machine may be slow. One at a time, made and ended while no other thread reads the clock.
class slow_clock {
 public:
  explicit slow_clock(int times) noexcept { set(times); }
  ~slow_clock() { set(1); }
  slow_clock(const slow_clock&) = delete;
  slow_clock& operator=(const slow_clock&) = delete;

 private:
  static void set(int divisor) noexcept;
};

/// Time that passes a moment later, while this thread waits for something. If it does not wait yet, it waits as long as
/// it says, and the test takes longer.
class time_passes {
 public:
  explicit time_passes(std::chrono::nanoseconds time)
      : thread_([=] {
          be_slow(std::chrono::milliseconds(20));
          pass_time(time);
        }) {}

 private:
  joined_thread thread_;
};

/// As long as it is set, each reading of the wall clock is an hour late or early, in turn.
inline std::atomic<bool> wall_clock_jumps{false};

}  // namespace test
