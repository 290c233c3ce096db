// A tensor policy without destination, used to land.
// EXPECT: tensorpull: models of this tensor policy are only read
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct mine : raw_tensors<mlp> {
  void destination() = delete;
};
using net = pipeline<mine, fixed_bytes<1_KiB>, tcp>;
bool get(mlp& model, const reference& ref) { return net::download_tensors("there", ref, model).has_value(); }
