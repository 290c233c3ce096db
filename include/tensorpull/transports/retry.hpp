// When to try again, and how long to wait before: exponential back-off with jitter. No clock and no random source of its own.
#pragma once

#include <tensorpull/core/error.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/optional.hpp>

#include <cstdint>

namespace tensorpull {

struct retry_policy {
  std::uint32_t retries = 3;                ///< in a row without progress; 0: none
  std::uint32_t first_delay_ms = 250;
  std::uint32_t longest_delay_ms = 60'000;
};

/// What another try may get past. A connection that could never be made is not among them.
constexpr bool is_passing(errc code) noexcept { return code == errc::timed_out || code == errc::connection_lost || code == errc::busy; }

class retry_schedule {
 public:
  constexpr explicit retry_schedule(const retry_policy& p) noexcept : policy_(p) {}

  /// Something went well: the next failure is the first again.
  constexpr void succeeded() noexcept { failures_ = 0; }
  /// Another failure. False: no more tries.
  constexpr bool failed() noexcept { return ++failures_ <= policy_.retries; }
  /// How long to wait after this many failures: doubled each time, capped, and spread over its upper half by a random number, so that
  /// recipients that were cut off together do not come back together.
  constexpr std::uint64_t delay_ms(std::uint64_t random) const noexcept {
    const std::uint32_t doublings = failures_ > 0 ? std::min<std::uint32_t>(failures_ - 1, 20) : 0;
    const std::uint64_t whole = std::min<std::uint64_t>(std::uint64_t{policy_.first_delay_ms} << doublings, policy_.longest_delay_ms);
    return whole - whole / 2 * (random >> 40) / (std::uint64_t{1} << 24);
  }

 private:
  retry_policy policy_;
  std::uint32_t failures_ = 0;
};

/// What one pull decides after each obstacle, over all its connections: tries are counted from the last byte of progress, and a busy owner
/// is not a failure but has only so much of our time.
class perseverance {
 public:
  /// `landed`: bytes that were there at the start.
  constexpr perseverance(const retry_policy& policy, std::uint64_t busy_budget_ms, std::uint64_t landed) noexcept
      : schedule_(policy), busy_budget_ms_(busy_budget_ms), landed_(landed) {}

  /// How many milliseconds to wait before another try; nothing: this was the last. `asked_ms`: what the owner's `busy` asks for.
  constexpr optional<std::uint64_t> after(errc why, std::uint64_t landed, std::uint64_t asked_ms, std::uint64_t random) noexcept {
    if (landed > landed_) schedule_.succeeded(), busy_ms_ = 0, landed_ = landed;  // a chunk that is fetched again is none
    if (!is_passing(why) || (why != errc::busy && !schedule_.failed())) return {};
    const std::uint64_t wait = std::max(asked_ms, schedule_.delay_ms(random));
    if (why != errc::busy) return wait;
    if (busy_budget_ms_ - std::min(busy_budget_ms_, busy_ms_) <= asked_ms) return {};
    busy_ms_ += wait;
    return wait;
  }

 private:
  retry_schedule schedule_;
  std::uint64_t busy_budget_ms_, busy_ms_ = 0, landed_;
};

}  // namespace tensorpull
