// An integrity policy of the whole image without its hash.
// EXPECT: tensorpull: an integrity policy has the hash of a version (requirement 4)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct mine : unverified {
  static constexpr bool whole = true;
};
pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback, mine>::model_type model;
