// A static tensor policy without its schema.
// EXPECT: tensorpull: a tensor policy says whether its schema is constant (requirement 3)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct mine : raw_tensors<mlp> {
  void schema() = delete;
};
pipeline<mine, fixed_bytes<1_KiB>, loopback>::model_type model;
