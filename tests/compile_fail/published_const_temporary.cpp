// A constant model that is gone before it is pulled.
// EXPECT: tensorpull: add_tensors was given a constant temporary
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

mlp const make();

auto publish(pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback>::downloader& owner) {
  return owner.add_tensors(make());
}
