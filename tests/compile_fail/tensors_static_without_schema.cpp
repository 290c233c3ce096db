// A static tensor policy without its schema.
// EXPECT: tensorpull: a tensor policy says whether its schema is constant (requirement 3)
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
  using is_tensor_policy = void;
  using model_type = mlp;
  static constexpr bool is_static = true;
  static source_view source(const mlp& m) noexcept { return raw_tensors<mlp>::source(m); }
};
pipeline<mine, fixed_bytes<1_KiB>, loopback>::model_type model;
