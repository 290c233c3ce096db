#include <tensorpull/core/xxh3.hpp>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace xxh3_test {

using tensorpull::xxh3_64;

std::vector<std::byte> random_bytes(std::size_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<std::byte> bytes(n);
  for (auto& b : bytes) b = static_cast<std::byte>(generator());
  return bytes;
}

std::uint64_t ours(std::span<const std::byte> bytes) {
  xxh3_64 hash;
  hash.update(bytes);
  return hash.digest();
}

TEST(Xxh3, Equals_xxhash_for_every_length_across_two_blocks) {
  const auto bytes = random_bytes(2100, 1);
  for (std::size_t n = 0; n <= bytes.size(); ++n) ASSERT_EQ(ours({bytes.data(), n}), XXH3_64bits(bytes.data(), n)) << n;
}

TEST(Xxh3, Equals_xxhash_for_long_inputs) {
  for (std::size_t n : {4095u, 4096u, 4097u, 65536u, 1000003u, 5u << 20}) {
    const auto bytes = random_bytes(n, 2);
    ASSERT_EQ(ours(bytes), XXH3_64bits(bytes.data(), n)) << n;
  }
}

TEST(Xxh3, Does_not_depend_on_how_the_input_is_split) {
  std::mt19937 generator(3);
  for (int round = 0; round < 2000; ++round) {
    const auto bytes = random_bytes(generator() % 3000, static_cast<unsigned>(round));
    const std::size_t longest = std::size_t{1} << generator() % 12;
    xxh3_64 hash;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t n = std::min<std::size_t>(bytes.size() - at, generator() % (longest + 1));
      hash.update(std::span(bytes).subspan(at, n));
      at += n;
      if (round % 16 == 0) {
        ASSERT_EQ(hash.digest(), XXH3_64bits(bytes.data(), at)) << at;
      }
    }
    ASSERT_EQ(hash.digest(), XXH3_64bits(bytes.data(), bytes.size())) << bytes.size();
  }
}

constexpr std::uint64_t hash_of_a_thousand() {
  xxh3_64 hash;
  for (int i = 0; i < 100; ++i) hash.update("0123456789");
  return hash.digest();
}

TEST(Xxh3, Is_the_same_in_constant_evaluation) {
  constexpr std::uint64_t at_compile_time = hash_of_a_thousand();
  std::string text;
  for (int i = 0; i < 100; ++i) text += "0123456789";
  EXPECT_EQ(at_compile_time, XXH3_64bits(text.data(), text.size()));
  static_assert(std::is_trivially_copyable_v<xxh3_64> && sizeof(xxh3_64) <= 328);
}

}  // namespace xxh3_test
