// A recipient's request.
#pragma once

#include <tensorpull/core/ids.hpp>
#include <tensorpull/framing/frame.hpp>
#include <tensorpull/image/schema.hpp>
#include <tensorpull/integrity/concept.hpp>
#include <tensorpull/std/algorithm.hpp>

#include <cstdint>
#include <span>
#include <string_view>

namespace tensorpull {

/// A slice of a tensor: of one dimension the indices [begin, end). Of the first one its bytes lie together, and the
/// owner sends them from where they are. Of a later one they are runs, one for each index of the dimensions before, and
/// the owner packs them. A chunk has whole runs or lies in one: so one that is shorter than two carries one at most,
/// and so does each with a digest of its own.
struct tensor_slice {
  std::string_view name;  ///< of the tensor
  /// the first index
  std::uint64_t begin = 0;
  /// one past the last
  std::uint64_t end = 0;
  /// which dimension; 0: the outermost
  std::uint16_t dimension = 0;
};

/// A recipient's request and its expectations.
struct pull_request {
  ref_id ref{};  ///< what to pull
  std::uint64_t version = 0;  ///< 0: whatever is published now
  std::uint64_t fingerprint = 0;  ///< 0: any schema
  /// our own schema, to cut chunks by tensors and to name the first difference; borrowed
  const image_schema* schema = nullptr;
  /// names of the tensors wanted, which are those of `schema` in any order; borrowed. Without a schema there may be
  /// only as many as one request carries.
  std::span<const std::string_view> subset{};
  bool part = false;  ///< all tensors of `schema` are wanted, and are not all that is published; as if `subset` named
                      ///< them, whatever it names
  /// of these tensors of `schema`, which are as long, slices are wanted; as `part`; borrowed. In ascending order of
  /// their names each is found in a binary search, in any other in a search through all
  std::span<const tensor_slice> slices{};
  /// requests in flight at most; the owner may allow fewer. 0: limits::pipelined_requests; over datagrams as many as
  /// limits::window and the path allow, with several owners 4.
  std::uint32_t window = 0;
  digest_kind chunk_digest = digest_kind::none;  ///< the digest that every chunk shall carry
  bool slices_ascend = false;  ///< whether they have that order: the recipient looks, whatever is set
  /// an image without a digest is accepted, too, if the digest of the whole would be compared
  bool unverified = false;
  recipient_id recipient{};  ///< the recipient's ID, the same over reconnections; none: the connection stands for it

  /// Whether tensors are asked for by name. Otherwise it is the whole image.
  constexpr bool by_name() const noexcept { return part || !subset.empty() || !slices.empty(); }
  /// Of the tensor of that name all, or the slice that is wanted.
  index_range slice_of(std::string_view name) const noexcept {
    std::size_t first = 0, n = slices.size();
    while (slices_ascend && n > 0) {
      const std::size_t half = n / 2;
      if (slices[first + half].name < name) {
        first += half + 1;
        n -= half + 1;
      } else {
        n = half;
      }
    }
    const std::size_t last = slices_ascend ? std::min(first + 1, slices.size()) : n;
    for (; first < last; ++first)
      if (slices[first].name == name) return {slices[first].begin, slices[first].end, slices[first].dimension};
    return {};
  }
  /// Whether the digest that will be compared is the owner's word, and not the version that was given (receipt).
  constexpr bool believes() const noexcept { return version == 0 || by_name(); }
};

}  // namespace tensorpull
