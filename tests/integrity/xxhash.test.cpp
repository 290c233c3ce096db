// The digest is the same with the widest vectors of the processor and without them.
#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/integrity/xxhash/xxhash_digest.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace tp = tensorpull;

TEST(XxhashDigest, Is_the_same_with_wide_vectors_and_without) {
  std::vector<std::byte> bytes(300'000);
  std::uint64_t x = 1;
  for (auto& b : bytes) b = static_cast<std::byte>((x = x * 6364136223846793005u + 1442695040888963407u) >> 56);
  for (const std::size_t n : {0u, 1u, 16u, 128u, 129u, 240u, 241u, 256u, 1024u, 4097u, 65'536u, 300'000u}) {
    tp::xxhash_digest wide;
    XXH3_state_t narrow;
    XXH3_64bits_reset(&narrow);
    tp::xxh3_64 portable;
    for (std::size_t at = 0, piece = 1; at < n; at += piece, piece = piece * 3 + 1) {
      piece = std::min(piece, n - at);
      const auto part = std::span(bytes).subspan(at, piece);
      wide.update(part);
      XXH3_64bits_update(&narrow, part.data(), part.size());
      portable.update(part);
    }
    EXPECT_EQ(wide.digest(), XXH3_64bits_digest(&narrow)) << n;
    EXPECT_EQ(wide.digest(), portable.digest()) << n;
  }
}
