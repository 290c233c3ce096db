// An image in one chunk over a transport of messages, although this one would fit.
// EXPECT: tensorpull: `whole` sends the image as one chunk, and a transport that is not reliable and ordered carries it in many messages
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct datagrams : loopback {
  static constexpr std::uint64_t max_payload_bytes = 1152;
  static constexpr bool reliable = false, ordered = false;
};
pipeline<raw_tensors<mlp>, whole, datagrams>::model_type model;
