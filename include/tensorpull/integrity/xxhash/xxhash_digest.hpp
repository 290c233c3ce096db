// XXH3-64 from the xxHash library: the digest for hosts. Needs libxxhash.
// On a microcontroller use core/xxh3.hpp: the same values, no library.
#pragma once

#include <tensorpull/integrity/concept.hpp>

// The state's size is not part of xxHash's stable interface; we keep it on the stack, so we ask for the definition.
#ifndef XXH_STATIC_LINKING_ONLY
#define XXH_STATIC_LINKING_ONLY
#endif
#include <xxhash.h>

namespace tensorpull {

/// Models hash. 576 bytes of state, aligned to 64.
class xxhash_digest {
 public:
  static constexpr digest_kind kind = digest_kind::xxh3_64;  ///< its name in frames

  xxhash_digest() noexcept { XXH3_64bits_reset(&state_); }
  void reset() noexcept { XXH3_64bits_reset(&state_); }
  void update(std::span<const std::byte> bytes) noexcept { XXH3_64bits_update(&state_, bytes.data(), bytes.size()); }
  std::uint64_t digest() const noexcept { return XXH3_64bits_digest(&state_); }

 private:
  XXH3_state_t state_;
};

static_assert(hash<xxhash_digest>);

}  // namespace tensorpull
