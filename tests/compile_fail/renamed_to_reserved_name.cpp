// The one name that safetensors keeps for itself.
// EXPECT: tensorpull: a tensor may not be named __metadata__
// MAX_ERRORS: 1
// MAX_LINES: 24
#include <tensorpull/tensorpull.hpp>

struct mlp {
  float w[4][3], b[4];
};
BOOST_HANA_ADAPT_STRUCT(mlp, w, b);

using namespace tensorpull;
const auto& schema = raw_tensors<renamed<mlp, from_to{"w", "__metadata__"}>>::schema();
