// The digest of a range of an image, and the version that a verifiable image has.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/image/gather_scatter.hpp>
#include <tensorpull/integrity/concept.hpp>
#include <tensorpull/std/stop_token.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull {

/// Feeds the image's bytes [offset, offset + length) to a hash. Cost: one pass over them; no heap. Bytes that memory
/// does not hold as the image has them (those of a file, for example) go through `slice`, which is not empty. Error: io
/// if a source_reader failed.
template <hash Hash>
result<void> hash_range(Hash& into, const source_view& image, std::uint64_t offset, std::uint64_t length,
                        std::span<std::byte> slice) noexcept {
  std::span<const std::byte> pieces[16];
  while (length > 0) {
    const gathered g = gather(image, offset, length, pieces, slice);
    for (std::size_t i = 0; i < g.pieces; ++i) into.update(pieces[i]);
    if (g.failed) return failure(errc::io, offset + g.bytes);
    offset += g.bytes;
    length -= g.bytes;
  }
  return {};
}

/// Feeds the bytes [at, at + length) of runs, of which the first begins at `offset`, to a hash. Otherwise the same.
template <hash Hash>
result<void> hash_runs(Hash& into, const source_view& image, std::uint64_t offset, const byte_runs& runs,
                       std::uint64_t at, std::uint64_t length, std::span<std::byte> slice) noexcept {
  while (length > 0) {
    std::span<const std::byte> piece[1];
    const gathered g = gather(image, offset, runs, at, length, piece, slice);
    if (g.pieces > 0) into.update(piece[0]);
    at += g.bytes;
    length -= g.bytes;
    if (g.failed) return failure(errc::io, offset + runs.distance(at));
  }
  return {};
}

/// hash_range() with a slice of SliceBytes on the stack.
template <hash Hash, std::size_t SliceBytes = 4096>
result<void> hash_range(Hash& into, const source_view& image, std::uint64_t offset, std::uint64_t length) noexcept {
  std::byte slice[SliceBytes];
  return hash_range(into, image, offset, length, slice);
}

/// The same, and `stop` is asked before every 16 MiB: cancelled, with the position.
template <hash Hash, std::size_t SliceBytes = 4096>
result<void> hash_range(Hash& into, const source_view& image, std::uint64_t offset, std::uint64_t length,
                        const stop_token& stop) noexcept {
  constexpr std::uint64_t between = std::uint64_t{16} << 20;
  const std::uint64_t end = offset + length;
  for (std::uint64_t at = offset, n = 0; at < end; at += n) {
    if (stop.stop_requested()) return failure(errc::cancelled, at);
    n = end - at < between ? end - at : between;
    if (const auto read = hash_range<Hash, SliceBytes>(into, image, at, n); !read) return read;
  }
  return {};
}

/// The digest of these bytes alone. Cost and errors as hash_range.
template <hash Hash, std::size_t SliceBytes = 4096>
result<std::uint64_t> range_digest(const source_view& image, std::uint64_t offset, std::uint64_t length) noexcept {
  Hash h;
  if (const auto read = hash_range<Hash, SliceBytes>(h, image, offset, length); !read) return failure(read.error());
  return h.digest();
}

/// The version of a verifiable image: the digest of all its bytes, with XXH3-64 as Hash; 0 is mapped to 1, since 0 on
/// the wire means "any". Cost and errors as hash_range.
template <hash Hash, std::size_t SliceBytes = 4096>
result<std::uint64_t> image_version(const source_view& image, const stop_token& stop = {}) noexcept {
  Hash h;
  if (const auto read = hash_range<Hash, SliceBytes>(h, image, 0, image.schema->image_bytes, stop); !read)
    return failure(read.error());
  const std::uint64_t d = h.digest();
  return d == 0 ? 1 : d;
}

}  // namespace tensorpull
