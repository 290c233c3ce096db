#include <tensorpull/framing/capnp_framing.hpp>

std::size_t frame_bytes(const tensorpull::message& m) {
  alignas(8) std::byte frame[4096];
  return tensorpull::capnp_framing::encode(m, frame).value_or(0);
}
