// A chunking policy that cuts nothing.
// EXPECT: tensorpull: a chunking policy gives each chunk's length (requirement 4)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include <tensorpull/tensorpull.hpp>

struct mlp {
  float w[4][3], b[4];
};
BOOST_HANA_ADAPT_STRUCT(mlp, w, b);

using namespace tensorpull;

struct mine {
  using is_chunking_policy = void;
  static constexpr std::uint64_t max_chunk_bytes = 64;
  static constexpr bool needs_layout = false;
};
pipeline<raw_tensors<mlp>, mine, loopback>::model_type model;
