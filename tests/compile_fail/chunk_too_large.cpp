// A chunk above what one Cap'n Proto Data holds.
// One line more than five: a policy refuses its own arguments, so the pipeline that names it stands between.
// EXPECT: tensorpull: fixed_bytes<N> allows at most 536870904 bytes, the most that one Cap'n Proto frame carries
// WITHIN_LINES: 6
// MAX_ERRORS: 3
// MAX_LINES: 24
#include "model.hpp"

pipeline<raw_tensors<mlp>, fixed_bytes<512_MiB>, loopback>::model_type model;
