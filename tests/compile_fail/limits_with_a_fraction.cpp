// A limits policy with a number that is not whole.
// EXPECT: tensorpull: a limits policy has each constant of default_limits (requirement 2)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct mine : default_limits {
  static constexpr double page_bytes = 1088.5;
};
pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback, mine>::model_type model;
