// The requests for chunks that a recipient over datagrams awaits answers to.
#pragma once

#include <tensorpull/protocol/datagrams/round_trip.hpp>
#include <tensorpull/protocol/recipient/detail/request_id.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/chrono.hpp>

#include <array>
#include <cstdint>
#include <utility>

namespace tensorpull::detail {

/// Requests by their ids, which differ by less than `slots`: when each left, and the slot of the chunk that it asks
/// for.
///
/// One is lost if one that left later was answered: three later, as long as none has overtaken another; from then on,
/// if it left a quarter of the round trip later, and a quarter more for each round trip in which one that
/// counted as lost was answered (RFC 8985, 6.2).
template <std::uint32_t slots>
class requests_in_flight {
 public:
  using time = round_trip::time;
  /// Instead of a slot.
  static constexpr std::uint16_t nobody = 0xffff;
  static constexpr std::uint32_t reordering = 3;
  static_assert(slots <= 32768);

  constexpr requests_in_flight() noexcept { sent_.fill({nobody, 0}); }

  std::uint32_t count() const noexcept { return count_; }
  /// How many more there may be before one with this id.
  std::uint32_t room(std::uint32_t id) const noexcept { return count_ == 0 ? slots : slots - (id - first_); }
  bool has(std::uint32_t id) const noexcept {
    return !comes_before(id, first_) && comes_before(id, end_) && sent_[id % slots].slot < given_up;
  }
  /// The slot of one that is awaited.
  std::uint16_t slot(std::uint32_t id) const noexcept { return sent_[id % slots].slot; }

  /// A request leaves.
  void add(std::uint32_t id, std::uint16_t slot, time now) noexcept {
    if (!std::exchange(begun_, true)) latest_ = patient_until_ = id;
    if (count_++ == 0) first_ = id;
    end_ = id + 1;
    sent_[id % slots] = {slot, ticks(now)};
  }
  /// It is awaited no more. Returns its slot; nobody: it was not.
  std::uint16_t take(std::uint32_t id) noexcept {
    if (!has(id)) return nobody;
    --count_;
    const std::uint16_t slot = std::exchange(sent_[id % slots].slot, nobody);
    while (first_ != end_ && sent_[first_ % slots].slot >= given_up) ++first_;
    return slot;
  }
  /// How long ago it left, if that was less than four seconds ago; at least one.
  time took(std::uint32_t id, time now) const noexcept {
    return std::max(static_cast<std::uint16_t>(ticks(now) - left(id)) * tick, time(1));
  }
  /// Whether no request that left before is awaited, so that an answer has overtaken none and shows what the path
  /// takes.
  bool is_first(std::uint32_t id) const noexcept { return id == first_; }

  /// A request that is awaited no more was answered. Calls `lost` with the id and the slot of each that is lost.
  template <class Lost>
  void answered(std::uint32_t id, const round_trip& trip, Lost lost) noexcept {
    if (comes_before(id, latest_)) overtaken_ = true;
    else latest_ = id;
    const time late = trip.smoothed() * patience_ / 4;
    while (first_ != end_ && comes_before(first_, latest_)) {
      if (!overtaken_ && latest_ - first_ < reordering) break;
      if (overtaken_ && time(static_cast<std::uint16_t>(left(latest_) - left(first_)) * tick) < late) break;
      give_up_first(lost);
    }
  }
  /// One that is not awaited was answered. True: it had been given up.
  bool was_late(std::uint32_t id) noexcept {
    if (comes_before(id, end_ - slots) || !comes_before(id, first_) || sent_[id % slots].slot != given_up) return false;
    sent_[id % slots].slot = nobody;
    overtaken_ = true;
    if (!comes_before(id, patient_until_)) {
      patient_until_ = end_;
      patience_ = std::min(patience_ + 1, 4);
    }
    return true;
  }
  /// Those with a lower id are awaited no more.
  template <class Lost>
  void give_up_before(std::uint32_t id, Lost lost) noexcept {
    while (first_ != end_ && comes_before(first_, id)) give_up_first(lost);
  }
  template <class Lost>
  void give_up_all(Lost lost) noexcept {
    give_up_before(end_, lost);
  }

 private:
  static constexpr std::uint16_t given_up = 0xfffe;
  /// Times are kept in 16 bits.
  static constexpr time tick{64};
  static constexpr std::uint16_t ticks(time t) noexcept { return static_cast<std::uint16_t>(t / tick); }
  struct request {
    std::uint16_t slot, left;
  };

  std::uint16_t left(std::uint32_t id) const noexcept { return sent_[id % slots].left; }
  template <class Lost>
  void give_up_first(Lost lost) noexcept {
    const std::uint32_t id = first_++;
    if (sent_[id % slots].slot >= given_up) return;
    --count_;
    lost(id, std::exchange(sent_[id % slots].slot, given_up));
  }

  std::array<request, slots> sent_;
  std::uint32_t first_ = 0, end_ = 0, count_ = 0;  // no request before the first is awaited
  std::uint32_t latest_ = 0, patient_until_ = 0;  // the last that was answered
  int patience_ = 1;
  bool begun_ = false, overtaken_ = false;
};

}  // namespace tensorpull::detail
