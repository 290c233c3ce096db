// A limits policy of which one constant is no number.
// EXPECT: tensorpull: a limits policy has each constant of default_limits (requirement 2)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct mine : default_limits {
  struct none {};
  static constexpr none references{};
};
pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback, mine>::model_type model;
