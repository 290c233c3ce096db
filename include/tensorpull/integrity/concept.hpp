// The integrity slot: which digests a recipient asks for and checks. It decides what "completed" may claim.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull {

/// A streaming hash with XXH3-64's values: update(bytes) in order, digest() at any time. No heap.
template <class H>
concept hash = std::default_initializable<H> && requires(H h, const H& c, std::span<const std::byte> bytes) {
  h.update(bytes);
  { c.digest() } -> std::same_as<std::uint64_t>;
};

/// An integrity policy I:
///  1. `I::is_integrity_policy` names a type (it marks the slot);
///  2. `I::whole`: the digest of the whole image is computed while it lands and compared with the published one; without it a
///     transfer ends as `completed_unverified`;
///  3. `I::per_chunk`: every chunk carries a digest of its own that is checked before the consumer hears that the chunk is there;
///     a consumer that cannot undo (weighted_average) needs it;
///  4. `I::hash_type` is the hash that does both.
template <class I>
concept integrity_policy = requires {
  typename I::is_integrity_policy;
  requires std::same_as<decltype(I::whole), const bool>;
  requires std::same_as<decltype(I::per_chunk), const bool>;
  requires hash<typename I::hash_type>;
};

}  // namespace tensorpull
