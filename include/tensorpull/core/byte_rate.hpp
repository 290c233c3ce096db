// A rate in bytes a second that holds over any second, not only on average. The time is handed in.
#pragma once

#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/chrono.hpp>

#include <cstdint>

namespace tensorpull {

/// At most `bytes_per_second` bytes in any second. An unused share is saved up to a sixteenth of a second's worth, and
/// the rest accrues at fifteen sixteenths of the rate: so a second that begins with all that was saved has no more than
/// the rate. (The generic cell rate algorithm of ITU-T I.371: the state is one time.) No heap, no clock.
class byte_rate {
 public:
  /// The used share of a rate: 8 bytes.
  class used {
    friend byte_rate;
    std::int64_t until_ = 0;  // in nanoseconds: when all that was used has been earned
  };

  /// 0, or above 2^37: no limit.
  constexpr explicit byte_rate(std::uint64_t bytes_per_second = 0) noexcept
      : burst_((bytes_per_second + 15) / 16), refill_(bytes_per_second > most ? 0 : bytes_per_second - burst_),
        limited_(bytes_per_second != 0 && bytes_per_second <= most) {}

  /// Whether there is a limit.
  constexpr bool limited() const noexcept { return limited_; }
  /// The most that can be used at once.
  constexpr std::uint64_t burst_bytes() const noexcept { return burst_; }
  /// Bytes that may be used now. `now`: the time of a monotonic clock with any origin.
  constexpr std::uint64_t left(const used& u, std::chrono::nanoseconds now) const noexcept {
    if (!limited_) return ~std::uint64_t{0};
    const auto owed = static_cast<std::uint64_t>(std::max<std::int64_t>(u.until_ - now.count(), 0));
    const std::uint64_t unearned = refill_ == 0 ? owed : (owed * refill_ + second - 1) / second;
    return burst_ - std::min(burst_, unearned);
  }
  /// Uses some of what is left.
  constexpr void use(used& u, std::uint64_t bytes, std::chrono::nanoseconds now) const noexcept {
    if (limited_) u.until_ = std::max(u.until_, static_cast<std::int64_t>(now.count())) + price(bytes, refill_ - 1);
  }
  /// Gives back what was used and not needed.
  constexpr void give_back(used& u, std::uint64_t bytes) const noexcept {
    if (limited_) u.until_ -= price(bytes, 0);
  }

 private:
  static constexpr std::uint64_t second = 1'000'000'000, most = std::uint64_t{1} << 37;
  /// Nanoseconds in which that many bytes are earned. At one byte a second nothing is earned within a second of its
  /// use.
  constexpr std::int64_t price(std::uint64_t bytes, std::uint64_t round) const noexcept {
    return static_cast<std::int64_t>(refill_ == 0 ? bytes * (second + 1) : (bytes * second + round) / refill_);
  }

  std::uint64_t burst_, refill_;
  bool limited_;
};

}  // namespace tensorpull
