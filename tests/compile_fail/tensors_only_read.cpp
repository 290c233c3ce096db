// A tensor policy without destination, used to land.
#include "model.hpp"

struct mine : raw_tensors<mlp> {
  void destination() = delete;
};
using net = pipeline<mine, fixed_bytes<1_KiB>, tcp>;

// CASE tensors_that_are_only_read
// EXPECT: tensorpull: models of this tensor policy are only read
bool get(mlp& model, const reference& ref) { return net::download_tensors("there", ref, model).has_value(); }

// CASE tensors_that_are_only_read_in_session
// EXPECT: tensorpull: models of this tensor policy are only read
bool get(net::session& from, mlp& model, const reference& ref) { return from.download_tensors(ref, model).has_value(); }
