// The element types of 16 bits as numbers: against the compiler's own, and against what nearest and even mean.
#include <tensorpull/core/dtype.hpp>

#include "random.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace small_floats_test {

namespace tp = tensorpull;
using tp::bfloat16;
using tp::float16;

static_assert(std::is_trivially_copyable_v<float16> && std::is_trivially_default_constructible_v<bfloat16>);
static_assert(!std::is_constructible_v<float16, int> && !std::is_constructible_v<bfloat16, std::uint16_t> &&
              !std::is_constructible_v<bfloat16, double>);
static_assert(bfloat16(3.14159274f).bits == 0x4049 && float16(65520.0f).bits == 0x7c00 && float16(1.5f) * 2 == 3.0f);

template <class T>
T of_bits(unsigned bits) {
  return std::bit_cast<T>(static_cast<std::uint16_t>(bits));
}
float next(float f, float to) { return std::nextafter(f, to); }

/// What rounding has to decide: every value, the middle between each two neighbours, and the floats beside these.
template <class T>
std::vector<float> borders() {
  std::vector<float> all;
  const float up = std::numeric_limits<float>::infinity();
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const float f = of_bits<T>(bits), after = of_bits<T>((bits + 1) & 0xffff);
    all.push_back(f);
    if (!std::isfinite(f)) continue;
    all.push_back(next(f, up)), all.push_back(next(f, -up));
    if (!std::isfinite(after) || bits == 0x7fff) continue;
    const auto middle = static_cast<float>((double{f} + double{after}) / 2);
    all.push_back(middle), all.push_back(next(middle, up)), all.push_back(next(middle, -up));
  }
  for (const float f : {65519.996f, 65520.0f, 65535.0f, 65536.0f, 3.3895314e38f, 3.3961775e38f, 3.4028235e38f, 0x1p-25f,
                        0x1.000002p-25f, 0x1p-126f, 0x1p-149f, up})
    all.push_back(f), all.push_back(-f);
  return all;
}

template <class T>
class SmallFloats : public testing::Test {};
using types = testing::Types<float16, bfloat16>;
TYPED_TEST_SUITE(SmallFloats, types);

TYPED_TEST(SmallFloats, Every_value_is_itself_after_a_float) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const auto value = of_bits<TypeParam>(bits);
    const float f = value;
    const TypeParam back = f;
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(back))) << bits;
      EXPECT_EQ(back.bits & 0x8000, bits & 0x8000) << "its sign is kept";
    } else {
      ASSERT_EQ(back.bits, bits);
    }
  }
}

TYPED_TEST(SmallFloats, A_float_becomes_the_nearest_value_and_of_two_the_even_one) {
  for (const float f : borders<TypeParam>()) {
    if (std::isnan(f)) continue;
    const TypeParam got = f;
    const auto distance = [&](TypeParam candidate) {
      // of infinity: as if the next power of two were there, as IEEE 754 has it
      const float c = candidate;
      if (!std::isinf(c)) return std::abs(double{f} - double{c});
      const double beyond = std::is_same_v<TypeParam, float16> ? 65536.0 : 0x1p128;
      return std::isinf(f) ? 0.0 : std::abs(double{f} - std::copysign(beyond, double{c}));
    };
    const double mine = distance(got);
    for (const int step : {-1, 1}) {
      const auto other = of_bits<TypeParam>(static_cast<unsigned>(got.bits + step) & 0xffff);
      if (std::isnan(static_cast<float>(other)) || std::signbit(static_cast<float>(other)) != std::signbit(f)) continue;
      ASSERT_TRUE(mine < distance(other) || (mine == distance(other) && got.bits % 2 == 0))
          << f << " became " << static_cast<float>(got) << ", and not " << static_cast<float>(other);
    }
    ASSERT_EQ(std::signbit(static_cast<float>(got)), std::signbit(f)) << f;
  }
}

TEST(SmallFloatsOfTheCompiler, A_bfloat16_is_the_upper_half_of_a_float) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const float f = of_bits<bfloat16>(bits);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(f), bits << 16);
  }
}

#if defined(__FLT16_MANT_DIG__) && (defined(__clang__) || defined(__x86_64__) || defined(__i386__) || __GNUC__ >= 13)
TEST(SmallFloatsOfTheCompiler, A_float16_is_the_compilers) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const float mine = of_bits<float16>(bits), its = static_cast<float>(of_bits<_Float16>(bits));
    if (std::isnan(its)) EXPECT_TRUE(std::isnan(mine)) << bits;
    else ASSERT_EQ(std::bit_cast<std::uint32_t>(mine), std::bit_cast<std::uint32_t>(its)) << bits;
  }
  auto all = borders<float16>();
  test::generator random(1);
  for (int i = 0; i < 1'000'000; ++i) all.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  for (const float f : all) {
    const float16 mine = f;
    const auto its = static_cast<_Float16>(f);
    if (std::isnan(f)) EXPECT_TRUE(std::isnan(static_cast<float>(mine)));
    else ASSERT_EQ(mine.bits, std::bit_cast<std::uint16_t>(its)) << f;
  }
}
static_assert(tp::tensor_scalar<_Float16> && tp::dtype_of<_Float16>::value == tp::dtype::f16);
#endif
#if defined(__STDCPP_BFLOAT16_T__)
static_assert(tp::tensor_scalar<decltype(0.0bf16)> && tp::dtype_of<decltype(0.0bf16)>::value == tp::dtype::bf16);
#endif

TEST(SmallFloatsOfTheCompiler, They_are_numbers_where_a_float_is_wanted) {
  bfloat16 b = 1.5f;
  b = b + 1;
  EXPECT_EQ(b, 2.5f);
  const double d = b;
  EXPECT_EQ(d, 2.5);
  float16 h[2]{0.5f, float{b}};
  EXPECT_TRUE(h[0] < h[1]);
  h[0] = std::sqrt(4.0f);
  EXPECT_EQ(h[0] * h[1], 5.0f);
}

}  // namespace small_floats_test
