// Two tensors with the same new name.
// One line more than five: a policy refuses its own arguments, so the pipeline that names it stands between.
// EXPECT: tensorpull: renamed: two tensors have the same new name
// WITHIN_LINES: 6
// MAX_ERRORS: 1
// MAX_LINES: 24
#include <tensorpull/tensorpull.hpp>

struct mlp {
  float w[4][3], b[4];
};
BOOST_HANA_ADAPT_STRUCT(mlp, w, b);

using namespace tensorpull;
const auto& schema = raw_tensors<renamed<mlp, from_to{"w", "0"}, from_to{"b", "0"}>>::schema();
