// A maximum of no bytes.
// EXPECT: tensorpull: bytes_up_to<Max> needs a positive maximum
// MAX_ERRORS: 3
// MAX_LINES: 40
#include <tensorpull/tensorpull.hpp>

struct mlp {
  float w[4][3], b[4];
};
BOOST_HANA_ADAPT_STRUCT(mlp, w, b);

using namespace tensorpull;
pipeline<raw_tensors<mlp>, bytes_up_to<0>, loopback>::model_type model;
