// A maximum of no bytes.
// One line more than five: a policy refuses its own arguments, so the pipeline that names it stands between.
// EXPECT: tensorpull: bytes_up_to<Max> needs a positive maximum
// WITHIN_LINES: 6
// MAX_ERRORS: 3
// MAX_LINES: 24
#include "model.hpp"

pipeline<raw_tensors<mlp>, bytes_up_to<0>, loopback>::model_type model;
