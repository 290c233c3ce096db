// A hash whose kind is no digest_kind.
// EXPECT: tensorpull: an integrity policy's chunk_hash_type is a hash (requirement 5)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct seventh : xxhash_digest {
  static constexpr int kind = 7;
};
struct mine : chunk_and_image_digest {
  using chunk_hash_type = seventh;
};
pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback, mine>::model_type model;
