#include <tensorpull/core/dtype.hpp>
#include <tensorpull/core/tensor_view.hpp>

#include <gtest/gtest.h>

#include <complex>
#include <string>

namespace dtype_test {

using namespace tensorpull;

TEST(Dtype, Names_and_values_are_inverse) {
  for (std::size_t i = 0; i < dtype_count; ++i) {
    const auto type = static_cast<dtype>(i);
    EXPECT_EQ(dtype_from_string(to_string(type)), type);
    EXPECT_TRUE(bits(type) == 4 || bits(type) == 6 || bits(type) % 8 == 0);
  }
  EXPECT_FALSE(dtype_from_string("F31"));
  EXPECT_FALSE(dtype_from_string(""));
  EXPECT_FALSE(dtype_from_string("f32"));
}

TEST(Dtype, Order_is_the_reference_librarys_own) {
  std::string order;
  for (std::size_t i = 0; i < dtype_count; ++i) order += std::string(to_string(static_cast<dtype>(i))) + ' ';
  EXPECT_EQ(order,
            "BOOL F4 F6_E2M3 F6_E3M2 U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ "
            "I16 U16 F16 BF16 I32 U32 F32 C64 F64 I64 U64 ");
}

TEST(Dtype, An_invalid_value_is_harmless) {
  constexpr auto bad = static_cast<dtype>(200);
  static_assert(!is_valid(bad) && bits(bad) == 0);
  EXPECT_EQ(to_string(bad), "?");
  EXPECT_EQ(size_bytes(bad, {}).error(), errc::unsupported_dtype);
}

static_assert(dtype_of<float>::value == dtype::f32 && dtype_of<double>::value == dtype::f64 &&
              dtype_of<bool>::value == dtype::boolean);
static_assert(dtype_of<std::int8_t>::value == dtype::i8 && dtype_of<std::uint64_t>::value == dtype::u64);
static_assert(dtype_of<long long>::value == dtype::i64 && dtype_of<unsigned short>::value == dtype::u16);
static_assert(dtype_of<std::complex<float>>::value == dtype::c64 && dtype_of<float8_e4m3>::value == dtype::f8_e4m3);
static_assert(tensor_scalar<std::complex<float>> && tensor_scalar<float16> && tensor_scalar<float8_e8m0>);
static_assert(!tensor_scalar<std::complex<double>> && !tensor_scalar<long double> && !tensor_scalar<char> &&
              !tensor_scalar<wchar_t>);
static_assert(!tensor_scalar<float*> && !tensor_scalar<std::byte> && !tensor_scalar<dtype> &&
              !tensor_scalar<const float>);

std::uint64_t size_of(dtype type, std::initializer_list<std::uint64_t> shape) {
  const auto size = size_bytes(type, std::span(shape.begin(), shape.size()));
  return size ? *size : ~std::uint64_t{};
}
errc refusal(dtype type, std::initializer_list<std::uint64_t> shape) {
  return size_bytes(type, std::span(shape.begin(), shape.size())).error().code;
}

TEST(TensorView, Sizes_are_checked) {
  EXPECT_EQ(size_of(dtype::f32, {}), 4u);
  EXPECT_EQ(size_of(dtype::f32, {2, 3}), 24u);
  EXPECT_EQ(size_of(dtype::f32, {0, ~std::uint64_t{}}), 0u);
  EXPECT_EQ(size_of(dtype::f4, {2}), 1u);
  EXPECT_EQ(size_of(dtype::f6_e2m3, {4}), 3u);
  EXPECT_EQ(refusal(dtype::f4, {3}), errc::unsupported_dtype);
  EXPECT_EQ(refusal(dtype::f6_e3m2, {2}), errc::unsupported_dtype);
  EXPECT_EQ(refusal(dtype::f4, {}), errc::unsupported_dtype);
  EXPECT_EQ(refusal(dtype::u8, {std::uint64_t{1} << 32, std::uint64_t{1} << 32}), errc::size_overflow);
  EXPECT_EQ(refusal(dtype::u8, {std::uint64_t{1} << 32, std::uint64_t{1} << 32, 0}), errc::size_overflow);
  EXPECT_EQ(refusal(dtype::f64, {std::uint64_t{1} << 61}), errc::size_overflow);
}

bool contiguous(std::initializer_list<std::uint64_t> shape, std::initializer_list<std::int64_t> strides) {
  return is_contiguous(dtype::f32, std::span(shape.begin(), shape.size()), std::span(strides.begin(), strides.size()));
}

TEST(TensorView, Contiguity_ignores_dimensions_of_one) {
  EXPECT_TRUE(contiguous({2, 3}, {12, 4}));
  EXPECT_TRUE(contiguous({2, 3}, {}));
  EXPECT_FALSE(contiguous({2, 3}, {4, 8}));
  EXPECT_TRUE(contiguous({2, 1, 3}, {12, 999, 4}));
  EXPECT_TRUE(contiguous({1, 3}, {-1, 4}));
  EXPECT_TRUE(contiguous({2, 0}, {1, 1}));
  EXPECT_FALSE(contiguous({3}, {-4}));
  EXPECT_FALSE(contiguous({3}, {0}));
}

}  // namespace dtype_test
