// Tensors of different shapes cannot be one.
// EXPECT: tensorpull: tied: two tensors that are tied have different dtypes or shapes
// MAX_ERRORS: 1
// MAX_LINES: 24
#include <tensorpull/tensorpull.hpp>

struct mlp {
  float w[4][3], b[4];
};
BOOST_HANA_ADAPT_STRUCT(mlp, w, b);

using namespace tensorpull;
const auto& schema = raw_tensors<tied<mlp, from_to{"w", "b"}>>::schema();
