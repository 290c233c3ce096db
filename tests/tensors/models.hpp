// Models for the tests of static images: nested, of every scalar, with members that are not adapted, and of a thousand
// tensors.
#pragma once

#include <tensorpull/core/dtype.hpp>

#include <boost/hana/adapt_struct.hpp>

#include <array>
#include <complex>
#include <cstdint>
#include <string>

namespace test {

using namespace tensorpull;

struct linear {
  float weight[4][3];
  std::array<float, 4> bias;
};

struct block {
  linear up, down;
  std::string note;  // not adapted: not part of the image
  bfloat16 scale;
};

struct everything {
  std::array<block, 11> layers;
  linear grid[2][3];
  bool flag;
  std::int8_t i8;
  std::uint8_t u8[5];
  std::int16_t i16;
  std::uint16_t u16;
  std::int32_t i32;
  std::uint32_t u32;
  std::int64_t i64;
  std::uint64_t u64;
  float f32;
  double f64[1][2][1][2];
  std::complex<float> c64[3];
  float16 f16;
  float8_e4m3 e4m3[3];
  float8_e5m2 e5m2;
  float8_e8m0 e8m0;
  std::array<float, 0> nothing;
  std::array<linear, 0> no_layers;
};

struct small {
  double a;
  std::int32_t b, c;
  std::uint8_t d[3];
};
struct thousand {
  small layers[250];
};
struct five_blocks {
  small one[5], two[5], three[5], four[5], five[5];
};
struct wide {
  five_blocks a, b, c, d, e, f, g, h, i, j;
};

}  // namespace test

BOOST_HANA_ADAPT_STRUCT(test::linear, weight, bias);
BOOST_HANA_ADAPT_STRUCT(test::block, up, down, scale);
BOOST_HANA_ADAPT_STRUCT(test::everything, layers, grid, flag, i8, u8, i16, u16, i32, u32, i64, u64, f32, f64, c64, f16,
                        e4m3, e5m2, e8m0, nothing, no_layers);
BOOST_HANA_ADAPT_STRUCT(test::small, a, b, c, d);
BOOST_HANA_ADAPT_STRUCT(test::thousand, layers);
BOOST_HANA_ADAPT_STRUCT(test::five_blocks, one, two, three, four, five);
BOOST_HANA_ADAPT_STRUCT(test::wide, a, b, c, d, e, f, g, h, i, j);
