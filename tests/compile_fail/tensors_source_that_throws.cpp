// A tensor policy whose source may throw.
// EXPECT: tensorpull: a tensor policy gives what to read (requirement 4)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct mine : raw_tensors<mlp> {
  static source_view source(const mlp& m) { return raw_tensors<mlp>::source(m); }
};
pipeline<mine, fixed_bytes<1_KiB>, loopback>::model_type model;
