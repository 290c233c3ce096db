// Whether to try again, and how long to wait first: exponential back-off with jitter. The caller supplies time and
// random numbers.
#pragma once

#include <tensorpull/core/error.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/chrono.hpp>
#include <tensorpull/std/optional.hpp>

#include <cstdint>

namespace tensorpull {

/// How often a pull or a connect tries again, and how long it waits first. The delay is doubled after each failure, up
/// to the longest one.
struct retry_policy {
  std::uint32_t retries = 3;  ///< in a row without progress; 0: none
  std::chrono::milliseconds first_delay{250};  ///< after the first failure; jitter takes off up to half
  /// no delay of ours is longer; a busy owner may ask for a longer one
  std::chrono::milliseconds longest_delay{60'000};
};

/// Whether another try may succeed after this error. The owner may not have started yet (connection_failed; where names
/// follow programs, unknown_host), or may start again.
constexpr bool is_passing(errc code) noexcept {
  return code == errc::connection_failed || code == errc::timed_out || code == errc::connection_lost ||
         code == errc::truncated || code == errc::busy || code == errc::unknown_host;
}

/// The tries of one pull, over all its connections. Tries are counted from the last progress. A busy owner is not a
/// failure, but the time that it may put us off is limited.
class retry_state {
 public:
  /// `landed`: bytes that had landed before it began. `busy_budget`: how long a busy owner may put us off without
  /// progress.
  constexpr explicit retry_state(const retry_policy& policy, std::chrono::milliseconds busy_budget = {},
                                 std::uint64_t landed = 0) noexcept
      : policy_(policy), busy_left_(at_least_none(busy_budget)), busy_budget_(busy_left_), landed_(landed) {}

  /// How long to wait before another try; nothing if this was the last. `asked`: the delay that the owner's `busy` asks
  /// for. `least`: fewer bytes are no progress, since an owner that gives a byte for each try would have them for ever.
  constexpr optional<std::chrono::milliseconds> after(errc why, std::uint64_t landed, std::chrono::milliseconds asked,
                                                      std::uint64_t random, std::uint64_t least = 1) noexcept {
    if (landed >= landed_ + least) {  // a chunk that is fetched again is no progress
      succeeded();
      busy_left_ = busy_budget_;
      landed_ = landed;
    }
    if (!is_passing(why) || (why != errc::busy && !failed())) return {};
    const auto wait = std::max(asked, delay(random));
    if (why != errc::busy) return wait;
    if (busy_left_ <= asked) return {};
    busy_left_ -= std::min(busy_left_, wait);
    return wait;
  }

  /// There was progress: the next failure counts as the first.
  constexpr void succeeded() noexcept { failures_ = 0; }
  /// Counts a failure. False: no tries are left.
  constexpr bool failed() noexcept { return ++failures_ <= policy_.retries; }
  /// How long to wait after the failures so far. The random number spreads it over the upper half of the delay, so that
  /// recipients that were cut off together do not return together.
  constexpr std::chrono::milliseconds delay(std::uint64_t random) const noexcept {
    const auto longest = at_least_none(policy_.longest_delay);
    auto whole = std::min(at_least_none(policy_.first_delay), longest);
    const std::uint32_t doublings = failures_ > 0 ? std::min<std::uint32_t>(failures_ - 1, 62) : 0;
    for (std::uint32_t i = 0; i < doublings && whole < longest; ++i) whole = whole > longest / 2 ? longest : whole * 2;
    // half * part / 2^24, in two steps that cannot overflow even for the longest delay
    const auto half = static_cast<std::uint64_t>(whole.count()) / 2, part = random >> 40;
    const std::uint64_t less = half / (1u << 24) * part + half % (1u << 24) * part / (1u << 24);
    return whole - std::chrono::milliseconds(static_cast<std::int64_t>(less));
  }

 private:
  static constexpr std::chrono::milliseconds at_least_none(std::chrono::milliseconds t) noexcept {
    return std::max(t, std::chrono::milliseconds::zero());
  }

  retry_policy policy_;
  std::chrono::milliseconds busy_left_, busy_budget_;
  std::uint64_t landed_;
  std::uint32_t failures_ = 0;
};

}  // namespace tensorpull
