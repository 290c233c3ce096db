// The chunking policies. When to use which: fixed_bytes<N> unless something speaks against it; bytes_up_to<Max> if the
// length is only known when the program runs; adaptive_bytes<Min, Max> if it should follow from how fast this recipient
// is; fit_datagram over messages; per_tensor<Max> if no chunk may span two tensors; whole for models that are small,
// and to compare with.
#pragma once

#include <tensorpull/chunking/concept.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/chrono.hpp>

namespace tensorpull {

/// Every chunk has N bytes but the last. N: a multiple of 8 (frames are padded to words), at most 536,870,904.
template <std::uint64_t N>
struct fixed_bytes {
  static_assert(N > 0, "tensorpull: fixed_bytes<N> needs a positive N; use `whole` to send the image in one frame");
  static_assert(N % 8 == 0,
                "tensorpull: fixed_bytes<N> needs a multiple of 8, since frames are padded to words of 8 bytes");
  static_assert(
      N <= max_payload_bytes,
      "tensorpull: fixed_bytes<N> allows at most 536870904 bytes, the most that one Cap'n Proto frame carries");

  using is_chunking_policy = void;
  static constexpr std::uint64_t max_chunk_bytes = N;
  static constexpr bool needs_layout = false;

  static constexpr std::uint64_t next(std::uint64_t offset, const chunk_context& context) noexcept {
    return std::min<std::uint64_t>(N, context.image_bytes - offset);
  }
};


/// Every chunk has `chunk_bytes` bytes but the last; values outside [1, Max] are brought inside.
template <std::uint64_t Max>
struct bytes_up_to {
  static_assert(Max > 0, "tensorpull: bytes_up_to<Max> needs a positive maximum");
  static_assert(
      Max <= max_payload_bytes,
      "tensorpull: bytes_up_to<Max> allows at most 536870904 bytes, the most that one Cap'n Proto frame carries");

  using is_chunking_policy = void;
  static constexpr std::uint64_t max_chunk_bytes = Max;
  static constexpr bool needs_layout = false;

  /// what the program chose; by default 2 MiB, or Max if that is less
  std::uint64_t chunk_bytes = std::min<std::uint64_t>(Max, default_chunk_bytes);

  constexpr std::uint64_t next(std::uint64_t offset, const chunk_context& context) const noexcept {
    return std::min(std::min(std::max<std::uint64_t>(chunk_bytes, 1), Max), context.image_bytes - offset);
  }
};


/// Chunks that take this recipient about 100 ms: a length between Min and Max that follows from what the transfer has
/// measured. It begins with Min. Between the two, lengths are Min, twice Min, four times Min, and so on. State: 40
/// bytes of the transfer.
template <std::uint64_t Min, std::uint64_t Max>
struct adaptive_bytes {
  static_assert(Min > 0 && Min <= Max, "tensorpull: adaptive_bytes<Min, Max> needs a positive Min that is at most Max");
  static_assert(
      Min % 8 == 0 && Max % 8 == 0,
      "tensorpull: adaptive_bytes<Min, Max> needs multiples of 8, since frames are padded to words of 8 bytes");
  static_assert(
      Max <= max_payload_bytes,
      "tensorpull: adaptive_bytes<Min, Max> allows at most 536870904 bytes, the most that one Cap'n Proto frame carries");

  using is_chunking_policy = void;
  static constexpr std::uint64_t max_chunk_bytes = Max;
  static constexpr bool needs_layout = false;
  /// The time that one chunk should take. A rate is measured over at least a quarter of it.
  static constexpr std::chrono::milliseconds target{100};

  /// the present length
  std::uint64_t chunk_bytes = Min;

  constexpr std::uint64_t next(std::uint64_t offset, const chunk_context& context) const noexcept {
    return std::min(offset < since_ ? before_ : chunk_bytes, context.image_bytes - offset);
  }

  constexpr void measured(const chunk_progress& p) noexcept {
    nanoseconds_ += static_cast<std::uint64_t>(p.time.count());
    if (p.landed < landed_) landed_ = p.landed;  // a damaged chunk does not count
    constexpr auto wanted = static_cast<std::uint64_t>(target.count()) * 1'000'000;
    if (nanoseconds_ < wanted / 4 || p.landed == landed_) return;
    constexpr std::uint64_t most = std::uint64_t{1} << 37;  // times the target's 27 bits: no overflow
    const std::uint64_t fitting = std::min(p.landed - landed_, most) * wanted / nanoseconds_;
    nanoseconds_ = 0;
    landed_ = p.landed;
    std::uint64_t length = Min;
    while (length <= fitting / 2 && length <= Max / 2) length *= 2;
    if (fitting >= Max) length = Max;
    // a chunk that was asked for before the last change may still be on its way: one change at a time
    if (length == chunk_bytes || (p.received < since_ && p.received != p.asked)) return;
    before_ = chunk_bytes;
    chunk_bytes = length;
    since_ = p.asked;
  }

 private:
  // chunks that begin before `since_` keep the length that they had
  std::uint64_t since_ = 0, before_ = Min, landed_ = 0, nanoseconds_ = 0;
};

/// The largest chunk that one message of the pipeline's transport carries, a multiple of 8; at most 2 MiB, which is the
/// length over a stream. In a pipeline it becomes a fixed_bytes.
struct fit_datagram : fixed_bytes<default_chunk_bytes> {
  /// The policy in a pipeline whose transport carries `MaxPayload` bytes in a frame.
  template <std::uint64_t MaxPayload>
  using within = fixed_bytes<std::min(MaxPayload / 8 * 8, default_chunk_bytes)>;
};

/// A chunk ends where the header or a tensor ends, and has at most Max bytes. A recipient without a schema (a file, a
/// digest) does not know where tensors end: behind the header it cuts every Max bytes.
template <std::uint64_t Max>
struct per_tensor {
  static_assert(Max > 0, "tensorpull: per_tensor<Max> needs a positive maximum");
  static_assert(
      Max <= max_payload_bytes,
      "tensorpull: per_tensor<Max> allows at most 536870904 bytes, the most that one Cap'n Proto frame carries");

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


/// One chunk, whatever the image's size; the transfer fails with does_not_fit if that is above 536,870,904 bytes. It
/// also fails above the owner's cap (default_limits::chunk_cap_bytes) if the owner has made that lower than usual, or
/// if each chunk has a digest.
struct whole {
  using is_chunking_policy = void;
  static constexpr std::uint64_t max_chunk_bytes = 0;
  static constexpr bool needs_layout = true;

  static constexpr std::uint64_t next(std::uint64_t offset, const chunk_context& context) noexcept {
    return context.image_bytes - offset;
  }
};

}  // namespace tensorpull
