// Models for tests: tensors with memory of their own, surrounded by guard bytes that nobody may touch.
#pragma once

#include "random.hpp"
#include "results.hpp"

#include <tensorpull/image/dynamic.hpp>
#include <tensorpull/integrity/range_digest.hpp>
#include <tensorpull/integrity/xxhash/xxhash_digest.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

namespace test {

namespace tp = tensorpull;

/// A list of tensors and the image made of them. Memory starts as a fixed pattern; `shift` makes every address
/// unaligned.
class model {
 public:
  model() = default;
  model(model&&) = default;
  model(const model&) = delete;

  model& add(std::string name, dtype type, std::vector<std::uint64_t> shape, std::size_t shift = 0) {
    const auto bytes = tp::size_bytes(type, shape);
    EXPECT_TRUE(bytes);
    const std::size_t n = static_cast<std::size_t>(*bytes);
    tensors_.push_back(
        {std::move(name), type, std::move(shape), byte_vector(n + 2 * guard + shift, canary), n, guard + shift});
    return *this;
  }
  /// Makes the image; add nothing afterwards. The metadata is copied.
  model& ready(std::span<const tp::metadata_entry> metadata = {}) {
    std::vector<tp::mutable_tensor_view> views;
    for (auto& t : tensors_) views.push_back({t.name, t.type, t.shape, t.memory.data() + t.at});
    auto made = tp::dynamic_image::make(std::span<const tp::mutable_tensor_view>(views), metadata);
    EXPECT_TRUE(succeeded(made));
    if (made) image_.push_back(std::move(*made));
    return *this;
  }
  model&& fill(std::uint64_t seed) && { return std::move(fill(seed)); }
  model& fill(std::uint64_t seed) & {
    generator g(seed);
    for (auto& t : tensors_) g.fill({t.memory.data() + t.at, t.size});
    return *this;
  }

  const tp::image_schema& schema() const { return image_.front().schema(); }
  tp::source_view source() const { return image_.front().source(); }
  tp::destination_view destination() { return image_.front().destination(); }

  byte_vector image_bytes() const {
    byte_vector all;
    std::array<const_byte_span, 16> pieces;
    std::array<std::byte, 4096> slice;
    while (all.size() < schema().image_bytes) {
      const auto g = tp::gather(source(), all.size(), schema().image_bytes - all.size(), pieces, slice);
      for (std::size_t i = 0; i < g.pieces; ++i) all.insert(all.end(), pieces[i].begin(), pieces[i].end());
    }
    return all;
  }
  /// Tensor bytes by name.
  byte_vector bytes_of(std::string_view name) const {
    for (const auto& t : tensors_)
      if (t.name == name)
        return {t.memory.begin() + static_cast<std::ptrdiff_t>(t.at),
                t.memory.begin() + static_cast<std::ptrdiff_t>(t.at + t.size)};
    ADD_FAILURE() << "no tensor " << name;
    return {};
  }
  bool same_tensors(const model& other) const {
    if (tensors_.size() != other.tensors_.size()) return false;
    for (const auto& t : tensors_)
      if (other.bytes_of(t.name) != bytes_of(t.name)) return false;
    return true;
  }
  /// Nobody wrote around the tensors.
  bool guards_intact() const {
    return std::all_of(tensors_.begin(), tensors_.end(), [](const tensor& t) {
      const auto is_canary = [](std::byte b) { return b == canary; };
      return std::all_of(t.memory.begin(), t.memory.begin() + static_cast<std::ptrdiff_t>(t.at), is_canary) &&
             std::all_of(t.memory.begin() + static_cast<std::ptrdiff_t>(t.at + t.size), t.memory.end(), is_canary);
    });
  }
  /// Changes the first byte of the first tensor, in image order, that has any.
  void flip_first_byte() {
    const auto d = destination();
    for (std::size_t i = 0; i < d.schema->tensor_count; ++i)
      if (d.schema->tensors[i].end > d.schema->tensors[i].begin) {
        d.address(i)[0] ^= std::byte{1};
        return;
      }
  }
  /// Nobody wrote anything, tensors included.
  bool untouched() const {
    return std::all_of(tensors_.begin(), tensors_.end(), [](const tensor& t) {
      return std::all_of(t.memory.begin(), t.memory.end(), [](std::byte b) { return b == canary; });
    });
  }
  std::size_t size() const { return tensors_.size(); }
  std::string name(std::size_t i) const { return tensors_[i].name; }

 private:
  static constexpr std::size_t guard = 64;
  static constexpr std::byte canary{0xa5};
  struct tensor {
    std::string name;
    dtype type;
    std::vector<std::uint64_t> shape;
    byte_vector memory;
    std::size_t size, at;
  };
  std::deque<tensor> tensors_;
  std::vector<tp::dynamic_image> image_;
};

/// A model of those tensors of another one that `takes(i)`, without its values and its metadata.
template <class Takes>
model some_of(const model& source, Takes takes, std::span<const tp::metadata_entry> metadata = {}) {
  model m;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (!takes(i)) continue;
    const auto& t = source.schema().tensors[tp::detail::find_tensor(source.schema(), source.name(i))];
    m.add(source.name(i), t.type, {t.extents().begin(), t.extents().end()}, i % 3);
  }
  return std::move(m.ready(metadata));
}

/// Some tensors of several dtypes, odd sizes, scalars and empty ones; 6,150 bytes of data.
inline model mixed_model(std::size_t shift = 0) {
  model m;
  m.add("empty.first", dtype::u64, {0, 3}, shift)
      .add("layers.0.weight", dtype::f32, {30, 40}, shift)
      .add("layers.0.bias", dtype::f32, {40}, shift);
  m.add("step", dtype::i64, {}, shift)
      .add("scale", dtype::f16, {7, 3}, shift)
      .add("mask", dtype::boolean, {1, 13}, shift);
  m.add("hole", dtype::f32, {5, 0}, shift)
      .add("\xc3\xa9t\xc3\xa9 \"x\"", dtype::i8, {1117}, shift)
      .add("empty.last", dtype::boolean, {0}, shift);
  return std::move(m.ready());
}

inline std::uint64_t version_of(const model& m) { return *tp::image_version<tp::xxhash_digest>(m.source()); }

}  // namespace test
