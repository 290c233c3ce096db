// The other half of safetensors_reference.py: reads descriptions of dictionaries from standard input, writes their
// images to standard output.
//
// Input, repeated, all numbers u64 little-endian: count of metadata pairs, each {key, value}; count of tensors, each
// {name, dtype, rank, extents, data}; strings and data are {length, bytes}. Output for each: {length, bytes} of the
// image, gathered in odd steps.
#include "../support/standard_streams.hpp"

#include <tensorpull/image/dynamic.hpp>
#include <tensorpull/image/gather_scatter.hpp>

#include <vector>

namespace {

using namespace tensorpull;
using namespace test;

struct tensor {
  std::string name, type, data;
  std::vector<std::uint64_t> shape;
};

int answer(std::size_t pairs) {
  std::vector<std::string> strings;
  for (std::size_t i = 0; i < 2 * pairs; ++i) strings.push_back(text());
  std::vector<metadata_entry> metadata;
  for (std::size_t i = 0; i < pairs; ++i) metadata.push_back({strings[2 * i], strings[2 * i + 1]});

  std::vector<tensor> tensors(number());
  std::vector<tensor_view> views;
  for (tensor& t : tensors) {
    t.name = text();
    t.type = text();
    t.shape.resize(number());
    for (auto& extent : t.shape) extent = number();
    t.data = text();
    const auto type = dtype_from_string(t.type);
    if (!type) {
      std::fprintf(stderr, "unknown dtype %s\n", t.type.c_str());
      return 1;
    }
    views.push_back({t.name, *type, t.shape, reinterpret_cast<const std::byte*>(t.data.data())});
  }

  const auto image = dynamic_image::make(views, metadata);
  if (!image) {
    std::fprintf(stderr, "refused: %s\n", to_string(image.error().code).data());
    return 1;
  }
  const std::uint64_t total = image->schema().image_bytes;
  put(total);
  std::vector<std::byte> slice(997);
  std::span<const std::byte> out[3];
  for (std::uint64_t at = 0; at < total;) {
    const gathered got = gather(image->source(), at, total - at, out, slice);
    if (got.bytes == 0) {
      std::fprintf(stderr, "gather made no progress\n");
      return 1;
    }
    for (std::size_t i = 0; i < got.pieces; ++i) std::fwrite(out[i].data(), 1, out[i].size(), stdout);
    at += got.bytes;
  }
  return 0;
}

}  // namespace

int main() {
  std::uint64_t pairs = 0;
  while (try_number(pairs))
    if (const int status = answer(pairs); status != 0) return status;
  return 0;
}
