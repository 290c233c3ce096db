// A tensor policy that names only its slot.
// EXPECT: tensorpull: a tensor policy names the type of its models (requirement 2)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct nothing {
  using is_tensor_policy = void;
};
pipeline<nothing, fixed_bytes<1_KiB>, loopback>::model_type model;
