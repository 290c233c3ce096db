// The integrity policies, from nothing to everything, over any hash. Those of hosts, with vectors, are in
// integrity/xxhash/policies.hpp; a microcontroller uses core/xxh3.hpp.
#pragma once

#include <tensorpull/integrity/concept.hpp>

namespace tensorpull {

namespace detail {
struct no_hash {
  static constexpr digest_kind kind = digest_kind::none;
  void update(std::span<const std::byte>) noexcept {}
  std::uint64_t digest() const noexcept { return 0; }
};
}  // namespace detail

/// No digest at all, and no cost; the outcome is `completed_unverified`.
struct unverified {
  using is_integrity_policy = void;
  using hash_type = detail::no_hash;
  static constexpr bool whole = false;
  static constexpr bool per_chunk = false;
};

/// The default: one digest of the whole image, computed over pieces that are still in the cache.
template <hash Hash>
struct basic_image_digest {
  using is_integrity_policy = void;
  using hash_type = Hash;
  static constexpr bool whole = true;
  static constexpr bool per_chunk = false;
};

/// A digest with each chunk, none of the whole. The outcome is `completed_unverified`: each chunk was checked, but the
/// image as a whole was not compared with what was published.
template <hash Hash>
struct basic_chunk_digest {
  using is_integrity_policy = void;
  using hash_type = Hash;
  static constexpr bool whole = false;
  static constexpr bool per_chunk = true;
};

/// Both: what a consumer that cannot undo needs to end as `completed`.
template <hash Hash>
struct basic_chunk_and_image_digest {
  using is_integrity_policy = void;
  using hash_type = Hash;
  static constexpr bool whole = true;
  static constexpr bool per_chunk = true;
};

}  // namespace tensorpull
