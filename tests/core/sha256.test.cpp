#include <tensorpull/core/sha256.hpp>
#include <tensorpull/integrity/concept.hpp>

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace sha256_test {

using tensorpull::sha256_hash;

static_assert(tensorpull::hash<sha256_hash>);

std::string hex(const tensorpull::sha256_value& value) {
  std::string out;
  for (const std::byte b : value)
    for (const unsigned half : {std::to_integer<unsigned>(b >> 4), std::to_integer<unsigned>(b & std::byte{15})})
      out += "0123456789abcdef"[half];
  return out;
}
std::string of(std::string_view text) {
  sha256_hash h;
  h.update(std::as_bytes(std::span(text)));
  return hex(h.value());
}

// FIPS 180-4's examples, and those of NIST's "SHA Test Vectors".
TEST(Sha256, Known_answers) {
  EXPECT_EQ(of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(of("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmno"
               "ijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu"),
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  EXPECT_EQ(of(std::string(1'000'000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, Constant_evaluation) {
  static constexpr auto value = [] {
    constexpr std::byte abc[]{std::byte{'a'}, std::byte{'b'}, std::byte{'c'}};
    sha256_hash h;
    h.update(abc);
    return h.value();
  }();
  static_assert(value[0] == std::byte{0xba} && value[31] == std::byte{0xad});
}

TEST(Sha256, Any_division_gives_the_same) {
  std::vector<std::byte> bytes(300);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7);
  for (std::size_t n = 0; n <= bytes.size(); ++n) {
    sha256_hash whole, parts;
    const std::span all(bytes.data(), n);
    whole.update(all);
    for (std::size_t at = 0, step = 1; at < n; at += step, step = step * 3 % 67 + 1)
      parts.update(all.subspan(at, std::min(step, n - at)));
    ASSERT_EQ(whole.value(), parts.value()) << n;
  }
}

TEST(Sha256, A_copy_goes_on_and_a_value_is_no_end) {
  const std::string_view a = "a", bc = "bc";
  sha256_hash h;
  h.update(std::as_bytes(std::span(a)));
  sha256_hash copy = h;
  (void)copy.value();
  copy.update(std::as_bytes(std::span(bc)));
  EXPECT_EQ(hex(copy.value()), of("abc"));
  EXPECT_EQ(hex(h.value()), of("a"));
  EXPECT_EQ(copy.digest(), 0xba7816bf8f01cfeau);
}

}  // namespace sha256_test
