// XXH3-64 from the xxHash library: the digest for hosts. Needs libxxhash.
// On a microcontroller use core/xxh3.hpp: the same values, no library.
// With TENSORPULL_OWN_XXH3, an option of CMake for a whole program, a host needs no library either: xxhash_digest is
// then vector_xxh3, with the same values.
#pragma once

#include <tensorpull/integrity/concept.hpp>

#if defined(TENSORPULL_OWN_XXH3)
#include <tensorpull/integrity/xxhash/vector_xxh3.hpp>

namespace tensorpull {
using xxhash_digest = vector_xxh3;
}
#else

// The state's size is not part of xxHash's stable interface; we keep it on the stack, so we ask for the definition.
#ifndef XXH_STATIC_LINKING_ONLY
#define XXH_STATIC_LINKING_ONLY
#endif
#include <xxhash.h>

namespace tensorpull {

namespace detail {
/// The library's update for the widest vectors that the processor has. Only some builds of the library for x86-64 have
/// it, so the reference is weak: it is null if the function is not there, or if nothing else takes it out of a static
/// library.
extern "C" [[gnu::weak]] XXH_errorcode XXH3_64bits_update_dispatch(XXH3_state_t* state, const void* bytes,
                                                                   std::size_t size);

inline void update_xxh3(XXH3_state_t& state, std::span<const std::byte> bytes) noexcept {
  if (&XXH3_64bits_update_dispatch != nullptr) XXH3_64bits_update_dispatch(&state, bytes.data(), bytes.size());
  else XXH3_64bits_update(&state, bytes.data(), bytes.size());
}
}  // namespace detail

/// Models hash. 576 bytes of state, aligned to 64.
class xxhash_digest {
 public:
  static constexpr digest_kind kind = digest_kind::xxh3_64;  ///< its name in frames

  xxhash_digest() noexcept { XXH3_64bits_reset(&state_); }
  void reset() noexcept { XXH3_64bits_reset(&state_); }
  void update(std::span<const std::byte> bytes) noexcept { detail::update_xxh3(state_, bytes); }
  std::uint64_t digest() const noexcept { return XXH3_64bits_digest(&state_); }

 private:
  XXH3_state_t state_;
};

static_assert(hash<xxhash_digest>);

}  // namespace tensorpull
#endif
