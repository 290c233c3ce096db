// A struct that is not adapted, not its tensor policy.
// EXPECT: a struct of tensors is given as raw_tensors<Struct>
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include <tensorpull/tensorpull.hpp>

struct mlp {
  float w[4][3], b[4];
};

using namespace tensorpull;
pipeline<mlp, fixed_bytes<1_KiB>, loopback>::model_type model;
