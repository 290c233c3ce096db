// The integrity slot: which digests a recipient asks for and checks. It decides what "completed" may claim.
#pragma once

#include <tensorpull/core/digest_kind.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull {

/// A streaming hash: update(bytes) in order, digest() at any time; a copy goes on from where the original was. No heap.
/// `static constexpr digest_kind kind` says whose values it computes. A hash that did not say would be taken for
/// another one.
template <class H>
concept hash = std::default_initializable<H> && requires(H h, const H& c, std::span<const std::byte> bytes) {
  h.update(bytes);
  h = c;
  { c.digest() } -> std::same_as<std::uint64_t>;
  requires std::same_as<decltype(H::kind), const digest_kind>;
};

/// What a hash is called on the wire.
template <hash H>
inline constexpr digest_kind digest_kind_of = H::kind;

namespace detail {
template <class I>
struct chunk_hash {
  using type = typename I::hash_type;
};
template <class I>
  requires requires { typename I::chunk_hash_type; }
struct chunk_hash<I> {
  using type = typename I::chunk_hash_type;
};
}  // namespace detail

/// An integrity policy I:
///  1. `I::is_integrity_policy` names a type (it marks the slot);
///  2. `I::whole`: the digest of the whole image is computed while it lands and compared with the published one;
///  without it a
///     transfer ends as `completed_unverified`;
///  3. `I::per_chunk`: every chunk carries a digest of its own that is checked before the consumer hears that the chunk
///  is there;
///     a consumer that cannot undo (weighted_average) needs it;
///  4. `I::hash_type` is the hash of the whole: XXH3-64, since that is what a version is, or none at all;
///  5. `I::chunk_hash_type`, if there is one, is the hash of a chunk; otherwise `hash_type` does both. If `per_chunk`
///  is true, the kind of this hash is
///     not `none`.
template <class I>
concept integrity_policy =
    requires {
      typename I::is_integrity_policy;
      requires std::same_as<decltype(I::whole), const bool>;
      requires std::same_as<decltype(I::per_chunk), const bool>;
      requires hash<typename I::hash_type>;
      requires digest_kind_of<typename I::hash_type> == digest_kind::xxh3_64 ||
                       (!I::whole && digest_kind_of<typename I::hash_type> == digest_kind::none);
    } &&
    (!requires { typename I::chunk_hash_type; } || requires { requires hash<typename I::chunk_hash_type>; }) && (!I::per_chunk || digest_kind_of<typename detail::chunk_hash<I>::type> != digest_kind::none);

namespace detail {
/// The number of the first requirement that I misses, or 0: `pipeline` has a sentence for each.
template <class I>
constexpr int missed_of_integrity() noexcept {
  if constexpr (integrity_policy<I>) return 0;
  else if constexpr (!requires { typename I::is_integrity_policy; }) return 1;
  else if constexpr (!requires { requires std::same_as<decltype(I::whole), const bool>; }) return 2;
  else if constexpr (!requires { requires std::same_as<decltype(I::per_chunk), const bool>; }) return 3;
  else if constexpr (requires {
                       typename I::chunk_hash_type;
                       requires !hash<typename I::chunk_hash_type>;
                     })
    return 5;
  else if constexpr (!requires { requires hash<typename I::hash_type>; }) return 4;
  else {
    constexpr digest_kind kind = digest_kind_of<typename I::hash_type>;
    return kind == digest_kind::xxh3_64 || (!I::whole && kind == digest_kind::none) ? 5 : 4;
  }
}
}  // namespace detail

/// The hash of one chunk.
template <integrity_policy I>
using chunk_hash_of = typename detail::chunk_hash<I>::type;
/// What the digest with each chunk is called on the wire; `none` if chunks carry none.
template <integrity_policy I>
inline constexpr digest_kind chunk_digest_kind = I::per_chunk ? digest_kind_of<chunk_hash_of<I>> : digest_kind::none;

}  // namespace tensorpull
