// A tensor policy that may throw when all has landed.
// EXPECT: tensorpull: a tensor policy that finishes a landing cannot fail at it (requirement 6)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include <tensorpull/tensorpull.hpp>

struct mlp {
  float w[4][3], b[4];
};
BOOST_HANA_ADAPT_STRUCT(mlp, w, b);

using namespace tensorpull;

struct mine : raw_tensors<mlp> {
  static void landed(mlp& m) { m.b[0] = 0; }
};
pipeline<mine, fixed_bytes<1_KiB>, loopback>::model_type model;
