// Framings that lack something.
#include "model.hpp"

struct mine : word_framing {
  // CASE framing_without_decode
  // EXPECT: tensorpull: a framing reads frames (requirement 4)
  static void decode(const frame&) noexcept {}
  // CASE framing_without_encode
  // EXPECT: tensorpull: a framing writes frames (requirement 3)
  static void encode(const frame&) noexcept {}
  // EACH ENDS WITH
};
pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback, mine>::model_type model;
