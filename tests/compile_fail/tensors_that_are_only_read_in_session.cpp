// A tensor policy without destination, used to land in a session.
// EXPECT: tensorpull: models of this tensor policy are only read
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct mine : raw_tensors<mlp> {
  void destination() = delete;
};
using net = pipeline<mine, fixed_bytes<1_KiB>, tcp>;
bool get(net::session& from, mlp& model, const reference& ref) { return from.download_tensors(ref, model).has_value(); }
