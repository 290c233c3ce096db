// The lean digest is the digest of hosts.
#include "support/random.hpp"

#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/integrity/xxhash/xxhash_digest.hpp>

#include <gtest/gtest.h>

#include <vector>

namespace lean_xxh3_test {

namespace tp = tensorpull;

TEST(LeanXxh3, Every_length_in_pieces_of_any_size_has_the_digest_of_hosts) {
  test::generator random(1);
  std::vector<std::byte> input(5'000);
  random.fill(input);
  for (std::size_t n = tp::lean_xxh3_64::least_bytes; n <= input.size(); n += n < 2'200 ? 1 : 37) {
    tp::xxhash_digest host;
    host.update(std::span(input).first(n));
    tp::lean_xxh3_64 whole, pieces;
    whole.update(std::span(input).first(n));
    ASSERT_EQ(whole.digest(), host.digest()) << n;
    for (std::size_t at = 0; at < n;) {
      const std::size_t part = std::min<std::size_t>(n - at, random() % 200);
      pieces.update(std::span(input).subspan(at, part));
      at += part;
    }
    ASSERT_EQ(pieces.digest(), host.digest()) << n;
    ASSERT_EQ(pieces.digest(), host.digest()) << "it does not change what it is the digest of";
  }
}
TEST(LeanXxh3, It_goes_on_after_each_digest) {
  test::generator random(2);
  std::vector<std::byte> input(4'096);
  random.fill(input);
  tp::lean_xxh3_64 running;
  running.update(std::span(input).first(250));
  for (std::size_t n = 250; n < input.size(); ++n) {
    running.update(std::span(input).subspan(n, 1));
    tp::xxh3_64 other;
    other.update(std::span(input).first(n + 1));
    ASSERT_EQ(running.digest(), other.digest()) << n;
  }
}
TEST(LeanXxh3, It_holds_two_stripes) { EXPECT_LE(sizeof(tp::lean_xxh3_64), 200u); }

}  // namespace lean_xxh3_test
