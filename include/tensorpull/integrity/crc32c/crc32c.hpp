// CRC32C (Castagnoli) with each chunk, computed by Intel's ISA-L, which uses the processor's instructions for it if it
// has them. The component crc32c: link tensorpull::crc32c. A CRC of 32 bits finds every burst of up to 32 bits, and
// misses a random fault with probability 2^-32: too often for the version of an image, which stays XXH3-64.
#pragma once

#include <tensorpull/integrity/xxhash/policies.hpp>

#include <isa-l/crc.h>

#include <algorithm>

namespace tensorpull {

/// Models hash; digest() has the CRC in its low 32 bits, as RFC 3720 defines it (initial value and final complement
/// included).
class crc32c {
 public:
  static constexpr digest_kind kind = digest_kind::crc32c;

  void reset() noexcept { state_ = start; }
  void update(std::span<const std::byte> bytes) noexcept {
    while (!bytes.empty()) {
      const std::size_t n = std::min(bytes.size(), most);
      // the library only reads, although its parameter is not const
      state_ = crc32_iscsi(reinterpret_cast<unsigned char*>(const_cast<std::byte*>(bytes.data())), static_cast<int>(n),
                           state_);
      bytes = bytes.subspan(n);
    }
  }
  std::uint64_t digest() const noexcept { return state_ ^ start; }

 private:
  static constexpr std::uint32_t start = 0xffffffffu;
  static constexpr std::size_t most = std::size_t{1} << 30;  // the library counts in int

  std::uint32_t state_ = start;
};

/// CRC32C with each chunk, no digest of the whole; the outcome is `completed_unverified`.
struct chunk_crc32c {
  using is_integrity_policy = void;
  using hash_type = detail::no_hash;
  using chunk_hash_type = crc32c;
  static constexpr bool whole = false;
  static constexpr bool per_chunk = true;
};

/// CRC32C with each chunk, XXH3-64 of the whole: for a consumer that cannot undo, with the cheaper check before it
/// takes a chunk.
template <hash Hash = xxhash_digest>
struct basic_chunk_crc32c_and_image_digest {
  using is_integrity_policy = void;
  using hash_type = Hash;
  using chunk_hash_type = crc32c;
  static constexpr bool whole = true;
  static constexpr bool per_chunk = true;
};
/// With the xxHash library's XXH3-64.
using chunk_crc32c_and_image_digest = basic_chunk_crc32c_and_image_digest<>;

static_assert(hash<crc32c> && integrity_policy<chunk_crc32c> && integrity_policy<chunk_crc32c_and_image_digest>);
static_assert(chunk_digest_kind<chunk_crc32c> == digest_kind::crc32c &&
              chunk_digest_kind<chunk_digest> == digest_kind::xxh3_64 &&
              chunk_digest_kind<image_digest> == digest_kind::none);

}  // namespace tensorpull
