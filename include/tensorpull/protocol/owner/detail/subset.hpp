// Tensors of an image that a recipient asks for by name: which they are, and where.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/framing/frame.hpp>
#include <tensorpull/image/schema.hpp>

#include <cstdint>
#include <span>

namespace tensorpull::detail {

/// Named tensors of an image: which ones, and their size.
struct subset_choice {
  std::uint64_t fingerprint = 0;  ///< of a schema of these tensors alone
  std::uint64_t bytes = 0;
};

/// A hash of names in their order. The same names in another order are another request, whose digest is computed anew.
inline std::uint64_t hash_of(const element_list<std::string_view>& names) noexcept {
  xxh3_64 h;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const char length[2] = {static_cast<char>(names[i].size() & 0xff),
                            static_cast<char>(names[i].size() >> 8 & 0xff)};  // a frame is shorter than 64 KiB
    h.update(length, 2);
    h.update(names[i]);
  }
  return h.digest();
}

/// Finds the named tensors and sorts their ranges in image order into `ranges`, which has room for them. Cost: a search
/// for each name. bad_request with `at` = the index of the first name that is not there, or that is there twice.
inline result<subset_choice> find_subset(const image_schema& schema, const element_list<std::string_view>& names,
                                         std::span<byte_range> ranges) noexcept {
  for (std::size_t n = 0; n < names.size(); ++n) {
    const std::uint64_t found = find_tensor(schema, names[n]);
    std::size_t at = n;  // indices for now, because empty tensors share an offset
    for (; at > 0 && ranges[at - 1].begin > found; --at) ranges[at] = ranges[at - 1];
    if (found == schema.tensor_count || (at > 0 && ranges[at - 1].begin == found))
      return failure(errc::bad_request, n, names[n]);
    ranges[at].begin = found;
  }
  subset_choice chosen;
  xxh3_64 schema_hash;
  for (std::size_t n = 0; n < names.size(); ++n) {
    const tensor_entry& t = schema.tensors[static_cast<std::size_t>(ranges[n].begin)];
    ranges[n] = {schema.header_bytes + t.begin, schema.header_bytes + t.end};
    chosen.bytes += t.size_bytes();
    hash_entry(schema_hash, t);
  }
  chosen.fingerprint = schema_hash.digest();
  return chosen;
}

}  // namespace tensorpull::detail
