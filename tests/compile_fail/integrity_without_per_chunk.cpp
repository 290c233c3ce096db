// An integrity policy that does not say whether it checks each chunk.
// EXPECT: tensorpull: an integrity policy says whether each chunk is checked (requirement 3)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct mine : image_digest {
  void per_chunk() = delete;
};
pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback, mine>::model_type model;
