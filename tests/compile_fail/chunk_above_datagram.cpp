// A chunk that does not fit one datagram.
// EXPECT: tensorpull: the chunk does not fit one message of this transport: choose a smaller chunk
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct small_datagrams : loopback {
  static constexpr std::uint64_t max_payload_bytes = 1152;
};
pipeline<raw_tensors<mlp>, fixed_bytes<64_KiB>, small_datagrams>::model_type model;
