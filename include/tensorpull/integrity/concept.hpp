// The integrity slot: which digests a recipient asks for and checks. It decides what "completed" may claim.
#pragma once

#include <tensorpull/core/digest_kind.hpp>
#include <tensorpull/core/requirements.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull {

/// A streaming hash: update(bytes) in order, digest() at any time; a copy goes on from where the original was. No heap.
/// `static constexpr digest_kind kind` is the kind of its values. A hash without one would be taken for another.
template <class H>
concept hash = std::default_initializable<H> && requires(H h, const H& c, std::span<const std::byte> bytes) {
  h.update(bytes);
  h = c;
  { c.digest() } -> std::same_as<std::uint64_t>;
  requires std::same_as<decltype(H::kind), const digest_kind>;
};

/// The name of a hash on the wire.
template <hash H>
inline constexpr digest_kind digest_kind_of = H::kind;

namespace detail {
template <class I>
concept names_chunk_hash = requires { typename I::chunk_hash_type; };
template <class I>
struct chunk_hash {
  using type = typename I::hash_type;
};
template <names_chunk_hash I>
struct chunk_hash<I> {
  using type = typename I::chunk_hash_type;
};

/// The hashes that a version may have: XXH3-64, or none at all if the whole is not checked.
constexpr bool is_version_digest(digest_kind kind, bool whole) noexcept {
  return kind == digest_kind::xxh3_64 || (!whole && kind == digest_kind::none);
}

/// Whether the hash of a chunk is one, and is needed only if each chunk has a digest.
template <class I>
concept hashes_chunks = requires { typename I::hash_type; } &&
                        (!names_chunk_hash<I> || hash<typename I::chunk_hash_type>) &&
                        (!I::per_chunk || digest_kind_of<typename chunk_hash<I>::type> != digest_kind::none);

/// The requirements of an integrity policy; their meaning stands at the concept.
template <class I, bool Silent = true, class Instead = nothing_instead>
struct integrity_requirements : Instead {
  static constexpr bool met_1 = requires { typename I::is_integrity_policy; };

  static constexpr bool met_2 = met_1 && requires { requires std::same_as<decltype(I::whole), const bool>; };
  static_assert(
      Silent || met_2 == met_1,
      "tensorpull: an integrity policy says whether the whole image is checked (requirement 2): static constexpr bool whole");

  static constexpr bool met_3 = met_2 && requires { requires std::same_as<decltype(I::per_chunk), const bool>; };
  static_assert(
      Silent || met_3 == met_2,
      "tensorpull: an integrity policy says whether each chunk is checked (requirement 3): static constexpr bool per_chunk");

  static constexpr bool met_4 = met_3 && requires {
    requires hash<typename I::hash_type>;
    requires is_version_digest(digest_kind_of<typename I::hash_type>, I::whole);
  };
  static_assert(
      Silent || met_4 == met_3,
      "tensorpull: an integrity policy has the hash of a version (requirement 4): using hash_type = xxhash_digest; "
      "another hash of XXH3-64 will do, and of none if the whole is not checked");

  static constexpr bool met_5 = met_4 && hashes_chunks<I>;
  static_assert(
      Silent || met_5 == met_4,
      "tensorpull: an integrity policy's chunk_hash_type is a hash (requirement 5): update(bytes), std::uint64_t digest() const, and "
      "`static constexpr digest_kind kind`: what it computes; and the hash of a chunk is not of kind none if per_chunk is true");
};
}  // namespace detail

/// An integrity policy I:
///  1. `I::is_integrity_policy` names a type (it marks the slot);
///  2. `I::whole`: the digest of the whole image is computed while it lands and compared with the published one;
///     without it a transfer ends as `completed_unverified`;
///  3. `I::per_chunk`: every chunk carries a digest of its own that is checked before the consumer hears that the chunk
///     is there; a consumer that cannot undo (weighted_average) needs it;
///  4. `I::hash_type` is the hash of the whole: XXH3-64, since that is what a version is, or none at all;
///  5. `I::chunk_hash_type`, if there is one, is the hash of a chunk; otherwise `hash_type` does both. If `per_chunk`
///     is true, the kind of this hash is not `none`.
template <class I>
concept integrity_policy = detail::integrity_requirements<I>::met_5;

/// The hash of one chunk.
template <integrity_policy I>
using chunk_hash_of = typename detail::chunk_hash<I>::type;
/// The name on the wire of the digest with each chunk; `none` if chunks carry none.
template <integrity_policy I>
inline constexpr digest_kind chunk_digest_kind = I::per_chunk ? digest_kind_of<chunk_hash_of<I>> : digest_kind::none;

}  // namespace tensorpull
