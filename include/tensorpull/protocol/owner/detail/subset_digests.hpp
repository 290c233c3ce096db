// The digests of subsets that an owner was asked for lately. A recipient asks with a few hundred bytes for what costs the owner a pass over
// all that it names, so passes are remembered, and there is a budget for those that are not.
#pragma once

#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/protocol/subset.hpp>

#include <cstdint>
#include <span>

namespace tensorpull {

/// Sixteen digests, the oldest making room, and a budget in bytes for each second of the owner's clock. Data only; no heap.
template <hash Hash, class Limits>
class subset_digests {
 public:
  /// The digest over `ranges` of the image that is published as (slot, generation). The first who asks pays a pass over the bytes; who asks
  /// again gets the same number, also when the memory has been changed in between. busy: other subsets have used up the budget. io: the
  /// image could not be read.
  result<std::uint64_t> of(const source_view& image, std::uint32_t slot, std::uint32_t generation, const subset_choice& chosen,
                           std::span<const byte_range> ranges, std::uint64_t now_ms) noexcept {
    for (const entry& e : entries_)
      if (e.generation == generation && e.slot == slot && e.chosen == chosen) return e.digest;
    refill(now_ms);
    if (used_ >= per_second) return failure(errc::busy);
    const auto made = ranges_digest<Hash>(image, ranges);
    if (!made) return made;
    if (now_ms != 0) used_ += chosen.bytes;  // who lets no time pass has no budgets
    entries_[next_++ % std::size(entries_)] = {chosen, *made, slot, generation};
    return made;
  }

 private:
  static constexpr std::uint64_t per_second = Limits::subset_bytes_per_second;

  struct entry {
    subset_choice chosen{};
    std::uint64_t digest = 0;
    std::uint32_t slot = 0, generation = 0;  // no publication has generation 0
  };

  void refill(std::uint64_t now_ms) noexcept {
    const std::uint64_t passed_ms = std::min<std::uint64_t>(now_ms - refilled_ms_, 3'600'000);
    used_ -= std::min(used_, passed_ms * (per_second / 1000));
    refilled_ms_ = now_ms;
  }

  entry entries_[16];
  std::uint64_t used_ = 0, refilled_ms_ = 0;
  std::uint32_t next_ = 0;
};

}  // namespace tensorpull
