// A chunk of no bytes.
// EXPECT: tensorpull: fixed_bytes<N> needs a positive N; use `whole` to send the image in one frame
// MAX_ERRORS: 3
// MAX_LINES: 40
#include <tensorpull/tensorpull.hpp>

struct mlp {
  float w[4][3], b[4];
};
BOOST_HANA_ADAPT_STRUCT(mlp, w, b);

using namespace tensorpull;
pipeline<raw_tensors<mlp>, fixed_bytes<0>, loopback>::model_type model;
