// One gather write of an endpoint: its spans, and the frames that they belong to.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull {

/// The parts of one gather write. endpoint::plan_write() fills it in, endpoint::written() takes it back. `Spans` and
/// `Items`: the most of each.
template <std::size_t Spans, std::size_t Items>
struct basic_write_plan {
  /// Where an item comes from.
  enum class source : std::uint8_t {
    control,     ///< short frames of this end: requests and confirmations
    long_frame,  ///< a message, or another frame in a buffer of the pool
    reply,       ///< a waiting reply of the owner
  };
  /// A part of the plan: of one reply, of one long frame, or all short frames.
  struct item {
    source from;        ///< where it comes from
    bool pinned;        ///< the reply's image is pinned: withdraw() waits until the plan was taken back
    bool whole;         ///< the item reaches its frame's end
    std::size_t bytes;  ///< of this plan that belong to it
  };
  /// Spans of one gather write.
  static constexpr std::size_t max_spans = Spans;

  std::array<std::span<const std::byte>, max_spans> spans;  ///< what to write, in order; the first span_count are used
  std::size_t span_count = 0;  ///< how many there are
  std::array<item, Items> items;  ///< what the spans belong to, in order; the first item_count are used
  std::size_t item_count = 0;  ///< how many there are
  std::size_t bytes = 0;  ///< in all spans together
  std::span<const int> descriptors{};  ///< what the stream passes along with them (byte_stream, 7)

  /// Whether there is room for one more reply or long frame.
  bool has_room() const noexcept { return span_count + 4 <= max_spans && item_count < items.size(); }
};

/// Of an end that owns something.
using write_plan = basic_write_plan<64, 16>;
/// Of an end that owns nothing: it sends short frames and one long one.
using short_write_plan = basic_write_plan<8, 2>;

}  // namespace tensorpull
