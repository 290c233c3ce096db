// A chunking policy that does not say whether it needs the layout.
// EXPECT: tensorpull: a chunking policy says whether it needs the image's layout (requirement 3)
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
  static std::uint64_t next(std::uint64_t, const chunk_context&) noexcept { return 1; }
};
pipeline<raw_tensors<mlp>, mine, loopback>::model_type model;
