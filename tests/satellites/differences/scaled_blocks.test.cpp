// Differences in blocks of 8 and 4 bits: against plain arithmetic, in every element type, and the same bits at both
// ends.
#include <tensorpull/satellites/differences/scheme/scaled_blocks.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace scaled_blocks_test {

using namespace tensorpull;

template <class T>
T element(double value) {
  return detail::narrowed_to<T>(value);
}
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// An element type, and bits of a code.
template <class T, unsigned Bits>
struct with {
  using type = T;
  template <std::size_t N>
  using blocks = scaled_blocks<N, Bits>;
  static constexpr unsigned bits = Bits;
};
/// The codes of elements, one by one.
template <class Blocks>
std::vector<int> each_of(std::span<const typename Blocks::code_type> codes, std::size_t elements) {
  std::vector<int> made;
  for (std::size_t i = 0; i < elements; ++i) {
    const auto byte = static_cast<unsigned char>(codes[i / Blocks::byte_elements]);
    if (Blocks::byte_elements == 1) made.push_back(static_cast<std::int8_t>(byte));
    else made.push_back(i % 2 == 0 ? byte % 16 - (byte % 16 < 8 ? 0 : 16) : byte / 16 - (byte < 128 ? 0 : 16));
  }
  return made;
}

template <class T>
struct Blocks : testing::Test {};
using elements = testing::Types<with<float, 8>, with<double, 8>, with<float16, 8>, with<bfloat16, 8>, with<float, 4>,
                                with<double, 4>, with<float16, 4>, with<bfloat16, 4>>;
TYPED_TEST_SUITE(Blocks, elements);

TEST(Moved, Agrees_with_the_compilers_own_conversion) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 2'000'000; ++i) {
    const std::uint64_t word = random();
    const auto bits = static_cast<std::uint32_t>(word);
    float value = 0;
    std::memcpy(&value, &bits, 4);
    const double wide = detail::widened(value);
    if (!std::isnan(value)) {
      EXPECT_EQ(wide, static_cast<double>(value));
      EXPECT_EQ(std::signbit(wide), std::signbit(value));
    } else {
      EXPECT_NE(wide, wide);
    }
    // exponents around those of a float, so that subnormals, ties and overflow come
    std::uint64_t near = (word & 0x800fffffffffffff) | (870 + (random() % 290)) << 52;
    if (i % 4 == 0) near &= 0xffffffffe0000000;
    if (i % 8 == 0) near |= 0x10000000;
    double d = 0;
    std::memcpy(&d, &near, 8);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(element<float>(d)), std::bit_cast<std::uint32_t>(static_cast<float>(d)));
  }
}

TEST(Moved, Every_code_of_16_bits_comes_back) {
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    float16 half;
    half.bits = static_cast<std::uint16_t>(code);
    bfloat16 brain;
    brain.bits = static_cast<std::uint16_t>(code);
    const float h = half, b = brain;
    if (h == h) {
      EXPECT_EQ(detail::widened(half), static_cast<double>(h));
      EXPECT_EQ(element<float16>(detail::widened(half)).bits, code);
    }
    if (b == b) {
      EXPECT_EQ(detail::widened(brain), static_cast<double>(b));
      EXPECT_EQ(element<bfloat16>(detail::widened(brain)).bits, code);
    }
  }
}

TEST(Moved, A_step_of_zero_leaves_the_bits) {
  EXPECT_TRUE(std::signbit(moved(-0.0f, 0.0)));
  EXPECT_TRUE(std::signbit(moved(-0.0f, -0.0)));
  const float odd = std::bit_cast<float>(0x7f800001u);  // a NaN that signals
  EXPECT_EQ(std::bit_cast<std::uint32_t>(moved(odd, 0.0)), 0x7f800001u);
}

template <class T>
T largest_value() {
  using bits = detail::element_bits<T>;
  const double infinity = std::numeric_limits<double>::infinity();
  return std::bit_cast<T>(static_cast<bits>(std::bit_cast<bits>(element<T>(infinity)) - 1));
}

// A code is rounded, so a step may be longer than the difference: weights at the largest value became infinite.
TYPED_TEST(Blocks, Never_move_what_is_finite_to_infinity) {
  using T = typename TypeParam::type;
  using blocks = typename TypeParam::template blocks<4>;
  const T most = largest_value<T>();
  const double wide = detail::widened(most);
  ASSERT_TRUE(std::isfinite(wide));
  for (const double sign : {1.0, -1.0}) {
    const T edge = element<T>(sign * wide);
    std::vector<T> base{element<T>(sign * wide * 0.6), element<T>(sign * wide * 0.99), edge, element<T>(0.0)};
    const std::vector<T> model{element<T>(sign * wide * 0.9), edge, edge, element<T>(sign * wide * 0.31)};
    auto here = base;
    const auto scale = blocks::template scale<T>(model, base);
    ASSERT_TRUE(scale || sizeof(T) == 8);  // such differences of F64 have no scale
    for (const T from : base)
      for (int code = -blocks::most - 1; code <= blocks::most; ++code) {
        const double step = (scale ? static_cast<double>(*scale) : wide / blocks::most) * code;
        EXPECT_TRUE(std::isfinite(detail::widened(moved(from, step)))) << code;
      }
    EXPECT_TRUE(same_bits(std::vector<T>{edge}, std::vector<T>{moved(edge, sign * wide)}));
    if (!scale) continue;
    std::vector<typename blocks::code_type> codes(static_cast<std::size_t>(blocks::code_bytes(base.size())));
    blocks::template narrow<T>(model, base, *scale, codes);
    auto there = base;
    blocks::template move<T>(there, *scale, codes);
    ASSERT_TRUE(blocks::template advance<T>(model, here));
    EXPECT_TRUE(same_bits(here, there));
  }
  const T infinite = element<T>(std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isinf(detail::widened(moved(infinite, -1.0)))) << "what is not finite stays as it is";
}

