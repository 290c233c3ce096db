// A limits policy whose control frames are too short for a description.
// EXPECT: tensorpull: a control frame of a limits policy holds a description and is no longer than 64 KiB (requirement 3)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct mine : default_limits {
  static constexpr std::size_t control_frame_bytes = 144;
};
pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback, mine>::model_type model;
