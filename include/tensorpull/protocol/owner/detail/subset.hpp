// Tensors of an image, or slices of them, that a recipient asks for by name: which they are, and where.
#pragma once

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/core/detail/siphash.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/framing/frame.hpp>
#include <tensorpull/image/schema.hpp>
#include <tensorpull/std/optional.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull::detail {

/// Named tensors of an image: which ones, and their size.
struct subset_choice {
  std::uint64_t fingerprint = 0;  ///< of a schema of these tensors alone
  std::uint64_t bytes = 0;
};

/// A hash of names in their order, and of their slices. The same names in another order are another request, whose
/// digest is computed anew. Without the key nobody can find two requests with one hash.
inline std::uint64_t hash_of(const siphash_key& key, const element_list<std::string_view>& names,
                             const element_list<index_range>& slices) noexcept {
  std::uint64_t h = names.size();
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string_view name = names[i];
    const index_range part = i < slices.size() ? slices[i] : index_range{};
    std::byte one[32];
    store_le64(one, h);
    store_le64(one + 8, siphash(key, std::as_bytes(std::span<const char>(name.data(), name.size()))));
    store_le64(one + 16, part.begin);
    store_le64(one + 24, part.end);
    h = siphash(key, std::span<const std::byte>(one));
  }
  return h;
}

/// The bytes of a slice of a tensor, which has to have indices, within the tensor's. Nothing: it is empty or reversed,
/// the tensor has no such indices, or packed elements of it share a byte with others.
inline optional<byte_range> bytes_of_slice(const tensor_entry& t, const index_range& r) noexcept {
  if (t.rank == 0 || r.begin >= r.end || r.end > t.shape[0]) return {};
  if (bits(t.type) % 8 == 0) {  // as long as a tensor of strides may say: eight times that is no number
    const std::uint64_t each = t.size_bytes() / t.shape[0];
    return byte_range{each * r.begin, each * r.end};
  }
  const std::uint64_t each = 8 * t.size_bytes() / t.shape[0];
  if (each * r.begin % 8 != 0 || each * r.end % 8 != 0) return {};
  return byte_range{each * r.begin / 8, each * r.end / 8};
}

/// Finds the named tensors and sorts their ranges in image order into `ranges`, which has room for them. `slices`:
/// which part of each; none: all of all. Cost: a search for each name. Errors, with `at` = the index of the first name:
/// bad_request: it is not there, or is there twice; out_of_range: its tensor has no such slice.
inline result<subset_choice> find_subset(const image_schema& schema, const element_list<std::string_view>& names,
                                         const element_list<index_range>& slices,
                                         std::span<byte_range> ranges) noexcept {
  for (std::size_t n = 0; n < names.size(); ++n) {
    const std::uint64_t found = find_tensor(schema, names[n]);
    std::size_t at = n;  // indices for now, because empty tensors share an offset
    for (; at > 0 && ranges[at - 1].begin > found; --at) ranges[at] = ranges[at - 1];
    if (found == schema.tensor_count || (at > 0 && ranges[at - 1].begin == found))
      return failure(errc::bad_request, n, names[n]);
    ranges[at] = {found, n};
  }
  subset_choice chosen;
  xxh3_64 schema_hash;
  for (std::size_t n = 0; n < names.size(); ++n) {
    const tensor_entry& t = schema.tensors[static_cast<std::size_t>(ranges[n].begin)];
    const auto asked = static_cast<std::size_t>(ranges[n].end);
    const index_range part = asked < slices.size() ? slices[asked] : index_range{};
    const bool all = part.begin == 0 && part.end == 0;
    const auto bytes = all ? byte_range{0, t.size_bytes()} : bytes_of_slice(t, part);
    if (!bytes) return failure(errc::out_of_range, asked, names[asked]);
    ranges[n] = {schema.header_bytes + t.begin + bytes->begin, schema.header_bytes + t.begin + bytes->end};
    chosen.bytes += bytes->end - bytes->begin;
    if (all) hash_entry(schema_hash, t);
    else hash_entry(schema_hash, t, part.end - part.begin);
  }
  chosen.fingerprint = schema_hash.digest();
  return chosen;
}

}  // namespace tensorpull::detail
