// A transport that names only its slot.
// EXPECT: tensorpull: a transport says how much one frame carries (requirement 2)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct nothing {
  using is_transport_policy = void;
};
pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, nothing>::model_type model;
