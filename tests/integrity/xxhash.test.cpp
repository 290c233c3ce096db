// xxhash_digest gives the values of the xxHash library, bit for bit: every length, every cut, with vectors and without.
#include <tensorpull/integrity/xxhash/xxhash_digest.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tp = tensorpull;

namespace xxhash_digest_test {
std::vector<std::byte> random_bytes(std::size_t n, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(n + 8);
  for (std::size_t i = 0; i < n; i += 8) {
    const std::uint64_t x = random();
    std::memcpy(bytes.data() + i, &x, 8);
  }
  bytes.resize(n);
  return bytes;
}
std::uint64_t of_library(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }
std::uint64_t in_pieces(std::span<const std::byte> bytes, std::size_t piece) {
  tp::xxhash_digest h;
  for (std::size_t at = 0; at < bytes.size(); at += piece)
    h.update(bytes.subspan(at, std::min(piece, bytes.size() - at)));
  return h.digest();
}

TEST(XxhashDigest, Each_length_up_to_5000) {
  const auto bytes = random_bytes(5000, 1);
  for (std::size_t n = 0; n <= bytes.size(); ++n) {
    const auto part = std::span(bytes).first(n);
    tp::xxhash_digest h;
    h.update(part);
    ASSERT_EQ(h.digest(), of_library(part)) << n;
  }
}

TEST(XxhashDigest, Long_inputs_of_any_length_at_any_address) {
  const auto bytes = random_bytes(3'000'000, 2);
  std::mt19937_64 random(3);
  for (int i = 0; i < 40; ++i) {
    const std::size_t begin = random() % 100, n = random() % (bytes.size() - begin);
    const auto part = std::span(bytes).subspan(begin, n);
    tp::xxhash_digest h;
    h.update(part);
    ASSERT_EQ(h.digest(), of_library(part)) << begin << " " << n;
  }
}

TEST(XxhashDigest, Each_cut_in_two) {
  const auto bytes = random_bytes(2200, 4);
  for (const std::size_t n : {1u, 17u, 200u, 240u, 241u, 256u, 257u, 320u, 321u, 512u, 1024u, 1025u, 1089u, 2200u}) {
    const auto all = std::span(bytes).first(n);
    const std::uint64_t right = of_library(all);
    for (std::size_t cut = 0; cut <= n; ++cut) {
      tp::xxhash_digest h;
      h.update(all.first(cut));
      ASSERT_EQ(h.digest(), of_library(all.first(cut)));  // asking in between changes nothing
      h.update(all.subspan(cut));
      ASSERT_EQ(h.digest(), right) << n << " cut at " << cut;
    }
  }
}

TEST(XxhashDigest, Pieces_of_each_length) {
  const auto bytes = random_bytes(5000, 5);
  const std::uint64_t right = of_library(bytes);
  for (std::size_t piece = 1; piece <= 1200; ++piece) ASSERT_EQ(in_pieces(bytes, piece), right) << piece;
}

TEST(XxhashDigest, Random_cuts) {
  const auto bytes = random_bytes(400'000, 6);
  std::mt19937_64 random(7);
  for (int i = 0; i < 30; ++i) {
    tp::xxhash_digest h;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t n = std::min<std::size_t>(bytes.size() - at, random() % (random() % 2 ? 100 : 20'000));
      h.update(std::span(bytes).subspan(at, n));
      at += n;
    }
    ASSERT_EQ(h.digest(), of_library(bytes)) << i;
  }
}

TEST(XxhashDigest, A_copy_goes_on_and_a_reset_begins_anew) {
  const auto bytes = random_bytes(1000, 8);
  tp::xxhash_digest h;
  h.update(std::span(bytes).first(700));
  tp::xxhash_digest copy = h;
  copy.update(std::span(bytes).subspan(700));
  EXPECT_EQ(copy.digest(), of_library(bytes));
  EXPECT_EQ(h.digest(), of_library(std::span(bytes).first(700)));
  h.reset();
  EXPECT_EQ(h.digest(), of_library({}));
  h.update(std::span(bytes).first(3));
  EXPECT_EQ(h.digest(), of_library(std::span(bytes).first(3)));
}

// A machine takes one of the ways; what the others compute would not be seen without this.
TEST(XxhashDigest, Each_width_takes_stripes_alike) {
  namespace xxh3 = tp::detail::xxh3;
  const auto bytes = random_bytes(64 * 100 + 1, 9);
  for (std::size_t stripe = 0; stripe < xxh3::block_stripes; ++stripe)
    for (const std::size_t count : {0u, 1u, 15u, 16u, 17u, 99u}) {
      const xxh3::lanes begin{{1, 2, 3, 4, 5, 6, ~std::uint64_t{0}, 8}};
      xxh3::lanes right = begin;
      xxh3::by_words::take(right, 64 * stripe, bytes.data() + 1, 64 * count);
      const auto expect_same = [&](void (*take)(xxh3::lanes&, std::size_t, const void*, std::size_t) noexcept) {
        xxh3::lanes got = begin;
        take(got, 64 * stripe, bytes.data() + 1, 64 * count);
        EXPECT_TRUE(std::equal(right.at, right.at + 8, got.at)) << stripe << " " << count;
      };
#if defined(__x86_64__)
      expect_same(&xxh3::by_vectors::take);
      expect_same(&xxh3::take_16);
      if (__builtin_cpu_supports("avx2")) expect_same(&xxh3::take_32);
      if (__builtin_cpu_supports("avx512f")) expect_same(&xxh3::take_64);
#endif
    }
}

}  // namespace xxhash_digest_test
