// Two integrity policies.
// EXPECT: tensorpull: a pipeline has two integrity policies: keep one
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

pipeline<raw_tensors<mlp>, unverified, fixed_bytes<1_KiB>, loopback, image_digest>::model_type model;
