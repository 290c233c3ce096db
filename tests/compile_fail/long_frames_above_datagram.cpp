// A framing whose frames are longer than messages.
// EXPECT: tensorpull: a message of this transport is too short for the frames of this framing
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct datagrams : loopback {
  static constexpr std::uint64_t max_payload_bytes = 1152;
  static constexpr bool reliable = false, ordered = false;
};
struct long_framing : word_framing {
  static constexpr std::size_t short_frame_bytes = 1240;
};
pipeline<raw_tensors<mlp>, fit_datagram, datagrams, long_framing>::model_type model;
