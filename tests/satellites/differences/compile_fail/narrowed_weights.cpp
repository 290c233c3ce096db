// Weights that would travel in 8 bits.
// EXPECT: tensorpull: narrowed<T> is no tensor policy: a difference to what the other side has is narrowed, and weights are not
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "compile_fail/model.hpp"

#include <tensorpull/satellites/differences/narrowed.hpp>

pipeline<narrowed<raw_tensors<mlp>>, fixed_bytes<1_KiB>, loopback>::model_type model;
