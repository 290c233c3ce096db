// A limits policy that names only its slot.
// EXPECT: tensorpull: a limits policy has each constant of default_limits (requirement 2): derive from default_limits
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct nothing {
  using is_limits_policy = void;
};
pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback, nothing>::model_type model;
