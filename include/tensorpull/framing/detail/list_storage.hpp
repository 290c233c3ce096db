// Memory for the lists of one decoded control frame, of bounded size, on the caller's stack. Rows, ranges and slices
// are read from the frame when they are used; names and references are used as spans, so they are copied.
#pragma once

#include <tensorpull/framing/detail/segment_reader.hpp>
#include <tensorpull/framing/frame.hpp>

#include <array>

namespace tensorpull::detail {

/// For a frame of which neither names nor references are wanted: where the elements of its list lie. Some 400 bytes
/// with the default limits.
template <class Limits>
struct short_list_storage {
  static constexpr bool copies = false;
  // the most that a decoded list may have; they follow from what fits a control frame
  static constexpr std::size_t most_rows = Limits::control_frame_bytes / 32,
                               most_extents = Limits::control_frame_bytes / 8,
                               most_ranges = Limits::control_frame_bytes / 16;
  static constexpr std::size_t most_names = Limits::control_frame_bytes / 16,
                               most_references = Limits::application_references,
                               most_body_bytes = Limits::application_body_bytes;

  segment_reader from;
  segment_reader::list elements;
  segment_place segments[Limits::control_frame_segments];
  short_list_storage() noexcept {}  // not initialised, on purpose: decoding writes what it uses
};

/// For any frame.
template <class Limits>
struct list_storage : short_list_storage<Limits> {
  static constexpr bool copies = true;
  union {
    std::array<std::string_view, Limits::control_frame_bytes / 16> names;
    std::array<reference, Limits::application_references> references;
  };
  list_storage() noexcept {}  // not initialised either: it would cost every decoding call some KiB of writes
};

}  // namespace tensorpull::detail
