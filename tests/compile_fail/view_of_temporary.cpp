// A view of a model that is gone at once.
// EXPECT: deleted
// WITHIN_LINES: 5
// MAX_ERRORS: 2
// MAX_LINES: 24
#include <tensorpull/tensorpull.hpp>

struct mlp {
  float w[4][3], b[4];
};
BOOST_HANA_ADAPT_STRUCT(mlp, w, b);

using namespace tensorpull;
const source_view view = raw_tensors<mlp>::source(mlp{});
