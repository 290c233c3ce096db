// A transport that does not say whether others than the owner can answer first.
// EXPECT: tensorpull: a transport says what it is (requirement 4)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct mine : loopback {
  void anyone_answers() = delete;
};
pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, mine>::model_type model;
