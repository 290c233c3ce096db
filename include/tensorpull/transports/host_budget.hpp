// When a connection has had its time: silence, dribbling, or a transfer that does not move. Fed with byte counts by a clock tick.
#pragma once

#include <cstdint>
#include <tensorpull/std/chrono.hpp>

namespace tensorpull {

/// Budgets of a host's connections, on the monotonic clock.
struct connection_budgets {
  /// From accepting a connection to its first valid request.
  std::chrono::milliseconds accept = std::chrono::seconds(10);
  /// While one side owes bytes (an unfinished frame, answers not taken, a transfer under way): fewer than `least_bytes_per_second`
  /// over this time ends the connection.
  std::chrono::milliseconds stall = std::chrono::seconds(60);
  /// While nobody owes anything: silence of this length ends the connection.
  std::chrono::milliseconds idle = std::chrono::seconds(600);
  std::uint64_t least_bytes_per_second = 64;
};

namespace detail {

class budget_watch {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  explicit budget_watch(time_point now) noexcept : mark_(now) {}

  /// `bytes`: moved so far in both directions; true: the time is over.
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
  /// In milliseconds: a limit in nanoseconds would wrap where it means "never".
  static bool passed(time_point::duration spent, std::chrono::milliseconds limit) noexcept {
    return std::chrono::duration_cast<std::chrono::milliseconds>(spent) >= limit;
  }

  time_point mark_, first_{};
  std::uint64_t bytes_ = 0;
  bool owing_ = false, greeted_ = false;
};

}  // namespace detail
}  // namespace tensorpull
