// A policy that checks each chunk, with a hash of kind none.
// EXPECT: tensorpull: an integrity policy's chunk_hash_type is a hash (requirement 5)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct none_hash : xxhash_digest {
  static constexpr digest_kind kind = digest_kind::none;
};
struct mine : chunk_and_image_digest {
  using chunk_hash_type = none_hash;
};
pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback, mine>::model_type model;
