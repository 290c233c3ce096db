// NEEDS tensorpull::http
#include "context.hpp"

#include <tensorpull/image/gather_scatter.hpp>
#include <tensorpull/transports/over/tcp/tcp_listener.hpp>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstring>
#include <vector>

// SNIPPET 1-2

/// Answers requests for ranges of a file, one connection at a time.
static void serve(tcp_listener& listener, const std::string& file, std::stop_token stop) {
  while (!stop.stop_requested()) {
    auto s = listener.accept(std::chrono::milliseconds(20), stop);
    if (!s) continue;
    std::string head;
    while (!head.ends_with("\r\n\r\n")) {
      char c = 0;
      const std::array<std::span<std::byte>, 1> in{std::as_writable_bytes(std::span(&c, 1))};
      const auto io = s->read_some(in);
      if (is_end(io.status) || stop.stop_requested()) break;
      if (io.bytes == 0) s->wait(true, false, std::chrono::milliseconds(20));
      else head += c;
    }
    std::size_t first = 0, last = file.size() - 1;
    if (const auto at = head.find("bytes="); at != head.npos)
      std::sscanf(head.c_str() + at, "bytes=%zu-%zu", &first, &last);
    last = std::min(last, file.size() - 1);
    std::string out = "HTTP/1.1 206 Partial Content\r\nETag: \"1\"\r\nConnection: close\r\nContent-Range: bytes " +
                      std::to_string(first) + "-" + std::to_string(last) + "/" + std::to_string(file.size()) +
                      "\r\nContent-Length: " + std::to_string(last - first + 1) + "\r\n\r\n" +
                      file.substr(first, last - first + 1);
    for (std::size_t sent = 0; sent < out.size();) {
      const std::array<std::span<const std::byte>, 1> piece{std::as_bytes(std::span(out).subspan(sent))};
      const auto io = s->write_some(piece);
      if (is_end(io.status)) break;
      sent += io.bytes;
      if (io.bytes == 0) s->wait(false, true, std::chrono::milliseconds(20));
    }
  }
}

int main() {
  static Mlp trained{}, mine{};
  trained.b2[3] = 3;
  const source_view image = raw_tensors<Mlp>::source(trained);
  std::string file(image.schema->image_bytes, '\0');
  std::span<const std::byte> pieces[16];
  std::vector<std::byte> slice(4096);
  for (std::size_t at = 0; at < file.size();) {
    const auto g = gather(image, at, file.size() - at, pieces, slice);
    for (std::size_t i = 0; i < g.pieces; ++i)
      std::memcpy(file.data() + at, pieces[i].data(), pieces[i].size()), at += pieces[i].size();
  }
  xxh3_64 hash;
  hash.update(std::as_bytes(std::span(file)));
  char digest[32];
  std::snprintf(digest, sizeof digest, "xxh3:%016" PRIx64, hash.digest());
  auto listener = tcp_listener::open("127.0.0.1:0");
  must(listener.has_value());
  const std::string url = "http://127.0.0.1:" + std::to_string(listener->port()) + "/model.safetensors";
  const std::jthread server([&](std::stop_token stop) { serve(*listener, file, stop); });

  // SNIPPET 3

  must(done.has_value() && done->outcome == outcome::completed && mine.b2[3] == 3);
  must(told.has_value() && told->outcome == outcome::completed_unverified);
}
