// Messages that a description does not fit.
// EXPECT: tensorpull: a message of this transport is too short for the frames of this framing
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct datagrams : loopback {
  static constexpr std::uint64_t max_payload_bytes = 64;
  static constexpr bool reliable = false, ordered = false;
};
pipeline<raw_tensors<mlp>, fit_datagram, datagrams>::model_type model;
