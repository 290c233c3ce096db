// Tensors of an image, or slices of them, that a recipient asks for by name: which they are, and where.
#pragma once

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/core/detail/siphash.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/framing/frame.hpp>
#include <tensorpull/image/byte_runs.hpp>
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
  std::uint64_t runs = 0;  ///< into which slices of later dimensions fall
};

/// A hash of names in their order, and of their slices. The same names in another order are another request, whose
/// digest is computed anew. Without the key nobody can find two requests with one hash.
inline std::uint64_t hash_of(const siphash_key& key, const element_list<std::string_view>& names,
                             const element_list<index_range>& slices) noexcept {
  std::uint64_t h = names.size();
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string_view name = names[i];
    const index_range part = i < slices.size() ? slices[i] : index_range{};
    std::byte one[40];
    store_le64(one, h);
    store_le64(one + 8, siphash(key, std::as_bytes(std::span<const char>(name.data(), name.size()))));
    store_le64(one + 16, part.begin);
    store_le64(one + 24, part.end);
    store_le64(one + 32, part.dimension);
    h = siphash(key, std::span<const std::byte>(one));
  }
  return h;
}

/// The bytes of a slice of a tensor, which has to have indices, within the tensor's. Nothing: it is empty or reversed,
/// the tensor has no such dimension or indices, packed elements of it share a byte with others, or its runs are 4 GiB
/// apart.
inline optional<strided_range<>> bytes_of_slice(const tensor_entry& t, const index_range& r) noexcept {
  if (r.dimension >= t.rank || r.begin >= r.end || r.end > t.shape[r.dimension]) return {};
  if (t.size_bytes() == 0) return strided_range<>{};
  std::uint64_t runs = 1;
  for (std::size_t i = 0; i < r.dimension; ++i) runs *= t.shape[i];
  // in bits only for packed elements: eight times what a tensor of strides may have is no number
  const std::uint64_t unit = bits(t.type) % 8 == 0 ? 1 : 8;
  const std::uint64_t each = unit * t.size_bytes() / runs / t.shape[r.dimension];
  const std::uint64_t first = each * r.begin, length = each * (r.end - r.begin), stride = each * t.shape[r.dimension];
  if (first % unit != 0 || length % unit != 0 || stride % unit != 0) return {};
  if (runs == 1 || length == stride) return strided_range<>{first / unit, (first + runs * length) / unit, {}};
  constexpr std::uint64_t most = ~std::uint32_t{0};
  if (stride / unit > most) return {};
  const byte_runs apart{static_cast<std::uint32_t>(length / unit), static_cast<std::uint32_t>(stride / unit)};
  return strided_range<>{first / unit, (first + (runs - 1) * stride + length) / unit, apart};
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
    const auto bytes = part.all() ? strided_range<>{0, t.size_bytes(), {}} : bytes_of_slice(t, part);
    if (!bytes) return failure(errc::out_of_range, asked, names[asked]);
    ranges[n] = {schema.header_bytes + t.begin + bytes->begin, schema.header_bytes + t.begin + bytes->end};
    chosen.bytes += bytes->size();
    if (bytes->runs.apart()) chosen.runs += bytes->size() / bytes->runs.length;
    if (part.all()) hash_entry(schema_hash, t);
    else hash_entry(schema_hash, t, part.dimension, part.end - part.begin);
  }
  chosen.fingerprint = schema_hash.digest();
  return chosen;
}

}  // namespace tensorpull::detail
