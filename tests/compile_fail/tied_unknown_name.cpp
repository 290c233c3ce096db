// A tie to a tensor that the struct does not have.
// EXPECT: tensorpull: tied: an alias or a kept name is not the name of a tensor, or a tensor is tied twice
// MAX_ERRORS: 1
// MAX_LINES: 24
#include <tensorpull/tensorpull.hpp>

struct mlp {
  float w[4][3], b[4];
};
BOOST_HANA_ADAPT_STRUCT(mlp, w, b);

using namespace tensorpull;
const auto& schema = raw_tensors<tied<mlp, from_to{"w", "embed"}>>::schema();
