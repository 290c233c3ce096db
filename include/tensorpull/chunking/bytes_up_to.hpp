// Chunks whose length is chosen when the program runs, with a maximum that the compiler knows (so that memory bounds stay constants).
#pragma once

#include <tensorpull/chunking/concept.hpp>
#include <tensorpull/std/algorithm.hpp>

namespace tensorpull {

/// Every chunk has `chunk_bytes` bytes but the last; values outside [1, Max] are brought inside.
template <std::uint64_t Max>
struct bytes_up_to {
  static_assert(Max > 0, "tensorpull: bytes_up_to<Max> needs a positive maximum");
  static_assert(Max <= max_payload_bytes, "tensorpull: bytes_up_to<Max> allows at most 536870904 bytes, the most that one Cap'n Proto frame carries");

  using is_chunking_policy = void;
  static constexpr std::uint64_t max_chunk_bytes = Max;
  static constexpr bool needs_layout = false;

  std::uint64_t chunk_bytes = std::min<std::uint64_t>(Max, default_chunk_bytes);

  constexpr std::uint64_t next(std::uint64_t offset, const chunk_context& context) const noexcept {
    return std::min(std::min(std::max<std::uint64_t>(chunk_bytes, 1), Max), context.image_bytes - offset);
  }
};

static_assert(chunking_strategy<bytes_up_to<1>>);

}  // namespace tensorpull
