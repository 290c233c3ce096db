// Passes a stream of bytes on and knows where its frames begin: it doubles, delays, drops, shortens or damages the
// frames that it is told to. Everything else passes at once, so that a chunk still arrives in parts.
#pragma once

#include <tensorpull/framing/detail/segment_table.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tensorpull::testing {

/// The faults of a frame. `late`: other frames overtake it. `flip_head`, `flip_payload`: one bit of its head or of its
/// tensor bytes is inverted.
enum class frame_fault_kind : std::uint8_t {
  none,
  duplicate,
  late,
  drop,
  truncate,
  flip_head,
  flip_payload,
};

/// A fault of one frame of a direction.
struct frame_fault {
  frame_fault_kind kind = frame_fault_kind::none;  ///< what happens to it
  /// Which frame, from 0. For flip_payload only frames that carry tensor bytes are counted.
  std::uint64_t frame = 0;
  /// late: how many frames overtake it (at least 1); truncate: bytes left of it; flips: which bit, modulo the number of
  /// bits.
  std::uint64_t detail = 0;
};

/// One direction of a connection. Allocates only for a frame that it has to hold back.
class frame_faults {
 public:
  static constexpr std::size_t capacity = 4;  ///< the most faults of one direction

  /// Adds a fault; false if there are `capacity` already.
  bool arm(const frame_fault& f) noexcept {
    if (count_ == capacity) return false;
    armed_[count_++] = f;
    return true;
  }

  /// Takes the next bytes of the stream, cut anywhere; calls emit(span) with the bytes to pass on.
  template <class Emit>
  void take(std::span<const std::byte> bytes, Emit&& emit) {
    if (count_ == 0 || lost_) return emit(bytes);
    while (!bytes.empty()) {
      if (lost_) return emit(bytes);
      if (left_ > 0) {  // inside a frame that passes
        const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(left_, bytes.size()));
        emit(bytes.first(n));
        bytes = bytes.subspan(n);
        if ((left_ -= n) == 0) passed(emit);
        continue;
      }
      const std::size_t n = std::min((whole_ > 0 ? whole_ : need_) - frame_.size(), bytes.size());
      frame_.insert(frame_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
      bytes = bytes.subspan(n);
      grown(emit);
    }
  }

  /// Whether a late frame is being held back.
  bool holding() const noexcept { return !held_.empty(); }
  /// Passes on a late frame that no other frame has overtaken.
  template <class Emit>
  void release(Emit&& emit) {
    if (left_ > 0 || held_.empty()) return;  // never into the middle of another frame
    const auto late = std::move(held_);
    held_.clear();
    emit(std::span<const std::byte>(late));
  }
  /// How many faults have happened.
  std::uint64_t happened() const noexcept { return happened_; }

 private:
  static constexpr std::size_t head_bytes = 24;  // enough to know a frame's length, and whether it carries tensor bytes

  template <class Emit>
  void grown(Emit& emit) {
    if (whole_ == 0) {
      if (frame_.size() < need_) return;
      const auto size = tensorpull::detail::measure_frame(frame_, ~std::size_t{0}, 1u << 10);
      if (!size) return give_up(emit);
      need_ = *size ? std::min(head_bytes, **size) : need_ + 8;
      if (frame_.size() < need_) return;
      whole_ = **size;
      payload_ = tensorpull::detail::payload_prefix::announces_payload(frame_);
      now_ = fault();
      if (now_.kind == frame_fault_kind::none) {
        left_ = whole_ - frame_.size();
        emit(std::span<const std::byte>(frame_));
        frame_.clear();
        if (left_ == 0) passed(emit);
        return;
      }
    }
    if (frame_.size() < whole_) return;
    ++happened_;
    apply(emit);
    frame_.clear();
    passed(emit);
  }

  frame_fault fault() noexcept {
    const std::uint64_t number = frames_++, chunk = payload_ ? chunks_++ : ~std::uint64_t{0};
    for (std::size_t i = 0; i < count_; ++i)
      if (armed_[i].kind != frame_fault_kind::none &&
          armed_[i].frame == (armed_[i].kind == frame_fault_kind::flip_payload ? chunk : number))
        return std::exchange(armed_[i], {});
    return {};
  }

  template <class Emit>
  void apply(Emit& emit) {
    const std::span<const std::byte> whole(frame_);
    constexpr std::size_t prefix = tensorpull::detail::payload_prefix::bytes;
    switch (now_.kind) {
      case frame_fault_kind::duplicate:
        emit(whole);
        emit(whole);
        break;
      case frame_fault_kind::late:
        if (!held_.empty()) return emit(whole);
        held_ = frame_;
        overtaken_ = std::max<std::uint64_t>(now_.detail, 1) + 1;  // one more, because its own end is counted as well
        break;
      case frame_fault_kind::drop: break;
      case frame_fault_kind::truncate: emit(whole.first(static_cast<std::size_t>(now_.detail % frame_.size()))); break;
      case frame_fault_kind::flip_head:
        flip(0, payload_ ? std::min(prefix, frame_.size()) : frame_.size());
        emit(whole);
        break;
      case frame_fault_kind::flip_payload:
        if (frame_.size() > prefix) flip(prefix, frame_.size());
        emit(whole);
        break;
      case frame_fault_kind::none: emit(whole); break;
    }
  }
  void flip(std::size_t begin, std::size_t end) noexcept {
    const std::uint64_t bit = now_.detail % ((end - begin) * 8);
    frame_[begin + static_cast<std::size_t>(bit / 8)] ^= static_cast<std::byte>(1u << (bit % 8));
  }

  /// Called at the end of a frame: the next one begins, and a late one has been overtaken once more.
  template <class Emit>
  void passed(Emit& emit) {
    whole_ = 0;
    need_ = 8;
    if (!held_.empty() && --overtaken_ == 0) release(emit);
  }
  /// Passes bytes that are not frames on as they are.
  template <class Emit>
  void give_up(Emit& emit) {
    lost_ = true;
    emit(std::span<const std::byte>(frame_));
    frame_.clear();
  }

  std::array<frame_fault, capacity> armed_{};
  std::size_t count_ = 0, need_ = 8, whole_ = 0;  // armed; bytes wanted before the frame can be judged; its length
  std::uint64_t left_ = 0, frames_ = 0, chunks_ = 0, overtaken_ = 0, happened_ = 0;
  std::vector<std::byte> frame_, held_;
  frame_fault now_{};
  bool payload_ = false, lost_ = false;
};

}  // namespace tensorpull::testing
