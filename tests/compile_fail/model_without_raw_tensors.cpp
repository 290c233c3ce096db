// The struct itself, not its tensor policy.
// EXPECT: tensorpull: a model was given to pipeline<...> where its tensor policy belongs: write raw_tensors<Model>
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

pipeline<mlp, fixed_bytes<1_KiB>, loopback>::model_type model;
