// A transport that loses, and nothing that checks what came.
// EXPECT: tensorpull: this transport loses, doubles and changes bytes, and nothing in this pipeline would notice
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct datagrams : loopback {
  static constexpr std::uint64_t max_payload_bytes = 1152;
  static constexpr bool reliable = false, ordered = false;
};
pipeline<raw_tensors<mlp>, fit_datagram, datagrams, unverified>::model_type model;
