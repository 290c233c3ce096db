// Chunks and frames that no datagram carries.
#include "model.hpp"

struct small_datagrams : loopback {
  static constexpr std::uint64_t max_payload_bytes = 1152;
};
struct datagrams : loopback {
  static constexpr std::uint64_t max_payload_bytes = 1152;
  static constexpr bool reliable = false, ordered = false;
};

// CASE chunk_above_datagram
// EXPECT: tensorpull: the chunk does not fit one message of this transport: choose a smaller chunk
// EXPECT: 65536
pipeline<raw_tensors<mlp>, fixed_bytes<64_KiB>, small_datagrams>::model_type model;

// CASE frames_above_datagram
// EXPECT: tensorpull: a message of this transport is too short for the frames of this framing
struct shorter : datagrams {
  static constexpr std::uint64_t max_payload_bytes = 64;
};
pipeline<raw_tensors<mlp>, fit_datagram, shorter>::model_type model;

// CASE long_frames_above_datagram
// EXPECT: tensorpull: a message of this transport is too short for the frames of this framing
struct long_framing : word_framing {
  static constexpr std::size_t short_frame_bytes = 1240;
};
pipeline<raw_tensors<mlp>, fit_datagram, datagrams, long_framing>::model_type model;

// CASE whole_above_datagram
// EXPECT: tensorpull: the chunk does not fit one message of this transport: choose a smaller chunk
struct wide {
  float w[400];
};
BOOST_HANA_ADAPT_STRUCT(wide, w);
pipeline<raw_tensors<wide>, whole, small_datagrams>::model_type model;

// CASE whole_list_above_datagram
// EXPECT: tensorpull: the chunk does not fit one message of this transport: choose a smaller chunk
using model_type = pipeline<tensor_list, whole, small_datagrams>::model_type;

// CASE whole_over_datagrams
// EXPECT: tensorpull: `whole` sends the image as one chunk, and a transport that is not reliable and ordered carries it in many messages
pipeline<raw_tensors<mlp>, whole, datagrams>::model_type model;

// CASE loss_unchecked
// EXPECT: tensorpull: this transport loses, doubles and changes bytes, and nothing in this pipeline would notice
pipeline<raw_tensors<mlp>, fit_datagram, datagrams, unverified>::model_type model;
