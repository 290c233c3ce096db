// No policies at all.
// EXPECT: tensorpull: a pipeline needs a tensor policy
// WITHIN_LINES: 5
// MAX_ERRORS: 3
// MAX_LINES: 24
#include <tensorpull/tensorpull.hpp>

struct mlp {
  float w[4][3], b[4];
};
BOOST_HANA_ADAPT_STRUCT(mlp, w, b);

using namespace tensorpull;
pipeline<>::model_type model;
