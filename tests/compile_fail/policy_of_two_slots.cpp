// A type that names two slots.
// EXPECT: tensorpull: one of the types given to pipeline<...> names two slots
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct mine : image_digest, default_limits {};
pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback, mine>::model_type model;
