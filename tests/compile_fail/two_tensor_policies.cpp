// Two tensor policies.
// EXPECT: tensorpull: a pipeline has two tensor policies: keep one
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

pipeline<raw_tensors<mlp>, tensor_list, fixed_bytes<1_KiB>, loopback>::model_type model;
