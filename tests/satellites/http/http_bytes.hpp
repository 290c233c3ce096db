// What the tests of HTTP's owner and of its recipient say about models: their files, digests and fields.
#pragma once

#include "support/own_folder.hpp"
#include "transports/network.hpp"

#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/image/gather_scatter.hpp>
#include <tensorpull/satellites/http/owner/detail/text_writer.hpp>

#include <string>

namespace test {

/// The bytes of the safetensors file that a model is.
template <class Tensors, class Model>
std::string file_of(const Model& m) {
  const tp::source_view image = Tensors::source(m);
  std::string out(image.schema->image_bytes, '\0');
  std::span<const std::byte> pieces[16];
  std::vector<std::byte> slice(4096);
  for (std::size_t at = 0; at < out.size();) {
    const auto g = tp::gather(image, at, out.size() - at, pieces, slice);
    for (std::size_t i = 0; i < g.pieces; ++i) {
      std::memcpy(out.data() + at, pieces[i].data(), pieces[i].size());
      at += pieces[i].size();
    }
    if (g.bytes == 0) break;
  }
  return out;
}
inline std::uint64_t xxh3_of(std::string_view bytes) {
  tp::xxh3_64 h;
  h.update(std::as_bytes(std::span(bytes)));
  return h.digest();
}
inline std::string hex(std::uint64_t n) {
  std::array<char, 16> digits{};
  return std::string(tp::detail::text_writer(digits).hex(n).text());
}
/// The value with which owners of this library state a digest.
inline std::string xxh3_value(std::uint64_t digest) {
  std::array<char, 32> text{};
  return std::string(((tp::detail::text_writer(text) << "xxh3=:").base64(digest) << ":").text());
}
inline std::string stated(std::uint64_t digest) { return "Repr-Digest: " + xxh3_value(digest) + "\r\n"; }

inline void close_now(raw_peer& peer) { peer = raw_peer(tp::posix_stream()); }

}  // namespace test
