// Two limits policies.
// EXPECT: tensorpull: a pipeline has two limits policies: keep one
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include <tensorpull/tensorpull.hpp>

struct mlp {
  float w[4][3], b[4];
};
BOOST_HANA_ADAPT_STRUCT(mlp, w, b);

using namespace tensorpull;
pipeline<default_limits, raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback, default_limits>::model_type model;
