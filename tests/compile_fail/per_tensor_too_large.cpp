// A maximum above what one Cap'n Proto Data holds.
// One line more than five: a policy refuses its own arguments, so the pipeline that names it stands between.
// EXPECT: tensorpull: per_tensor<Max> allows at most 536870904 bytes
// WITHIN_LINES: 6
// MAX_ERRORS: 3
// MAX_LINES: 24
#include "model.hpp"

pipeline<raw_tensors<mlp>, per_tensor<1_GiB>, loopback>::model_type model;
