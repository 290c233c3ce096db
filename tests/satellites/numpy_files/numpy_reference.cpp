// The other half of numpy_reference.py: answers each question from standard input with an image, or with why there is
// none.
//
// Questions, all numbers u64 little-endian, text {length, bytes}: 0, {path} of a file; or 1, count, each {name, descr,
// buffer, index of the first element's byte in it, rank, extents, strides in bytes}, or 2 with the same for arrays in
// memory that are to be written. Answer: 0 and {length, bytes} of the image, gathered in odd steps, or the code of the
// error, {its name}, {its sentence}.
#include "../../support/standard_streams.hpp"

#include <tensorpull/image/gather_scatter.hpp>
#include <tensorpull/satellites/numpy_files/numpy_file.hpp>
#include <tensorpull/tensors/numpy/numpy.hpp>

#include <vector>

namespace {

using namespace tensorpull;
using namespace test;

void refuse(const error& why) {
  put(static_cast<std::uint64_t>(why.code));
  put(why.name.view());
  put(to_string(why.code));
}

void answer(const source_view& source) {
  const std::uint64_t total = source.schema->image_bytes;
  std::string image;
  std::vector<std::byte> slice(997);
  std::span<const std::byte> out[3];
  while (image.size() < total) {
    const gathered got = gather(source, image.size(), total - image.size(), out, slice);
    if (got.bytes == 0) return refuse({.code = errc::io, .at = image.size(), .name = std::string_view("gather")});
    for (std::size_t i = 0; i < got.pieces; ++i)
      image.append(reinterpret_cast<const char*>(out[i].data()), out[i].size());
  }
  put(std::uint64_t{0});
  put(image);
}

void answer_file() {
  const auto file = numpy_file::open(text());
  if (!file) return refuse(file.error());
  answer(numpy_files::source(*file));
}

template <class Array>
void answer_arrays() {
  struct given {
    std::string name, descr, buffer;
    std::uint64_t first;
    std::vector<std::uint64_t> shape;
    std::vector<std::int64_t> strides;
  };
  std::vector<given> all(number());
  std::vector<Array> arrays;
  for (given& g : all) {
    g.name = text();
    g.descr = text();
    g.buffer = text();
    g.first = number();
    g.shape.resize(number());
    g.strides.resize(g.shape.size());
    for (auto& extent : g.shape) extent = number();
    for (auto& stride : g.strides) stride = static_cast<std::int64_t>(number());
    Array array;
    array.name = g.name;
    array.descr = g.descr;
    array.shape = g.shape;
    array.data = reinterpret_cast<std::byte*>(g.buffer.data()) + g.first;
    array.strides_bytes = g.strides;
    arrays.push_back(array);
  }
  const auto model = numpy_tensors::make(std::span<const Array>(arrays));
  if (!model) return refuse(model.error());
  answer(numpy_tensors::source(*model));
}

}  // namespace

int main() {
  std::uint64_t kind = 0;
  while (try_number(kind)) {
    if (kind == 0) answer_file();
    else if (kind == 1) answer_arrays<numpy_array>();
    else answer_arrays<mutable_numpy_array>();
    std::fflush(stdout);
  }
  return 0;
}
