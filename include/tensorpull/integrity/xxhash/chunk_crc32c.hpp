// CRC32C with each chunk, for owners that compute no other digest of chunks: a microcontroller's (answers_crc32c).
#pragma once

#include <tensorpull/core/crc32c.hpp>
#include <tensorpull/integrity/xxhash/policies.hpp>

namespace tensorpull {

/// CRC32C with each chunk, XXH3-64 of the whole: for a consumer that cannot undo. Cost: a look-up for each byte of a
/// chunk, so chunk_and_image_digest is much cheaper where the owner computes it.
struct chunk_crc32c_and_image_digest {
  using is_integrity_policy = void;
  using hash_type = xxhash_digest;
  using chunk_hash_type = basic_crc32c<crc32c_fast>;
  static constexpr bool whole = true;
  static constexpr bool per_chunk = true;
};

static_assert(integrity_policy<chunk_crc32c_and_image_digest> &&
              chunk_digest_kind<chunk_crc32c_and_image_digest> == digest_kind::crc32c);

}  // namespace tensorpull
