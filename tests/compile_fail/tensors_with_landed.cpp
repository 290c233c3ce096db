// A tensor policy whose last step no consumer would take.
// EXPECT: tensorpull: nothing calls landed(model) of a tensor policy (requirement 6)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct mine : raw_tensors<mlp> {
  static void landed(mlp& m) noexcept { m.b[0] = 0; }
};
pipeline<mine, fixed_bytes<1_KiB>, loopback>::model_type model;
