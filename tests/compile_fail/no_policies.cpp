// No policies at all.
// EXPECT: tensorpull: a pipeline needs a tensor policy
// WITHIN_LINES: 5
// MAX_ERRORS: 3
// MAX_LINES: 24
#include "model.hpp"

pipeline<>::model_type model;
