#include <tensorpull/satellites/numpy_files/detail/inflate.hpp>

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <string_view>

namespace inflate_test {

namespace tp = tensorpull;

struct text_file {
  std::string bytes;
  tp::result<void> read_at(std::uint64_t offset, std::span<std::byte> out) const noexcept {
    std::memcpy(out.data(), bytes.data() + offset, out.size());
    return {};
  }
};

std::string from_hex(std::string_view hex) {
  std::string out;
  for (std::size_t i = 0; i < hex.size(); i += 2)
    out += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  return out;
}
tp::result<std::string> unpacked(const std::string& packed, std::uint64_t size) {
  const text_file file{packed};
  auto bytes = tp::detail::inflater(file, 0, packed.size()).unpack(size);
  if (!bytes) return tp::failure(bytes.error());
  return std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size());
}

/// What zlib made of `plain`.
struct answer {
  std::string plain, packed;
};
std::vector<answer> known_answers() {
  std::string text, letters;
  for (int i = 0; i < 12; ++i) text += "tensor " + std::to_string(i % 7) + " of a model; ";
  std::uint32_t x = 1;
  for (int i = 0; i < 300; ++i) {
    x = x * 1664525 + 1013904223;
    letters += "aaaaaaaabbbbccde"[x >> 28];
  }
  return {
      {"", from_hex("0300")},
      {text.substr(0, 20), from_hex("011400ebff74656e736f722030206f662061206d6f64656c3b")},
      {text,
       from_hex("2b49cd2bce2f523050c84f534854c8cd4f49cdb1562881081a621334c226688c4dd0049ba0293641336c82b4771200")},
      // codes of its own, and repetitions
      {letters,
       from_hex("3d50c9110421108a1590fc535840677d58da9c0a908088ec14acddb3363e8083f8d04629e564a451d46b293db8e821ab6319"
                "c77f1b5c6d62180866e3a6baf388e35b15f945e0e95687435e4945a95ba65c7d2e384bf32bb6f17c82680653d58873f14be7"
                "5ea4eaf2112513f7499a8db4aaf801")},
  };
}

TEST(Inflate, Known_answers) {
  for (const auto& [plain, packed] : known_answers()) {
    const auto out = unpacked(packed, plain.size());
    ASSERT_TRUE(out) << plain;
    EXPECT_EQ(*out, plain);
  }
}

TEST(Inflate, A_stream_has_all_that_it_is_said_to_have_and_no_more) {
  for (const auto& [plain, packed] : known_answers()) {
    EXPECT_FALSE(unpacked(packed, plain.size() + 1));
    if (!plain.empty()) {
      EXPECT_FALSE(unpacked(packed, plain.size() - 1));
    }
    EXPECT_FALSE(unpacked(packed + "x", plain.size())) << "bytes behind it";
    for (std::size_t n = 0; n < packed.size(); ++n) EXPECT_FALSE(unpacked(packed.substr(0, n), plain.size())) << n;
  }
}

TEST(Inflate, What_is_no_stream_is_refused) {
  EXPECT_EQ(unpacked(from_hex("07"), 1).error().code, tp::errc::bad_file) << "the fourth kind of block";
  EXPECT_FALSE(unpacked(from_hex("010100ffff61"), 1)) << "a length whose complement is another";
  EXPECT_FALSE(unpacked(from_hex("4b0401"), 9)) << "a distance before the first byte";
  for (const auto& [plain, packed] : known_answers())
    for (std::size_t i = 0; i < packed.size() * 8; ++i) {
      std::string wrong = packed;
      wrong[i / 8] = static_cast<char>(wrong[i / 8] ^ 1 << i % 8);
      const auto out = unpacked(wrong, plain.size());  // right by chance, or not; never more than that
      if (out) {
        EXPECT_EQ(out->size(), plain.size());
      }
    }
}

}  // namespace inflate_test
