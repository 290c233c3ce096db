// A difference of two files of BF16 weights, made or applied in memory, for beside.py: `code OLD NEW DIFFERENCE` or
// `apply OLD DIFFERENCE NEW`. Prints the seconds of the processor, without those of
// the files.
#include "../measure.hpp"

#include <tensorpull/integrity/xxhash/xxhash_digest.hpp>
#include <tensorpull/satellites/differences/applied_difference.hpp>
#include <tensorpull/satellites/differences/deflate/deflate.hpp>

#include <array>
#include <cstring>
#include <fstream>
#include <string_view>

using namespace tensorpull;

namespace {

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "coded: %s\n", what);
  std::exit(1);
}
std::vector<std::byte> read(const char* path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) fail(path);
  std::vector<std::byte> bytes(static_cast<std::size_t>(file.tellg()));
  file.seekg(0);
  if (!file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()))) fail(path);
  return bytes;
}
void write(const char* path, std::span<const std::byte> bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) fail(path);
}
dynamic_image image_of(std::vector<std::byte>& weights) {
  const std::uint64_t shape[] = {weights.size() / 2};
  const mutable_tensor_view view{"w", dtype::bf16, shape, weights.data()};
  auto image = dynamic_image::make(std::span(&view, 1));
  if (!image) fail("no image");
  return std::move(*image);
}

/// As it arrives: the coded bytes in chunks, copied once.
result<void> apply_difference(const destination_view& to, std::span<const std::byte> coded) {
  deflate_coder coder;
  auto applied = applied_difference<deflate_coder, xxhash_digest>::make(to, coder);
  if (!applied) return failure(applied.error());
  if (const auto ok = applied->begin({.image_bytes = coded.size()}); !ok) return ok;
  for (std::size_t at = 0; at < coded.size();) {
    const std::size_t begin = at, end = std::min<std::size_t>(coded.size(), at + default_chunk_bytes);
    while (at < end) {
      std::array<std::span<std::byte>, 1> room;
      if (applied->prepare(at, end - at, room).pieces == 0) return failure(errc::busy);
      std::memcpy(room[0].data(), coded.data() + at, room[0].size());
      if (const auto ok = applied->commit(at, room[0]); !ok) return ok;
      at += room[0].size();
    }
    if (const auto ok = applied->chunk(begin, end - begin); !ok) return ok;
  }
  return applied->finish({});
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 5) fail("usage: code OLD NEW DIFFERENCE | apply OLD DIFFERENCE NEW");
  auto old = read(arguments[2]), other = read(arguments[3]);
  auto from = image_of(old);
  double seconds = 0;
  if (std::string_view(arguments[1]) == "code") {
    auto to = image_of(other);
    deflate_coder coder;
    const double start = bench::cpu_seconds();
    const auto made = model_difference::make<deflate_coder, xxhash_digest>(from.source(), to.source(), coder);
    seconds = bench::cpu_seconds() - start;
    if (!made) fail("nothing was coded");
    write(arguments[4], made->bytes());
  } else {
    const double start = bench::cpu_seconds();
    const auto done = apply_difference(from.destination(), other);
    seconds = bench::cpu_seconds() - start;
    if (!done) fail(to_string(done.error().code).data());
    write(arguments[4], old);
  }
  std::printf("%.6f\n", seconds);
  return 0;
}
