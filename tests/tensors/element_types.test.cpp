// Which types of C++ are elements of a tensor: the rows of the table in tensors/README.md.
#include <tensorpull/tensors/structs/raw.hpp>

#include <complex>
#include <cstdint>
#include <map>
#include <string>

#include <gtest/gtest.h>

namespace element_types_test {

using namespace tensorpull;

enum class colour : std::uint8_t {
  red,
};
/// Members may have the names of dtypes.
struct each {
  bfloat16 bf16[4];
  float16 f16[2];
  float f32;
  double f64;
  bool boolean;
  long long i64;
  unsigned char u8;
  signed char i8;
  std::complex<float> c64;
  float8_e4m3 f8_e4m3[2][2];
};

}  // namespace element_types_test

BOOST_HANA_ADAPT_STRUCT(element_types_test::each, bf16, f16, f32, f64, boolean, i64, u8, i8, c64, f8_e4m3);

namespace element_types_test {

static_assert(!tensor_scalar<char> && !tensor_scalar<std::byte> && !tensor_scalar<colour> && !tensor_scalar<wchar_t> &&
              !tensor_scalar<long double> && !tensor_scalar<std::complex<double>> && !tensor_scalar<int*>);

TEST(ElementTypes, A_member_has_the_dtype_of_its_elements) {
  std::map<std::string, std::string> got;
  for (const tensor_entry& t : raw_tensors<each>::schema().entries()) got[std::string(t.name)] = to_string(t.type);
  const std::map<std::string, std::string> expected{
      {"bf16", "BF16"}, {"f16", "F16"}, {"f32", "F32"}, {"f64", "F64"}, {"boolean", "BOOL"},
      {"i64", "I64"},   {"u8", "U8"},   {"i8", "I8"},   {"c64", "C64"}, {"f8_e4m3", "F8_E4M3"}};
  EXPECT_EQ(got, expected);
}

TEST(ElementTypes, A_model_of_small_floats_is_filled_with_floats) {
  each model{};
  for (int i = 0; i < 4; ++i) model.bf16[i] = static_cast<float>(i) / 2;
  const source_view source = raw_tensors<each>::source(model);
  const auto* const stored = reinterpret_cast<const std::uint16_t*>(source.address([&] {
    std::size_t at = 0;
    while (source.schema->tensors[at].name != "bf16") ++at;
    return at;
  }()));
  EXPECT_EQ(stored[3], 0x3fc0u) << "1.5";
}

}  // namespace element_types_test
