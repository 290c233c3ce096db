// A tensor policy without destination, used to land in a session.
// EXPECT: tensorpull: models of this tensor policy are only read
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
  static constexpr bool is_static = false;
  static source_view source(const mlp& model) noexcept { return raw_tensors<mlp>::source(model); }
};
using net = pipeline<mine, fixed_bytes<1_KiB>, tcp>;
bool get(net::session& from, mlp& model, const reference& ref) { return from.download_tensors(ref, model).has_value(); }
