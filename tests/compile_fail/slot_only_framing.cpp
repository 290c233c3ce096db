// A framing that names only its slot.
// EXPECT: tensorpull: a framing has memory for one decoded frame's lists (requirement 2)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct nothing {
  using is_framing_policy = void;
};
pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback, nothing>::model_type model;
