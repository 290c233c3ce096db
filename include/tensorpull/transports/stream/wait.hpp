// How blocking drivers wait: in steps that are short enough to notice a stop request.
#pragma once

#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/chrono.hpp>
#include <tensorpull/std/stop_token.hpp>

#include <poll.h>

namespace tensorpull::detail {

/// The longest step of a wait, after which the stop token is read again.
inline constexpr std::chrono::milliseconds wait_step{50};

/// The moment when this time will be over; the last moment of the clock, if it is longer than the clock goes.
inline std::chrono::steady_clock::time_point deadline_after(std::chrono::milliseconds time) noexcept {
  const auto now = std::chrono::steady_clock::now();
  const auto most = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::time_point::max() -
                                                                          now);
  return time < most ? now + time : std::chrono::steady_clock::time_point::max();
}

/// Sleeps; a signal ends it early.
inline void pause(std::chrono::milliseconds time) noexcept {
  (void)::poll(nullptr, 0, static_cast<int>(std::min<std::chrono::milliseconds::rep>(time.count(), 1 << 30)));
}

/// Waits for `time` with `step(left)`, which waits at most that long and returns. False: `stop` was requested.
template <class Step>
bool wait_out(std::chrono::milliseconds time, const stop_token& stop, Step step) noexcept {
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    if (stop.stop_requested()) return false;
    // by subtraction, so that the longest time does not wrap
    const auto spent = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start);
    if (spent >= time) return true;
    step(std::min(time - spent, wait_step));
  }
}

}  // namespace tensorpull::detail
