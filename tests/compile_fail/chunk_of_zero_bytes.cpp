// A chunk of no bytes.
// One line more than five: a policy refuses its own arguments, so the pipeline that names it stands between.
// EXPECT: tensorpull: fixed_bytes<N> needs a positive N; use `whole` to send the image in one frame
// WITHIN_LINES: 6
// MAX_ERRORS: 3
// MAX_LINES: 24
#include "model.hpp"

pipeline<raw_tensors<mlp>, fixed_bytes<0>, loopback>::model_type model;
