// An integrity policy whose hash of a chunk is none.
// EXPECT: tensorpull: an integrity policy's chunk_hash_type is a hash (requirement 5)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct mine : image_digest {
  static constexpr bool per_chunk = true;
  using chunk_hash_type = int;
};
pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback, mine>::model_type model;
