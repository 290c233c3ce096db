// Two chunking policies.
// EXPECT: tensorpull: a pipeline has two chunking policies: keep one
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, whole, loopback>::model_type model;
