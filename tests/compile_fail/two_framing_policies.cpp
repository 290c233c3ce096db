// Two framing policies.
// EXPECT: tensorpull: a pipeline has two framing policies: keep one
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

pipeline<raw_tensors<mlp>, word_framing, word_framing, fixed_bytes<1_KiB>, loopback>::model_type model;
