// An image of unknown size in one datagram.
// EXPECT: tensorpull: the chunk does not fit one message of this transport: choose a smaller chunk
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct small_datagrams : loopback {
  static constexpr std::uint64_t max_payload_bytes = 1152;
};
using model_type = pipeline<tensor_list, whole, small_datagrams>::model_type;
