// A chunk ends where a tensor ends, or at Max: what NVIDIA FLARE's users know, with a bound. The header is a chunk of its own.
#pragma once

#include <tensorpull/chunking/concept.hpp>

#include <algorithm>

namespace tensorpull {

/// Without a schema on the recipient's side (a file, a digest) it cuts as fixed_bytes<Max> does.
template <std::uint64_t Max>
struct per_tensor {
  static_assert(Max > 0, "tensorpull: per_tensor<Max> needs a positive maximum");
  static_assert(Max <= max_payload_bytes, "tensorpull: per_tensor<Max> allows at most 536870904 bytes, the most that one Cap'n Proto frame carries");

  using is_chunking_policy = void;
  static constexpr std::uint64_t max_chunk_bytes = Max;
  static constexpr bool needs_layout = true;

  static constexpr std::uint64_t next(std::uint64_t offset, const chunk_context& context) noexcept {
    std::uint64_t end = context.image_bytes;
    if (offset < context.data_start) {
      end = context.data_start;
    } else if (context.schema != nullptr) {
      const std::uint64_t at = offset - context.data_start;
      const auto* const first = context.schema->tensors;
      const auto* const past = std::upper_bound(first, first + context.schema->tensor_count, at,
                                                [](std::uint64_t value, const tensor_entry& t) { return value < t.end; });
      if (past != first + context.schema->tensor_count) end = std::min(end, context.data_start + past->end);
    }
    return std::min<std::uint64_t>(Max, end - offset);
  }
};

static_assert(chunking_strategy<per_tensor<1>>);

}  // namespace tensorpull
