// Memory for the lists of one decoded control frame, of bounded size, on the caller's stack: the reader of Cap'n
// Proto's library is gone when they are used, so they are copied.
#pragma once

#include <tensorpull/framing/frame.hpp>

#include <array>

namespace tensorpull::detail {

/// Memory for the lists of one decoded control frame. The sizes follow from what fits such a frame.
template <class Limits>
struct capnp_lists {
  union {
    std::array<std::uint64_t, Limits::control_frame_bytes / 8> dims;      // of rows
    std::array<index_range, Limits::control_frame_bytes / 24> slices;  // of names; others than texts are as long
  };
  union {
    std::array<schema_row, Limits::control_frame_bytes / 32> rows;
    std::array<std::string_view, Limits::control_frame_bytes / 16> names;
    std::array<byte_range, Limits::control_frame_bytes / 16> ranges;
    std::array<reference, Limits::application_references> references;
  };
  static constexpr std::size_t most_body_bytes = Limits::application_body_bytes;
  capnp_lists() noexcept {}  // not initialised, on purpose: it would cost every decoding call some KiB of writes
};

}  // namespace tensorpull::detail
