// One gather write of an end: which spans, and which frames they belong to.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull {

/// What one gather write consists of; made by stream_output::plan, returned to stream_output::sent.
struct write_plan {
  enum class source : std::uint8_t {
    control,
    long_frame,
    reply,
  };
  struct item {
    source from;
    bool pinned;        ///< the reply's image may not be withdrawn before sent()
    bool whole;         ///< the item reaches its frame's end
    std::size_t bytes;  ///< of this plan that belong to it
  };
  static constexpr std::size_t max_spans = 64;

  std::array<std::span<const std::byte>, max_spans> spans;
  std::size_t span_count = 0;
  std::array<item, 16> items;
  std::size_t item_count = 0;
  std::size_t bytes = 0;

  /// For one reply or long frame more.
  bool has_room() const noexcept { return span_count + 4 <= max_spans && item_count < items.size(); }
};

}  // namespace tensorpull
