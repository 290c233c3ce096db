// Any byte range of an image's data as a list of spans to receive into. Decides the only addresses that a transfer ever writes to.
#pragma once

#include <tensorpull/image/gather.hpp>
#include <tensorpull/image/view.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull {

/// What a scatter gave: the first `pieces` spans take `bytes` bytes of the image.
struct scattered {
  std::size_t pieces = 0;
  std::uint64_t bytes = 0;
};

/// Fills `out` with spans of the destination's memory that take the image's bytes [offset, offset + bytes), bytes <= length.
/// Stops early when `out` is used up. Nothing is written or allocated. O(log tensors) and the pieces.
/// Requires offset >= header_bytes (a header is compared, never landed) and that [offset, offset + length) lies within the image.
inline scattered scatter(const destination_view& destination, std::uint64_t offset, std::uint64_t length,
                         std::span<std::span<std::byte>> out) noexcept {
  const image_schema& schema = *destination.schema;
  detail::piece_list<std::byte> pieces(out);
  std::uint64_t at = offset - schema.header_bytes;
  for (std::size_t i = tensor_at(schema, at); i < schema.tensor_count && pieces.bytes() < length; ++i) {
    const tensor_entry& entry = schema.tensors[i];
    if (entry.begin == entry.end) continue;
    const std::size_t n = detail::smaller(length - pieces.bytes(), entry.end - at);
    if (!pieces.add(destination.address(i) + static_cast<std::size_t>(at - entry.begin), n)) break;
    at += n;
  }
  return {pieces.count(), pieces.bytes()};
}

}  // namespace tensorpull