TYPED_TEST(Blocks, Agree_with_plain_arithmetic) {
  using T = typename TypeParam::type;
  using blocks = typename TypeParam::template blocks<8>;
  std::mt19937_64 random(2);
  std::normal_distribution<double> normal;
  for (int round = 0; round < 2000; ++round) {
    const auto n = static_cast<std::size_t>(round) % 9;
    std::vector<T> base(n), model(n);
    for (std::size_t i = 0; i < n; ++i) {
      base[i] = element<T>(normal(random));
      model[i] = element<T>(detail::widened(base[i]) + normal(random) * 1e-2);
    }
    const auto scale = blocks::template scale<T>(model, base);
    ASSERT_TRUE(scale);
    double largest = 0;
    for (std::size_t i = 0; i < n; ++i)
      largest = std::max(largest, std::abs(detail::widened(model[i]) - detail::widened(base[i])));
    EXPECT_EQ(*scale, static_cast<float>(largest / blocks::most));
    std::vector<typename blocks::code_type> codes(static_cast<std::size_t>(blocks::code_bytes(n)));
    blocks::template narrow<T>(model, base, *scale, codes);
    const auto each = each_of<blocks>(codes, n);
    if (TypeParam::bits == 4 && n % 2 == 1) {
      EXPECT_EQ(static_cast<unsigned char>(codes.back()) >> 4, 0);
    }
    auto there = base, here = base;
    blocks::template move<T>(there, *scale, codes);
    for (std::size_t i = 0; i < n; ++i) {
      const double d = detail::widened(model[i]) - detail::widened(base[i]);
      int expected = *scale == 0 ? 0
                                 : static_cast<int>(
                                       std::clamp<double>(std::nearbyint(d / *scale), -blocks::most, blocks::most));
      const double to = detail::widened(model[i]), after = detail::widened(base[i]) + *scale * double{1} * expected;
      if (expected > 0 && after > 0 && to <= 0) --expected;
      if (expected < 0 && after < 0 && to >= 0) ++expected;
      ASSERT_EQ(each[i], expected);
      const auto plain = element<T>(detail::widened(base[i]) + static_cast<double>(*scale) * each[i]);
      if (each[i] != 0) {
        ASSERT_EQ(std::memcmp(&there[i], &plain, sizeof(T)), 0);
      }
    }
    ASSERT_TRUE(blocks::template advance<T>(model, here));
    EXPECT_TRUE(same_bits(here, there));
  }
}

/// A variance that becomes negative is a NaN in the next evaluation.
TYPED_TEST(Blocks, Take_no_element_across_zero_if_the_model_is_not_there) {
  using T = typename TypeParam::type;
  using blocks = typename TypeParam::template blocks<256>;
  std::mt19937_64 random(4);
  std::lognormal_distribution<double> variance(0, 1.5);
  for (const double sign : {1.0, -1.0}) {
    int small = 0;
    for (int round = 0; round < 50; ++round) {
      std::vector<T> base(256), model(256);
      for (T& w : base) w = element<T>(sign * (round % 2 == 0 ? 1.0 : variance(random)));
      for (T& w : model) w = random() % 16 == 0 ? T{} : element<T>(sign * variance(random));
      const auto scale = blocks::template advance<T>(model, base);
      ASSERT_TRUE(scale);
      for (std::size_t i = 0; i < base.size(); ++i) {
        ASSERT_GE(sign * detail::widened(base[i]), 0.0);
        small += std::abs(detail::widened(model[i])) < *scale / 2;
      }
    }
    EXPECT_GT(small, 100) << "nothing was near zero";
  }
  std::vector<T> base{element<T>(1), element<T>(1)};
  ASSERT_TRUE(blocks::template advance<T>(std::vector<T>{element<T>(-1), element<T>(-0.5)}, base));
  EXPECT_LT(detail::widened(base[0]), -0.9) << "the model is there";
  EXPECT_LT(detail::widened(base[1]), -0.4);
}

