// Native sending, "chunk size 0": the whole image in one frame. For small models, and to compare with.
#pragma once

#include <tensorpull/chunking/concept.hpp>

namespace tensorpull {

/// One chunk, whatever the image's size; the transfer fails with does_not_fit where that is above 536,870,904 bytes or the owner's cap.
struct whole {
  using is_chunking_policy = void;
  static constexpr std::uint64_t max_chunk_bytes = 0;
  static constexpr bool needs_layout = true;

  static constexpr std::uint64_t next(std::uint64_t offset, const chunk_context& context) noexcept { return context.image_bytes - offset; }
};

static_assert(chunking_strategy<whole>);

}  // namespace tensorpull
