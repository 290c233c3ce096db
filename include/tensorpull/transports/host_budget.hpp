// Decides when a host ends a connection that is silent, too slow, or in a transfer that does not move. A timer feeds it byte counts.
#pragma once

#include <cstdint>
#include <tensorpull/std/chrono.hpp>

namespace tensorpull {

/// Budgets of a host's connections, on the monotonic clock.
struct connection_budgets {
  /// Until the other end has sent its first bytes. The time starts with the host's first look at the connection, within 0.2 s of its start.
  std::chrono::milliseconds accept = std::chrono::seconds(10);
  /// While one side owes bytes (an unfinished frame, answers not taken, a transfer under way): the connection ends if on average fewer than
  /// `least_bytes_per_second` move over this time.
  std::chrono::milliseconds stall = std::chrono::seconds(60);
  /// While neither side owes bytes: silence of this length ends the connection.
  std::chrono::milliseconds idle = std::chrono::seconds(600);
  std::uint64_t least_bytes_per_second = 64;  ///< in both directions together; 0: any byte counts
};

namespace detail {

class budget_watch {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  explicit budget_watch(time_point now) noexcept : mark_(now) {}

  /// Whether the time is over. `bytes`: moved so far in both directions. `owing`: one side owes bytes. `greeted`: the other end has sent bytes.
  bool over(const connection_budgets& b, time_point now, std::uint64_t bytes, bool owing, bool greeted) noexcept {
    const std::uint64_t moved = bytes - bytes_;
    const auto limit = owing ? b.stall : b.idle;
    const std::uint64_t least = owing ? at_least(b.least_bytes_per_second, limit) : 1;
    if (moved >= least || owing != owing_ || greeted != greeted_) {
      mark_ = now;
      bytes_ = bytes;
      owing_ = owing;
      greeted_ = greeted;
      if (!greeted && first_ == time_point{}) first_ = now;
    }
    if (!greeted && first_ == time_point{}) first_ = now;
    if (!greeted && passed(now - first_, b.accept)) return true;
    return passed(now - mark_, limit);
  }

 private:
  static std::uint64_t at_least(std::uint64_t per_second, std::chrono::milliseconds limit) noexcept {
    const auto seconds = static_cast<std::uint64_t>(limit.count()) / 1000, rest = static_cast<std::uint64_t>(limit.count()) % 1000;
    if (per_second != 0 && seconds >= ~std::uint64_t{0} / 2 / per_second) return ~std::uint64_t{0};
    return per_second * seconds + per_second * rest / 1000 + 1;
  }
  /// Compares milliseconds: a limit that means "never" would wrap in nanoseconds.
  static bool passed(time_point::duration spent, std::chrono::milliseconds limit) noexcept {
    return std::chrono::duration_cast<std::chrono::milliseconds>(spent) >= limit;
  }

  time_point mark_, first_{};
  std::uint64_t bytes_ = 0;
  bool owing_ = false, greeted_ = false;
};

}  // namespace detail
}  // namespace tensorpull
