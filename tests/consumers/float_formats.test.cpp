// Every code of every small float format, and every place where rounding decides.
#include <tensorpull/consumers/average/detail/elements.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace float_formats_test {

using namespace tensorpull::detail;

/// What a code means, from the formats' definitions and not from our code: sign, 2^(e - bias) * 1.m, subnormals at e =
/// 0.
struct definition {
  int exponent_bits, mantissa_bits, bias;
  float_specials specials;

  double value(unsigned code) const {
    const unsigned mantissa = code & ((1u << mantissa_bits) - 1),
                   exponent = code >> mantissa_bits & ((1u << exponent_bits) - 1);
    const bool negative = (code >> (mantissa_bits + exponent_bits) & 1) != 0;
    const bool top = exponent == (1u << exponent_bits) - 1, all_ones = top && mantissa == (1u << mantissa_bits) - 1;
    const double nan = std::numeric_limits<double>::quiet_NaN();
    if (specials == float_specials::ieee && top && mantissa != 0) return nan;
    if (specials == float_specials::ieee && top) return negative ? -HUGE_VAL : HUGE_VAL;
    if (specials == float_specials::nan_is_all_ones && all_ones) return nan;
    if (specials == float_specials::nan_is_negative_zero && negative && exponent == 0 && mantissa == 0) return nan;
    const double size = exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                                      : std::ldexp((1u << mantissa_bits) + mantissa,
                                                   static_cast<int>(exponent) - bias - mantissa_bits);
    return negative ? -size : size;
  }
};

template <class Format>
constexpr definition definition_of{};
template <>
constexpr definition definition_of<f16_format>{5, 10, 15, float_specials::ieee};
template <>
constexpr definition definition_of<bf16_format>{8, 7, 127, float_specials::ieee};
template <>
constexpr definition definition_of<f8_e5m2_format>{5, 2, 15, float_specials::ieee};
template <>
constexpr definition definition_of<f8_e4m3_format>{4, 3, 7, float_specials::nan_is_all_ones};
template <>
constexpr definition definition_of<f8_e5m2fnuz_format>{5, 2, 16, float_specials::nan_is_negative_zero};
template <>
constexpr definition definition_of<f8_e4m3fnuz_format>{4, 3, 8, float_specials::nan_is_negative_zero};

template <class Format>
class FloatFormat : public testing::Test {
 public:
  using storage = typename Format::storage;
  static constexpr definition is = definition_of<Format>;
  static constexpr unsigned codes = 1u << (8 * sizeof(storage));
  static double value(unsigned code) { return is.value(code); }
  /// the positive finite codes, ascending with their values
  static std::vector<unsigned> positive() {
    std::vector<unsigned> list;
    for (unsigned c = 0; c < codes / 2; ++c)
      if (std::isfinite(value(c))) list.push_back(c);
    return list;
  }
};
using formats =
    testing::Types<f16_format, bf16_format, f8_e5m2_format, f8_e4m3_format, f8_e5m2fnuz_format, f8_e4m3fnuz_format>;
TYPED_TEST_SUITE(FloatFormat, formats);

TYPED_TEST(FloatFormat, Decodes_every_code_exactly) {
  for (unsigned c = 0; c < this->codes; ++c) {
    const float got = TypeParam::decode(static_cast<typename TypeParam::storage>(c));
    const double expected = this->value(c);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(got)) << c;
    } else {
      ASSERT_EQ(static_cast<double>(got), expected) << c;
      ASSERT_EQ(std::signbit(got), std::signbit(expected)) << c;
    }
  }
}

TYPED_TEST(FloatFormat, Encodes_every_value_as_its_code) {
  for (unsigned c = 0; c < this->codes; ++c) {
    const float value = TypeParam::decode(static_cast<typename TypeParam::storage>(c));
    const unsigned back = TypeParam::encode(value);
    if (std::isnan(value)) EXPECT_TRUE(std::isnan(this->value(back))) << c;
    else ASSERT_EQ(back, c);
  }
}

