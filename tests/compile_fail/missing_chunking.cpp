// A pipeline without a chunking policy.
// EXPECT: tensorpull: a pipeline needs a chunking policy: add fixed_bytes<N>
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include <tensorpull/tensorpull.hpp>

struct mlp {
  float w[4][3], b[4];
};
BOOST_HANA_ADAPT_STRUCT(mlp, w, b);

using namespace tensorpull;
pipeline<raw_tensors<mlp>, loopback>::downloader owner;
