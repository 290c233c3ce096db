// A tensor policy whose destination is no destination_view.
// EXPECT: tensorpull: a tensor policy gives where to land (requirement 5)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct mine : raw_tensors<mlp> {
  static float* destination(mlp& m) noexcept { return m.b; }
};
pipeline<mine, fixed_bytes<1_KiB>, loopback>::model_type model;
