// The chunking policies. When to use which: fixed_bytes<N> unless something speaks against it; bytes_up_to<Max> if the length is only known
// when the program runs; per_tensor<Max> if no chunk may span two tensors; whole for models that are small, and to compare with.
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

/// Every chunk has `chunk_bytes` bytes but the last; values outside [1, Max] are brought inside.
template <std::uint64_t Max>
struct bytes_up_to {
  static_assert(Max > 0, "tensorpull: bytes_up_to<Max> needs a positive maximum");
  static_assert(Max <= max_payload_bytes, "tensorpull: bytes_up_to<Max> allows at most 536870904 bytes, the most that one Cap'n Proto frame carries");

  using is_chunking_policy = void;
  static constexpr std::uint64_t max_chunk_bytes = Max;
  static constexpr bool needs_layout = false;

  /// what the program chose; by default 2 MiB, or Max if that is less
  std::uint64_t chunk_bytes = std::min<std::uint64_t>(Max, default_chunk_bytes);

  constexpr std::uint64_t next(std::uint64_t offset, const chunk_context& context) const noexcept {
    return std::min(std::min(std::max<std::uint64_t>(chunk_bytes, 1), Max), context.image_bytes - offset);
  }
};

static_assert(chunking_strategy<bytes_up_to<1>>);

/// A chunk ends where the header or a tensor ends, and has at most Max bytes. A recipient without a schema (a file, a digest) does not
/// know where tensors end: behind the header it cuts every Max bytes.
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
      const std::size_t i = tensor_at(*context.schema, offset - context.data_start);
      if (i != context.schema->tensor_count) end = std::min(end, context.data_start + context.schema->tensors[i].end);
    }
    return std::min<std::uint64_t>(Max, end - offset);
  }
};

static_assert(chunking_strategy<per_tensor<1>>);

/// One chunk, whatever the image's size; the transfer fails with does_not_fit if that is above 536,870,904 bytes. It also fails above the owner's cap
/// (default_limits::chunk_cap_bytes) if the owner has made that lower than usual, or if each chunk has a digest.
struct whole {
  using is_chunking_policy = void;
  static constexpr std::uint64_t max_chunk_bytes = 0;
  static constexpr bool needs_layout = true;

  static constexpr std::uint64_t next(std::uint64_t offset, const chunk_context& context) noexcept { return context.image_bytes - offset; }
};

static_assert(chunking_strategy<whole>);

}  // namespace tensorpull
