// Waits of a test. Each has a limit, far below that of its program, and says what it has waited for.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <string_view>
#include <thread>

namespace test {

/// What a busy machine may need for what takes a moment. ctest ends most programs after five minutes.
inline constexpr std::chrono::seconds ample_time{60};

/// For a peer, a callback or a disk that is slow. It is no way to wait for anything.
inline void be_slow(std::chrono::nanoseconds time) { std::this_thread::sleep_for(time); }

/// Between two looks of a loop that something else ends.
inline void look_again_soon() { be_slow(std::chrono::milliseconds(1)); }

/// The clock of these limits, which goes on as it always does when a test lets time pass (clocks.hpp).
struct limit_clock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<limit_clock>;
  static constexpr bool is_steady = true;
  static time_point now() noexcept {
    timespec t{};
    ::clock_gettime(CLOCK_MONOTONIC_RAW, &t);
    return time_point(std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec));
  }
};

/// Waits until it holds. If it does not within the limit, the test fails with the words of `what`.
template <class Holds>
bool eventually(std::string_view what, Holds holds, std::chrono::milliseconds limit = ample_time) {
  const auto end = limit_clock::now() + limit;
  while (!holds()) {
    if (limit_clock::now() >= end) {
      ADD_FAILURE() << "waited for " << limit.count() << " ms until this: " << what;
      return false;
    }
    look_again_soon();
  }
  return true;
}

/// A stop token that is requested after a time: for an owner that runs on the test's thread until something is so.
struct until_time {
  limit_clock::time_point end;
  bool stop_requested() const noexcept { return limit_clock::now() >= end; }
};
inline until_time within(std::chrono::milliseconds time) { return {limit_clock::now() + time}; }

}  // namespace test