TYPED_TEST(FloatFormat, Rounds_to_nearest_and_ties_to_even) {
  const auto finite = this->positive();
  const unsigned sign = this->codes / 2;
  for (std::size_t i = 0; i + 1 < finite.size(); ++i) {
    const float middle = static_cast<float>((this->value(finite[i]) + this->value(finite[i + 1])) / 2);  // exact
    const unsigned even = finite[i] % 2 == 0 ? finite[i] : finite[i + 1];
    ASSERT_EQ(TypeParam::encode(middle), even) << i;
    ASSERT_EQ(TypeParam::encode(std::nextafter(middle, 0.0f)), finite[i]) << i;
    ASSERT_EQ(TypeParam::encode(std::nextafter(middle, HUGE_VALF)), finite[i + 1]) << i;
    const bool signed_zero = this->is.specials != float_specials::nan_is_negative_zero;
    ASSERT_EQ(TypeParam::encode(-middle), even == 0 && !signed_zero ? 0 : even | sign) << i;
  }
}

TYPED_TEST(FloatFormat, Overflows_to_infinity_or_nan) {
  const double largest = this->value(this->positive().back()), step = largest - this->value(this->positive().end()[-2]);
  const bool has_infinity = this->is.specials == float_specials::ieee;
  const auto encoded = [&](float v) { return this->value(TypeParam::encode(v)); };
  EXPECT_EQ(encoded(std::nextafter(static_cast<float>(largest + step / 2), 0.0f)), largest);
  for (const float v :
       {static_cast<float>(largest + step / 2 + step / 4), std::numeric_limits<float>::max(), HUGE_VALF}) {
    if (has_infinity) {
      EXPECT_EQ(encoded(v), HUGE_VAL);
      EXPECT_EQ(encoded(-v), -HUGE_VAL);
    } else {
      EXPECT_TRUE(std::isnan(encoded(v))) << v;
      EXPECT_TRUE(std::isnan(encoded(-v))) << v;
    }
  }
  // what the codes of its NaNs would be if they were numbers: 98,304 would be F16's 0x7e00
  for (double v = largest + step; has_infinity && v < 4 * (largest + step) && v < 0x1p127; v += step)
    ASSERT_EQ(encoded(static_cast<float>(v)), HUGE_VAL) << v;
  EXPECT_TRUE(std::isnan(encoded(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_TRUE(std::isnan(encoded(-std::numeric_limits<float>::signaling_NaN())));
}

TYPED_TEST(FloatFormat, Finds_the_nearest_for_random_floats) {
  std::mt19937 random(7);
  const auto finite = this->positive();
  std::vector<double> values;
  for (const unsigned c : finite) values.push_back(this->value(c));
  for (int i = 0; i < 200'000; ++i) {
    const float v = std::fabs(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
    if (!(v < values.back())) continue;
    const auto above = std::upper_bound(values.begin(), values.end(), static_cast<double>(v));
    const double got = this->value(TypeParam::encode(v)), high = *above, low = above[-1];
    ASSERT_EQ(std::fabs(got - v), std::min(high - v, v - low)) << v;
  }
}

static_assert(f16_format::decode(0x3c00) == 1.0f && f16_format::encode(65520.0f) == 0x7c00 &&
              f16_format::decode(1) == 0x1p-24f);
static_assert(f8_e4m3_format::decode(0x7e) == 448.0f && f8_e4m3fnuz_format::decode(0x7f) == 240.0f &&
              f8_e5m2_format::decode(0x7b) == 57344.0f);
static_assert(bf16_format::decode(0x4049) == 3.140625f && bf16_format::encode(3.14159274f) == 0x4049);
static_assert(f8_e5m2fnuz_format::decode(0x7f) == 57344.0f && f8_e4m3fnuz_format::encode(-0.0f) == 0);

}  // namespace float_formats_test
