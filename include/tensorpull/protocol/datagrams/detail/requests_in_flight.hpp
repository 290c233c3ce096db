// The requests for chunks that a recipient over datagrams awaits answers to.
#pragma once

#include <tensorpull/protocol/datagrams/round_trip.hpp>
#include <tensorpull/protocol/recipient/detail/request_id.hpp>
#include <tensorpull/std/chrono.hpp>

#include <array>
#include <cstdint>
#include <utility>

namespace tensorpull::detail {

/// Requests by their ids, which differ by less than `slots`, and the slot of the chunk that each asks for. One of them
/// at a time is timed.
template <std::uint32_t slots>
class requests_in_flight {
 public:
  using time = round_trip::time;
  /// Instead of a slot.
  static constexpr std::uint16_t nobody = 0xffff;

  constexpr requests_in_flight() noexcept { slot_.fill(nobody); }

  std::uint32_t count() const noexcept { return count_; }
  /// No request with a lower id is awaited.
  std::uint32_t first() const noexcept { return first_; }
  /// How many more there may be before one with this id.
  std::uint32_t room(std::uint32_t id) const noexcept { return count_ == 0 ? slots : slots - (id - first_); }
  bool has(std::uint32_t id) const noexcept {
    return !comes_before(id, first_) && comes_before(id, end_) && slot_[id % slots] != nobody;
  }
  /// The slot of one that is awaited.
  std::uint16_t slot(std::uint32_t id) const noexcept { return slot_[id % slots]; }

  /// A request leaves.
  void add(std::uint32_t id, std::uint16_t slot, time now) noexcept {
    if (count_++ == 0) first_ = id;
    end_ = id + 1;
    slot_[id % slots] = slot;
    if (std::exchange(timing_, true)) return;
    timed_id_ = id;
    timed_at_ = now;
  }
  /// It is awaited no more. Returns its slot; nobody: it was not.
  std::uint16_t take(std::uint32_t id) noexcept {
    if (!has(id)) return nobody;
    --count_;
    const std::uint16_t slot = std::exchange(slot_[id % slots], nobody);
    while (first_ != end_ && slot_[first_ % slots] == nobody) ++first_;
    return slot;
  }
  /// Those with a lower id are awaited no more; `lost` is called with the slot of each.
  template <class Lost>
  void give_up_before(std::uint32_t id, Lost lost) noexcept {
    while (first_ != end_ && comes_before(first_, id))
      if (const std::uint16_t slot = std::exchange(slot_[first_++ % slots], nobody); slot != nobody) {
        --count_;
        lost(slot);
      }
  }
  /// The same for all.
  template <class Lost>
  void give_up(Lost lost) noexcept {
    give_up_before(end_, lost);
    timing_ = false;
  }
  /// An answer has arrived: of the timed request, or of a later one, so that nothing is timed.
  void answered(std::uint32_t id, time now, round_trip& trip) noexcept {
    if (!timing_ || comes_before(id, timed_id_)) return;
    if (id == timed_id_) trip.took(now - timed_at_);
    timing_ = false;
  }

 private:
  std::array<std::uint16_t, slots> slot_;
  std::uint32_t first_ = 0, end_ = 0, count_ = 0, timed_id_ = 0;
  time timed_at_{};
  bool timing_ = false;
};

}  // namespace tensorpull::detail
