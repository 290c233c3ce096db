// A limits policy whose longest chunk has no bytes.
// EXPECT: tensorpull: a limits policy has each constant of default_limits (requirement 2)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct mine : default_limits {
  static constexpr std::uint64_t chunk_cap_bytes = 0;
};
pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback, mine>::model_type model;
