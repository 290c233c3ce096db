// A user's program: a message becomes a frame and a message again. The same headers are in other_file.cpp.
#include <tensorpull/framing/capnp_framing.hpp>

#include <cstdio>

std::size_t frame_bytes(const tensorpull::message& m);

int main() {
  tensorpull::message pull, read;
  pull.kind = tensorpull::message_kind::pull;
  pull.offset = 4096;
  alignas(8) std::byte frame[4096];
  const auto bytes = tensorpull::capnp_framing::encode(pull, frame);
  tensorpull::capnp_framing::decode_storage lists;
  if (!bytes || !tensorpull::capnp_framing::decode({frame, *bytes}, read, lists)) return 1;
  std::printf("%zu bytes, offset %llu\n", *bytes, static_cast<unsigned long long>(read.offset));
  return read.offset == pull.offset && frame_bytes(pull) == *bytes ? 0 : 1;
}
