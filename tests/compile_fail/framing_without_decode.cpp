// A framing that does not read frames.
// EXPECT: tensorpull: a framing reads frames (requirement 4)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct mine : word_framing {
  static void decode(const frame&) noexcept {}
};
pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback, mine>::model_type model;
