// Two transport policies.
// EXPECT: tensorpull: a pipeline has two transport policies: keep one
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

pipeline<tcp, raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback>::model_type model;
