// A small image inside a message: copied out of its tensors, and back into them after everything about it was checked.
#pragma once

#include <tensorpull/image/gather_scatter.hpp>
#include <tensorpull/integrity/xxhash/xxhash_digest.hpp>

#include <array>
#include <cstring>

namespace tensorpull::detail {

inline std::uint64_t digest_of(std::span<const std::byte> bytes) noexcept {
  xxhash_digest h;
  h.update(bytes);
  return h.digest();
}

/// Whether `image` is an image of exactly this schema: its length, and its header byte for byte. The tensors may have
/// any values.
inline bool is_image_of(std::span<const std::byte> image, const image_schema& schema) noexcept {
  if (image.size() != schema.image_bytes) return false;
  std::array<std::byte, 256> text;
  for (std::uint64_t at = 0; at < schema.header_bytes;) {
    const std::size_t n = write_header(schema, at, text);
    if (std::memcmp(text.data(), image.data() + at, n) != 0) return false;
    at += n;
  }
  return true;
}

/// Copies the tensors of an image that is_image_of() accepted for the destination's schema.
inline void read_image(std::span<const std::byte> image, const destination_view& to) noexcept {
  std::array<std::span<std::byte>, 16> pieces;
  for (std::uint64_t at = to.schema->header_bytes; at < to.schema->image_bytes;) {
    const scattered s = scatter(to, at, to.schema->image_bytes - at, pieces);
    for (std::size_t i = 0; i < s.pieces; ++i) {
      std::memcpy(pieces[i].data(), image.data() + at, pieces[i].size());
      at += pieces[i].size();
    }
  }
}

}  // namespace tensorpull::detail
