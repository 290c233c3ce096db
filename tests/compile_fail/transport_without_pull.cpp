// A transport without pull.
// EXPECT: tensorpull: a transport pulls (requirement 7)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct mine : tcp {
  void pull() = delete;
};
using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, mine>;
bool get(mlp& model, const reference& ref) { return net::download_tensors("there", ref, model).has_value(); }
