// Two tensors with the same new name.
// EXPECT: tensorpull: renamed: two tensors have the same new name
// MAX_ERRORS: 1
// MAX_LINES: 24
#include <tensorpull/tensorpull.hpp>

struct mlp {
  float w[4][3], b[4];
};
BOOST_HANA_ADAPT_STRUCT(mlp, w, b);

using namespace tensorpull;
const auto& schema = raw_tensors<renamed<mlp, from_to{"w", "0"}, from_to{"b", "0"}>>::schema();
