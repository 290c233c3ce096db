#include "random_image.hpp"

#include <tensorpull/image/dynamic.hpp>
#include <tensorpull/image/gather_scatter.hpp>

#include <gtest/gtest.h>

#include <cstring>

namespace scatter_test {

using namespace tensorpull;

// The law: what is landed range by range, in any order and any number of pieces, is the image; and no byte beside the
// tensors changes.
TEST(ScatterLaw, Landed_ranges_are_the_image) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    tensorpull::test::random_tensors tensors(seed, seed % 19, false);
    const std::vector<std::byte> expected = tensors.expected_image();
    for (auto& t : tensors.tensors()) {
      std::fill(t.memory.begin(), t.memory.end(), std::byte{0});
      t.memory.back() = std::byte{0x5a};  // a guard behind the tensor
    }
    auto image = dynamic_image::make(tensors.mutable_views());
    ASSERT_TRUE(image);
    const std::uint64_t start = image->schema().header_bytes;

    const std::size_t chunk = 1 + tensors.below(200);
    std::vector<std::uint64_t> offsets;
    for (std::uint64_t at = start; at < expected.size(); at += chunk) offsets.push_back(at);
    std::shuffle(offsets.begin(), offsets.end(), tensors.generator());
    std::vector<std::span<std::byte>> spans(1 + tensors.below(4));
    std::vector<std::byte> staging(1 + tensors.below(40));  // for the numbers of a big-endian machine
    for (std::uint64_t at : offsets) {
      for (std::uint64_t left = std::min<std::uint64_t>(chunk, expected.size() - at); left > 0;) {
        const scattered got = scatter(image->destination(), at, left, spans, staging);
        ASSERT_LE(got.pieces, spans.size());
        ASSERT_GT(got.bytes, 0u);
        ASSERT_LE(got.bytes, left);
        for (std::size_t i = 0; i < got.pieces; ++i) {
          std::memcpy(spans[i].data(), expected.data() + at, spans[i].size());
          ASSERT_TRUE(hand_over(image->destination(), at, spans[i]));
          at += spans[i].size();
          left -= spans[i].size();
        }
      }
    }
    for (const auto& t : tensors.tensors()) {
      const std::vector<std::byte> landed = tensorpull::test::random_tensors::in_memory(t);
      ASSERT_TRUE(std::equal(landed.begin(), landed.end(), t.memory.begin())) << "seed " << seed;
      ASSERT_EQ(t.memory.back(), std::byte{0x5a}) << "seed " << seed;
    }
    EXPECT_EQ(scatter(image->destination(), expected.size(), 0, spans).pieces, 0u);
    EXPECT_EQ(scatter(image->destination(), start, 0, spans).pieces, 0u);
  }
}

}  // namespace scatter_test
