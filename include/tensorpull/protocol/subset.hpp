// Ranges, digests and pages of a published image: what an owner computes for an answer.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/image/gather_scatter.hpp>
#include <tensorpull/image/schema.hpp>
#include <tensorpull/integrity/concept.hpp>
#include <tensorpull/framing/frame.hpp>

#include <span>

namespace tensorpull {

/// Feeds the image's bytes [offset, offset + length) to a hash; cost: one pass over them, no heap, a slice on the stack, through which
/// goes what is not in memory as the image has it: a file is read in such pieces. io: a source_reader failed.
template <hash Hash, std::size_t SliceBytes = 4096>
result<void> hash_range(Hash& into, const source_view& image, std::uint64_t offset, std::uint64_t length) noexcept {
  std::span<const std::byte> pieces[16];
  std::byte slice[SliceBytes];
  while (length > 0) {
    const gathered g = gather(image, offset, length, pieces, slice);
    for (std::size_t i = 0; i < g.pieces; ++i) into.update(pieces[i]);
    if (g.failed) return failure(errc::io, offset + g.bytes);
    offset += g.bytes;
    length -= g.bytes;
  }
  return {};
}

template <hash Hash, std::size_t SliceBytes = 4096>
result<std::uint64_t> range_digest(const source_view& image, std::uint64_t offset, std::uint64_t length) noexcept {
  Hash h;
  if (const auto read = hash_range<Hash, SliceBytes>(h, image, offset, length); !read) return failure(read.error());
  return h.digest();
}

/// The version of a verifiable image: XXH3-64 over all its bytes; 0 is mapped to 1, since 0 on the wire means "any".
template <hash Hash, std::size_t SliceBytes = 4096>
result<std::uint64_t> image_version(const source_view& image) noexcept {
  const auto d = range_digest<Hash, SliceBytes>(image, 0, image.schema->image_bytes);
  if (d && *d == 0) return 1;
  return d;
}

/// Named tensors of an image: which ones, and how much they are.
struct subset_choice {
  std::uint64_t fingerprint = 0;  ///< of a schema of these tensors alone
  std::uint64_t bytes = 0;
  friend constexpr bool operator==(const subset_choice&, const subset_choice&) = default;
};

namespace detail {
inline bool among(std::span<const std::string_view> names, std::string_view name) noexcept {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == name) return true;
  return false;
}
}  // namespace detail

/// Finds the named tensors and sorts their ranges in image order into `ranges`. Cost: tensors times names.
/// bad_request with `at` = the index of the first name that is not there, or that comes twice.
inline result<subset_choice> find_subset(const image_schema& schema, std::span<const std::string_view> names, std::span<byte_range> ranges) noexcept {
  std::size_t found = 0;
  subset_choice chosen;
  xxh3_64 schema_hash;
  for (std::size_t i = 0; i < schema.tensor_count && found < names.size(); ++i) {
    const tensor_entry& t = schema.tensors[i];
    if (!detail::among(names, t.name)) continue;
    ranges[found++] = {schema.header_bytes + t.begin, schema.header_bytes + t.end};
    chosen.bytes += t.size_bytes();
    hash_entry(schema_hash, t);
  }
  if (found < names.size())
    for (std::size_t n = 0; n < names.size(); ++n) {
      bool there = false;
      for (std::size_t i = 0; i < schema.tensor_count; ++i) there = there || schema.tensors[i].name == names[n];
      if (!there || detail::among(names.first(n), names[n])) return failure(errc::bad_request, n, names[n]);
    }
  chosen.fingerprint = schema_hash.digest();
  return chosen;
}

/// The digest over several ranges, one after the other.
template <hash Hash>
result<std::uint64_t> ranges_digest(const source_view& image, std::span<const byte_range> ranges) noexcept {
  Hash h;
  for (std::size_t i = 0; i < ranges.size(); ++i)
    if (const auto read = hash_range(h, image, ranges[i].begin, ranges[i].end - ranges[i].begin); !read) return failure(read.error());
  return h.digest();
}

/// As many rows from `first` on as fit one control frame and `rows`. An index past the end gives an empty page.
inline std::span<const schema_row> schema_rows(const image_schema& schema, std::uint64_t first, std::span<schema_row> rows, std::size_t frame_bytes) noexcept {
  std::size_t count = 0, used = 160;  // segment table, root, page and list pointers
  for (std::uint64_t i = first; i < schema.tensor_count && count < rows.size(); ++i) {
    const tensor_entry& t = schema.tensors[i];
    used += 24 + (t.name.size() / 8 + 1) * 8 + 16 + std::size_t{t.rank} * 8;
    if (used > frame_bytes) break;
    rows[count++] = {t.name, to_string(t.type), t.extents()};
  }
  return rows.first(count);
}

}  // namespace tensorpull
