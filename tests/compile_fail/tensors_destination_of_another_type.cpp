// A tensor policy whose destination is no destination_view.
// EXPECT: tensorpull: a tensor policy gives where to land (requirement 5)
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
  static float* destination(mlp& m) noexcept { return m.b; }
};
pipeline<mine, fixed_bytes<1_KiB>, loopback>::model_type model;
