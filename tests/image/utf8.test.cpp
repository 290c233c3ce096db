#include <tensorpull/image/utf8.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace utf8_test {

using tensorpull::is_utf8;

std::string encode(std::uint32_t c) {
  const auto octet = [](std::uint32_t x) { return static_cast<char>(x); };
  if (c < 0x80) return {octet(c)};
  if (c < 0x800) return {octet(0xc0 | c >> 6), octet(0x80 | (c & 63))};
  if (c < 0x10000) return {octet(0xe0 | c >> 12), octet(0x80 | (c >> 6 & 63)), octet(0x80 | (c & 63))};
  return {octet(0xf0 | c >> 18), octet(0x80 | (c >> 12 & 63)), octet(0x80 | (c >> 6 & 63)), octet(0x80 | (c & 63))};
}

TEST(Utf8, Accepts_every_code_point_and_no_surrogate) {
  for (std::uint32_t c = 0; c < 0x110000; ++c) ASSERT_EQ(is_utf8(encode(c)), c < 0xd800 || c > 0xdfff) << c;
  EXPECT_FALSE(is_utf8(encode(0x110000)));
  EXPECT_FALSE(is_utf8(encode(0x1fffff)));
}

TEST(Utf8, Refuses_truncated_overlong_and_stray_bytes) {
  for (const std::uint32_t c : {0xe9u, 0x20acu, 0x1f600u}) {
    const std::string whole = encode(c);
    for (std::size_t n = 1; n < whole.size(); ++n) {
      EXPECT_FALSE(is_utf8(whole.substr(0, n)));
      EXPECT_FALSE(is_utf8(whole.substr(0, n) + "a"));
      EXPECT_FALSE(is_utf8(whole.substr(n)));
    }
    EXPECT_TRUE(is_utf8(whole + "a" + whole));
  }
  for (const char* text : {"\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xe0\x9f\xbf", "\xf0\x80\x80\x80",
                           "\xf0\x8f\xbf\xbf", "\xf8\x88\x80\x80\x80", "\xff", "\x80"})
    EXPECT_FALSE(is_utf8(text)) << text;
}

}  // namespace utf8_test
