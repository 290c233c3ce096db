// A transport that does not say what it keeps for a connection.
// EXPECT: tensorpull: a transport says what it keeps for a connection (requirement 3)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct mine : loopback {
  void connection_bytes() = delete;
};
pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, mine>::model_type model;
