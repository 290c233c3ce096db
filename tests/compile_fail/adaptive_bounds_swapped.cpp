// A longest chunk that is shorter than the shortest one.
// EXPECT: tensorpull: adaptive_bytes<Min, Max> needs a positive Min that is at most Max
// WITHIN_LINES: 6
// MAX_ERRORS: 3
// MAX_LINES: 24
#include "model.hpp"

pipeline<raw_tensors<mlp>, adaptive_bytes<64_KiB, 4_KiB>, tcp>::model_type model;
