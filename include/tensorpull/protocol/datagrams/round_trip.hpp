// How long an answer takes, and how long to wait for one: the estimate of RFC 6298.
#pragma once

#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/chrono.hpp>

namespace tensorpull {

/// Smoothed round-trip time and time-out (RFC 6298, section 2), with two constants of our own: the time-out is at least
/// 25 ms above the smoothed time (RFC 9002, 6.2.1, which has the peer's delay there), and never above 4 s. An answer is
/// matched to the very request that it answers, so there is always a sample without ambiguity.
class round_trip {
 public:
  /// Points in time, and durations.
  using time = std::chrono::microseconds;
  /// The least that a time-out is longer than the smoothed time.
  static constexpr time least{25'000};
  /// The longest.
  static constexpr time most{4'000'000};

  /// An answer took this long.
  constexpr void took(time t) noexcept {
    t = std::max(t, time(1));
    latest_ = t;
    fastest_ = known() ? std::min(fastest_, t) : t;
    if (!known()) {
      smoothed_ = t;
      varies_ = t / 2;
    } else {
      const time off = smoothed_ > t ? smoothed_ - t : t - smoothed_;
      varies_ += (off - varies_) / 4;
      smoothed_ += (t - smoothed_) / 8;
    }
    go_on();
  }
  /// Something arrived that was awaited: ends a back-off.
  constexpr void go_on() noexcept {
    if (known()) timeout_ = std::min(smoothed_ + std::max(4 * varies_, least), most);
  }
  /// Nothing arrived in time: wait twice as long next time.
  constexpr void back_off() noexcept { timeout_ = std::min(timeout_ * 2, most); }

  /// Whether an answer was timed.
  constexpr bool known() const noexcept { return smoothed_.count() > 0; }
  /// How long to wait for an answer: one second before the first is known.
  constexpr time timeout() const noexcept { return timeout_; }
  /// The smoothed time; zero: not known.
  constexpr time smoothed() const noexcept { return smoothed_; }
  /// The last time; zero: not known.
  constexpr time latest() const noexcept { return latest_; }
  /// The shortest time that was seen; zero: not known.
  constexpr time fastest() const noexcept { return fastest_; }

 private:
  time smoothed_{}, varies_{}, fastest_{}, latest_{}, timeout_{1'000'000};
};

}  // namespace tensorpull
