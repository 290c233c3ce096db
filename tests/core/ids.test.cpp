// References as text: what programs pass on to each other.
#include <tensorpull/core/ids.hpp>
#include <tensorpull/core/limits.hpp>

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <string_view>

namespace ids_test {

using namespace tensorpull;

constexpr ref_id id{0x0123456789abcdef, 0xfedcba9876543210};
constexpr std::string_view id_digits = "0123456789abcdeffedcba9876543210", version_digits = "00000000b13dc63d";
const std::string both = std::string(id_digits) + std::string(version_digits);

TEST(ReferenceText, A_reference_is_passed_on_with_its_version) {
  EXPECT_EQ(to_digits(reference{id, 0xb13dc63d, 7}).view(), both);
  const auto read = parse_reference(both);
  ASSERT_TRUE(read);
  EXPECT_EQ(*read, (reference{id, 0xb13dc63d, 0}));
  EXPECT_EQ(parse_reference("000000000000000000000000000000010000000000000002")->version, 2u);
}

TEST(ReferenceText, The_digits_of_an_ID_alone_are_a_reference_without_a_version) {
  EXPECT_EQ(to_digits(id).view(), id_digits);
  EXPECT_EQ(*parse_ref_id(id_digits), id);
  const auto read = parse_reference(id_digits);
  ASSERT_TRUE(read);
  EXPECT_EQ(*read, (reference{id, 0, 0}));
}

TEST(ReferenceText, Digits_of_either_case_are_read) {
  std::string upper = both;
  for (char& c : upper)
    if (c >= 'a') c = static_cast<char>(c - 'a' + 'A');
  EXPECT_EQ(*parse_reference(upper), *parse_reference(both));
}

TEST(ReferenceText, Nothing_else_is_read) {
  for (std::size_t length = 0; length <= 64; ++length) {
    const std::string digits(length, '7');
    EXPECT_EQ(static_cast<bool>(parse_ref_id(digits)), length == 32) << length;
    EXPECT_EQ(static_cast<bool>(parse_reference(digits)), length == 32 || length == 48) << length;
  }
  for (std::size_t at = 0; at < both.size(); ++at)
    for (const char c : {'g', '/', ':', '@', '`', ' ', '-', 'x', '\0', '\xb0'}) {
      std::string wrong = both;
      wrong[at] = c;
      EXPECT_EQ(parse_reference(wrong).error(), errc::invalid_argument) << at << ' ' << int{c};
    }
}

// A number that 64 bits do not hold is the greatest one.
static_assert([] {
  using detail::beyond_64_bits, detail::decimal_number;
  for (const std::string_view held : {"0", "7", "42", "18446744073709551609", "18446744073709551610",
                                      "18446744073709551614", "18446744073709551615", "1844674407370955161"})
    if (detail::decimal(*decimal_number(held)).view() != held) return false;
  for (const std::string_view beyond :
       {"18446744073709551616", "18446744073709551619", "18446744073709551620", "18446744073709551700",
        "20000000000000000000", "99999999999999999999", "184467440737095516150", "1000000000000000000000000"})
    if (*decimal_number(beyond) != beyond_64_bits) return false;
  return *decimal_number("000000000000000000000000000012") == 12 && !decimal_number("") && !decimal_number("+1");
}());

TEST(ReferenceText, Is_written_to_a_stream) {
  std::ostringstream out;
  out << "recv " << to_digits(reference{id, 0xb13dc63d, 7}) << ' ' << to_digits(id);
  EXPECT_EQ(out.str(), "recv " + both + ' ' + std::string(id_digits));
}

}  // namespace ids_test

// Without the rest of the library's names.
namespace only_sizes {
using namespace tensorpull::literals;
static_assert(64_KiB == 65'536 && 2_MiB == 2 * 1024_KiB && 1_GiB == 1024_MiB);
}  // namespace only_sizes
