// A chunk that is no multiple of 8.
// One line more than five: a policy refuses its own arguments, so the pipeline that names it stands between.
// EXPECT: tensorpull: fixed_bytes<N> needs a multiple of 8, since frames are padded to words of 8 bytes
// WITHIN_LINES: 6
// MAX_ERRORS: 3
// MAX_LINES: 24
#include "model.hpp"

pipeline<raw_tensors<mlp>, fixed_bytes<1001>, loopback>::model_type model;
