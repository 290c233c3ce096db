// What the two ends of tests/edge move: members of every width of numbers, with values that every machine has exactly.
// pair.py computes the same.
#pragma once

#include <tensorpull/tensorpull.hpp>

#include <complex>
#include <cstdint>
#include <vector>

namespace edge {

/// Long enough for a socket's reads to cut numbers anywhere.
struct layer {
  float w[120][301];
  float b[37];
};
struct model {
  layer layers[2];
  double scale[3];
  std::int64_t step;
  std::uint32_t count[2];
  std::int16_t small[5];
  tensorpull::bfloat16 half[7];
  std::complex<float> waves[4];
  bool mask[9];
  std::int8_t q[101];
};

/// Calls f(member, value) for each number of a model. `waves` has two numbers an element.
template <class Model, class F>
void for_each_number(Model& m, F f) {
  for (int l = 0; l < 2; ++l) {
    for (int i = 0; i < 120; ++i)
      for (int k = 0; k < 301; ++k) f(m.layers[l].w[i][k], static_cast<float>((i * 301 + k + l * 7) % 2003 - 1000) / 8);
    for (int i = 0; i < 37; ++i) f(m.layers[l].b[i], static_cast<float>(i + 100 * l) / 16);
  }
  for (int i = 0; i < 3; ++i) f(m.scale[i], 1.0 / 1024 + i);
  f(m.step, std::int64_t{0x0123456789abcdef});
  for (unsigned i = 0; i < 2; ++i) f(m.count[i], 0x89abcdefu + i);
  for (int i = 0; i < 5; ++i) f(m.small[i], static_cast<std::int16_t>(-300 + i));
  for (int i = 0; i < 7; ++i) f(m.half[i].bits, static_cast<std::uint16_t>(0x3f80 + i));
  for (int i = 0; i < 4; ++i)
    f(m.waves[i], std::complex<float>(static_cast<float>(i) + 0.5f, static_cast<float>(-i) - 0.25f));
  for (int i = 0; i < 9; ++i) f(m.mask[i], i % 3 == 0);
  for (int i = 0; i < 101; ++i) f(m.q[i], static_cast<std::int8_t>(i - 50));
}

inline void fill(model& m) {
  for_each_number(m, [](auto& member, auto value) { member = value; });
}
inline bool holds_the_values(const model& m) {
  bool all = true;
  for_each_number(m, [&all](const auto& member, auto value) { all &= member == value; });
  return all;
}

using bytes = std::vector<std::byte>;

/// The first `length` bytes of an image, taken `slice_bytes` at a time.
inline bytes collect(const tensorpull::source_view& from, std::uint64_t length, std::size_t slice_bytes) {
  bytes all, slice(slice_bytes);
  std::span<const std::byte> pieces[4];
  while (all.size() < length) {
    const tensorpull::gathered g = tensorpull::gather(from, all.size(), length - all.size(), pieces, slice);
    for (std::size_t i = 0; i < g.pieces; ++i) all.insert(all.end(), pieces[i].begin(), pieces[i].end());
    if (g.bytes == 0) break;
  }
  return all;
}

}  // namespace edge

BOOST_HANA_ADAPT_STRUCT(edge::layer, w, b);
BOOST_HANA_ADAPT_STRUCT(edge::model, layers, scale, step, count, small, half, waves, mask, q);
