// Two limits policies.
// EXPECT: tensorpull: a pipeline has two limits policies: keep one
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

pipeline<default_limits, raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback, default_limits>::model_type model;
