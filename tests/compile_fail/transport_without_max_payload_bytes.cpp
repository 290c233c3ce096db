// A transport whose longest payload is of another type.
// EXPECT: tensorpull: a transport says how much one frame carries (requirement 2)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct mine : loopback {
  static constexpr int max_payload_bytes = 1024;
};
pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, mine>::model_type model;