TYPED_TEST(Blocks, Stay_equal_at_both_ends_for_50_rounds_down_and_up) {
  using T = typename TypeParam::type;
  using blocks = typename TypeParam::template blocks<256>;
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal;
  for (const std::size_t n :
       {std::size_t{1}, std::size_t{255}, std::size_t{256}, std::size_t{257}, std::size_t{1000}}) {
    std::vector<T> owner(n), client(n);
    for (std::size_t i = 0; i < n; ++i) owner[i] = client[i] = element<T>(normal(random));
    const auto send = [&](std::vector<T>& from, std::vector<T>& to) {
      auto model = from;
      for (T& w : model) w = element<T>(detail::widened(w) + normal(random) * 1e-3);
      for (std::size_t at = 0; at < n; at += 256) {
        const std::size_t m = std::min<std::size_t>(256, n - at);
        const auto piece = std::span<const T>(model).subspan(at, m);
        const auto scale = blocks::template scale<T>(piece, std::span<const T>(from).subspan(at, m));
        ASSERT_TRUE(scale);
        std::vector<typename blocks::code_type> codes(static_cast<std::size_t>(blocks::code_bytes(m)));
        blocks::template narrow<T>(piece, std::span<const T>(from).subspan(at, m), *scale, codes);
        blocks::template move<T>(std::span<T>(to).subspan(at, m), *scale, codes);
        ASSERT_TRUE(blocks::template advance<T>(piece, std::span<T>(from).subspan(at, m)));
      }
    };
    for (int round = 0; round < 50; ++round) {
      send(owner, client);
      ASSERT_TRUE(same_bits(owner, client)) << n << " elements, round " << round << ", down";
      send(client, owner);
      ASSERT_TRUE(same_bits(owner, client)) << n << " elements, round " << round << ", up";
    }
  }
}

TYPED_TEST(Blocks, Refuse_what_is_not_finite_and_say_which) {
  using T = typename TypeParam::type;
  using blocks = typename TypeParam::template blocks<4>;
  for (const double bad : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    const std::vector<T> good(3, element<T>(1)), one{element<T>(1), element<T>(1), element<T>(bad)};
    const auto a = blocks::template scale<T>(one, good), b = blocks::template scale<T>(good, one),
               c = blocks::template scale<T>(one, one);
    for (const auto* r : {&a, &b, &c}) {
      ASSERT_FALSE(*r);
      EXPECT_EQ((*r).error().code, errc::invalid_argument);
    }
    auto base = good;
    EXPECT_FALSE(blocks::template advance<T>(one, base));
    EXPECT_TRUE(same_bits(base, good));
  }
}

TEST(HalfBytes, Have_two_codes_in_a_byte_and_each_code_a_meaning) {
  using blocks = blocks_of_4_bits<16>;
  std::vector<std::uint8_t> codes(8);
  for (std::size_t i = 0; i < 8; ++i) codes[i] = static_cast<std::uint8_t>((2 * i + 1) << 4 | 2 * i);
  std::vector<float> base(16, 100.0f);
  blocks::move<float>(base, 0.5f, codes);
  for (std::size_t i = 0; i < 16; ++i)
    EXPECT_EQ(base[i], 100 + 0.5f * static_cast<float>(i < 8 ? static_cast<int>(i) : static_cast<int>(i) - 16)) << i;
  std::vector<float> three(3, 100.0f);
  const std::uint8_t two[]{0x87, 0x7f};  // what is left of the last byte means nothing
  blocks::move<float>(three, 1.0f, two);
  EXPECT_EQ(three, (std::vector<float>{107, 92, 99}));
  static_assert(blocks::code_bytes(0) == 0 && blocks::code_bytes(1) == 1 && blocks::code_bytes(3) == 2);
  static_assert(blocks::code_bytes(~std::uint64_t{0}) == std::uint64_t{1} << 63);
}

TEST(Scales, That_would_be_subnormal_are_zero) {
  using blocks = blocks_of_8_bits<4>;
  const std::vector<float> base{0, 0}, model{std::numeric_limits<float>::min(), 0};
  const auto scale = blocks::scale<float>(model, base);
  ASSERT_TRUE(scale);
  EXPECT_EQ(*scale, 0.0f);
  std::int8_t codes[2] = {1, 1};
  blocks::narrow<float>(model, base, *scale, codes);
  EXPECT_EQ(codes[0], 0);
  const std::vector<double> far{1e300}, near{0};
  EXPECT_FALSE(blocks::scale<double>(far, near));
}

TEST(Scales, From_outside_are_finite_positive_and_not_subnormal) {
  for (const std::uint32_t good : {0u, 0x800000u, 0x3f800000u, 0x7f7fffffu})
    EXPECT_TRUE(is_scale(std::bit_cast<float>(good))) << good;
  for (const std::uint32_t bad : {1u, 0x7fffffu, 0x7f800000u, 0x7fc00000u, 0x80000000u, 0xbf800000u, 0xff800000u})
    EXPECT_FALSE(is_scale(std::bit_cast<float>(bad))) << bad;
}

}  // namespace scaled_blocks_test
