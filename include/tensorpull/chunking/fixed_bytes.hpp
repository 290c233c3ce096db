// Chunks of N bytes, known at compile time. The default strategy is fixed_bytes<2 MiB>.
#pragma once

#include <tensorpull/chunking/concept.hpp>
#include <tensorpull/std/algorithm.hpp>

namespace tensorpull {

/// Every chunk has N bytes but the last. N: a multiple of 8 (frames are padded to words), at most 536,870,904.
template <std::uint64_t N>
struct fixed_bytes {
  static_assert(N > 0, "tensorpull: fixed_bytes<N> needs a positive N; use `whole` to send the image in one frame");
  static_assert(N % 8 == 0, "tensorpull: fixed_bytes<N> needs a multiple of 8, since frames are padded to words of 8 bytes");
  static_assert(N <= max_payload_bytes, "tensorpull: fixed_bytes<N> allows at most 536870904 bytes, the most that one Cap'n Proto frame carries");

  using is_chunking_policy = void;
  static constexpr std::uint64_t max_chunk_bytes = N;
  static constexpr bool needs_layout = false;

  static constexpr std::uint64_t next(std::uint64_t offset, const chunk_context& context) noexcept {
    return std::min<std::uint64_t>(N, context.image_bytes - offset);
  }
};

static_assert(chunking_strategy<fixed_bytes<8>>);

}  // namespace tensorpull
