// A limits policy whose buffer for a page is shorter than a word.
// EXPECT: tensorpull: a control frame of a limits policy holds a description and is no longer than 64 KiB (requirement 3): control_frame_bytes is 152 to 65536, and page_bytes at least 8
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct mine : default_limits {
  static constexpr std::size_t page_bytes = 4;
};
pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback, mine>::model_type model;
