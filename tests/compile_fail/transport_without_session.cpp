// A transport without a session.
// EXPECT: tensorpull: a transport names its connection for both sides (requirement 6)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct mine : loopback {
  struct session;
};
pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, mine>::model_type model;
