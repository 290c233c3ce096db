// A pipeline without a tensor policy.
// EXPECT: tensorpull: a pipeline needs a tensor policy: add raw_tensors<Model> or tensor_list
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

pipeline<fixed_bytes<1_KiB>, loopback>::model_type model;
