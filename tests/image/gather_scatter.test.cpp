#include "random_image.hpp"

#include <tensorpull/image/dynamic.hpp>
#include <tensorpull/image/gather_scatter.hpp>

#include <gtest/gtest.h>

namespace gather_scatter_test {

using namespace tensorpull;

/// Gathers [offset, offset + length), or so many bytes of runs, with these budgets, until done; every step must make
/// progress and stay within them.
std::vector<std::byte> collect(const source_view& source, std::uint64_t offset, std::uint64_t length,
                               std::size_t pieces, std::size_t slice_bytes, const byte_runs& runs = {}) {
  std::vector<std::byte> out, slice(slice_bytes);
  std::vector<std::span<const std::byte>> spans(pieces);
  while (out.size() < length) {
    const gathered got = gather(source, offset, runs, out.size(), length - out.size(), spans, slice);
    EXPECT_LE(got.pieces, pieces);
    EXPECT_LE(got.bytes, length - out.size());
    EXPECT_GT(got.bytes, 0u);
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < got.pieces; ++i) {
      sum += spans[i].size();
      EXPECT_FALSE(spans[i].empty());
      out.insert(out.end(), spans[i].begin(), spans[i].end());
    }
    EXPECT_EQ(sum, got.bytes);
    if (got.bytes == 0 || sum != got.bytes) break;
  }
  return out;
}

// The law: gathered bytes are the image's bytes, whatever the range, the number of pieces and the size of the slice.
TEST(GatherLaw, Any_range_in_any_steps_is_the_image) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    tensorpull::test::random_tensors tensors(seed, seed % 23, true);
    const std::vector<metadata_entry> metadata = seed % 3 == 0
                                                     ? std::vector<metadata_entry>{{"a\"b", "line\n"}, {"format", "pt"}}
                                                     : std::vector<metadata_entry>{};
    const auto image = dynamic_image::make(tensors.views(), metadata);
    ASSERT_TRUE(image) << to_string(image.error().code) << " seed " << seed;
    const std::vector<std::byte> expected = tensors.expected_image(metadata);
    ASSERT_EQ(image->schema().image_bytes, expected.size()) << "seed " << seed;
    ASSERT_EQ(collect(image->source(), 0, expected.size(), 64, 1 << 16), expected) << "seed " << seed;
    for (int round = 0; round < 40; ++round) {
      const std::size_t offset = tensors.below(expected.size() + 1),
                        length = tensors.below(expected.size() - offset + 1);
      const std::size_t pieces = 1 + tensors.below(round % 2 == 0 ? 3 : 40),
                        slice = 16 + tensors.below(round % 3 == 0 ? 4 : 5000);
      const std::vector<std::byte> part(expected.begin() + static_cast<std::ptrdiff_t>(offset),
                                        expected.begin() + static_cast<std::ptrdiff_t>(offset + length));
      ASSERT_EQ(collect(image->source(), offset, length, pieces, slice), part) << "seed " << seed << " round " << round;
    }
  }
}

TEST(GatherLaw, Any_runs_in_any_steps_are_those_of_the_image) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    tensorpull::test::random_tensors tensors(seed, 1 + seed % 23, true);
    const auto image = dynamic_image::make(tensors.views());
    ASSERT_TRUE(image);
    const std::vector<std::byte> expected = tensors.expected_image({});
    for (int round = 0; round < 40; ++round) {
      const std::uint64_t offset = tensors.below(expected.size()), room = expected.size() - offset;
      const byte_runs runs{static_cast<std::uint32_t>(1 + tensors.below(std::min<std::uint64_t>(room, 40))),
                           static_cast<std::uint32_t>(40 + tensors.below(300))};
      const std::uint64_t most = (room - runs.length) / runs.stride + 1, count = 1 + tensors.below(most);
      std::vector<std::byte> part;
      for (std::uint64_t i = 0; i < count; ++i) {
        const auto at = expected.begin() + static_cast<std::ptrdiff_t>(offset + i * runs.stride);
        part.insert(part.end(), at, at + runs.length);
      }
      ASSERT_EQ(runs.before(runs.distance(part.size() - 1)), part.size() - 1);
      ASSERT_EQ(byte_runs::of_word(runs.word()).stride, runs.stride);
      ASSERT_EQ(collect(image->source(), offset, part.size(), 1 + tensors.below(3), 16 + tensors.below(500), runs),
                part)
          << "seed " << seed << " round " << round;
    }
  }
}

TEST(Gather, Of_short_runs_no_more_are_packed_than_one_waits_for) {
  const std::vector<std::byte> zeros(100'000);
  const std::uint64_t shape[] = {100'000};
  const tensor_view views[] = {{"a", dtype::u8, shape, zeros.data()}};
  const auto image = dynamic_image::make(std::span<const tensor_view>(views));
  ASSERT_TRUE(image);
  std::vector<std::byte> slice(50'000);
  std::span<const std::byte> piece[1];
  const gathered got = gather(image->source(), image->schema().header_bytes, {1, 2}, 0, 50'000, piece, slice);
  EXPECT_EQ(got.bytes, 4096u);
  EXPECT_EQ(got.sliced, 4096u);
}

TEST(Gather, Contiguous_tensors_are_not_copied) {
  if (!little_endian_machine) GTEST_SKIP() << "on this machine numbers are";
  const std::vector<float> weight(1000, 1.5f);
  const std::uint64_t shape[] = {10, 100};
  const tensor_view view{"w", dtype::f32, shape, reinterpret_cast<const std::byte*>(weight.data())};
  const auto image = dynamic_image::make(std::span(&view, 1));
  ASSERT_TRUE(image);
  std::span<const std::byte> out[1];
  const auto got = gather(image->source(), image->schema().header_bytes + 5, 100, out, {});
  EXPECT_EQ(got.pieces, 1u);
  EXPECT_EQ(out[0].data(), view.data + 5);
  EXPECT_EQ(out[0].size(), 100u);
}

TEST(Gather, Without_room_it_takes_nothing) {
  tensorpull::test::random_tensors tensors(1, 5, true);
  const auto image = dynamic_image::make(tensors.views());
  std::vector<std::byte> slice(100);
  EXPECT_EQ(gather(image->source(), 0, 50, {}, slice).bytes, 0u);
  std::span<const std::byte> out[4];
  EXPECT_EQ(gather(image->source(), 0, 50, out, {}).bytes, 0u);
  EXPECT_EQ(gather(image->source(), 0, 0, out, slice).pieces, 0u);
  EXPECT_EQ(gather(image->source(), image->schema().image_bytes, 0, out, slice).pieces, 0u);
}

// Neighbours in memory and in the image become one piece.
TEST(Gather, Pieces_that_continue_each_other_are_joined) {
  const std::vector<std::byte> memory(64, std::byte{7});
  const std::uint64_t shape[] = {32};
  const tensor_view views[] = {{"b", dtype::u8, shape, memory.data() + 32}, {"a", dtype::u8, shape, memory.data()}};
  const auto image = dynamic_image::make(views);
  std::span<const std::byte> out[4];
  const auto got = gather(image->source(), image->schema().header_bytes, 64, out, {});
  EXPECT_EQ(got.pieces, 1u);
  EXPECT_EQ(got.bytes, 64u);
}

}  // namespace gather_scatter_test
