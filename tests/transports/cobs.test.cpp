// Frames on a line: what is written is read, nothing that is damaged is, and after any garbage the reader is in step
// again.
#include <tensorpull/links/serial/cobs.hpp>
#include <tensorpull/testing/seeded_random.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace cobs_test {

using namespace tensorpull;
using bytes = std::vector<std::byte>;
constexpr std::size_t most = 600;

constexpr std::array<std::byte, 9> digits{std::byte{'1'}, std::byte{'2'}, std::byte{'3'},
                                          std::byte{'4'}, std::byte{'5'}, std::byte{'6'},
                                          std::byte{'7'}, std::byte{'8'}, std::byte{'9'}};
static_assert(crc32c_fast::of(digits) == 0xe3069283u);  // the check value of RFC 3720
static_assert(crc32c_fast::of({digits.data() + 4, 5}, crc32c_fast::of({digits.data(), 4})) == 0xe3069283u);
static_assert([] {  // in constant evaluation, too
  cobs_writer<16> w;
  cobs_reader<16> r;
  const std::span<const std::byte> all(digits);
  if (!w.write({&all, 1})) return false;
  std::span<const std::byte> rest = w.frame();
  return r.read(rest) && r.datagram().size() == 9 && r.datagram()[8] == std::byte{'9'};
}());

bytes frame(std::span<const std::byte> datagram) {
  static cobs_writer<most> w;
  const std::array<std::span<const std::byte>, 2> spans{datagram.first(datagram.size() / 3),
                                                        datagram.subspan(datagram.size() / 3)};
  EXPECT_TRUE(w.write(spans));
  return {w.frame().begin(), w.frame().end()};
}
/// All datagrams in some bytes, read `step` at a time.
std::vector<bytes> read(cobs_reader<most>& r, std::span<const std::byte> all, std::size_t step) {
  std::vector<bytes> found;
  while (!all.empty()) {
    std::span<const std::byte> part = all.first(std::min(step, all.size()));
    all = all.subspan(part.size());
    while (r.read(part)) found.emplace_back(r.datagram().begin(), r.datagram().end());
  }
  return found;
}
bytes random_datagram(tensorpull::testing::seeded_random& random, std::size_t n) {
  bytes d(n);
  random.fill(d);
  const auto zeros = random.below(4);  // none, few, many, all
  for (std::byte& b : d)
    if (random.below(3) < zeros) b = std::byte{0};
    else if (zeros == 0 && b == std::byte{0}) b = std::byte{1};
  return d;
}

TEST(Cobs, What_is_written_is_read_at_every_length_and_in_any_pieces) {
  tensorpull::testing::seeded_random random(1);
  for (std::size_t n = 1; n <= most; ++n) {
    const bytes d = random_datagram(random, n), f = frame(d);
    EXPECT_LE(f.size(), cobs_frame_bytes(n));
    EXPECT_EQ(std::count(f.begin(), f.end(), std::byte{0}), 1);
    EXPECT_EQ(f.back(), std::byte{0});
    cobs_reader<most> r;
    const auto found = read(r, f, 1 + random.below(40));
    ASSERT_EQ(found.size(), 1u) << n;
    EXPECT_EQ(found[0], d) << n;
    EXPECT_EQ(r.dropped(), 0u);
  }
}
TEST(Cobs, The_longest_frame_is_as_long_as_stated) {
  const bytes d(most, std::byte{1});
  EXPECT_EQ(frame(d).size(), cobs_frame_bytes(most));
}
TEST(Cobs, A_datagram_that_is_too_long_has_no_frame_and_is_not_read) {
  cobs_writer<20> w;
  const bytes d(21);
  const std::array<std::span<const std::byte>, 2> spans{std::span<const std::byte>(d).first(20),
                                                        std::span<const std::byte>(d).subspan(20)};
  EXPECT_FALSE(w.write(spans));
  EXPECT_TRUE(w.frame().empty());
  cobs_reader<20> r;
  const bytes longer = frame(d), fits = frame(std::span(d).first(20));
  std::span<const std::byte> rest(longer);
  EXPECT_FALSE(r.read(rest));
  EXPECT_EQ(r.dropped(), 1u);
  rest = fits;
  EXPECT_TRUE(r.read(rest));
}
TEST(Cobs, An_empty_datagram_has_no_frame) {
  cobs_writer<20> w;
  EXPECT_FALSE(w.write({}));
  EXPECT_TRUE(w.frame().empty());
  const bytes ones{std::byte{1}, std::byte{1}, std::byte{1},
                   std::byte{1}, std::byte{1}, std::byte{0}};  // the CRC of nothing
  cobs_reader<most> r;
  EXPECT_TRUE(read(r, ones, 9).empty());
  EXPECT_EQ(r.dropped(), 1u);
}
TEST(Cobs, No_bit_that_is_changed_in_a_frame_gives_a_datagram) {
  tensorpull::testing::seeded_random random(2);
  for (const std::size_t n : {1u, 4u, 40u, 253u, 254u, 255u, 520u}) {
    const bytes d = random_datagram(random, n), f = frame(d);
    for (std::size_t bit = 0; bit < f.size() * 8; ++bit) {
      bytes damaged = f;
      damaged[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
      cobs_reader<most> r;
      EXPECT_TRUE(read(r, damaged, 64).empty()) << n << " bit " << bit;
    }
    for (std::size_t i = 0; i + 1 < f.size(); ++i) {  // a byte is lost, or comes twice
      bytes shorter = f, longer = f;
      shorter.erase(shorter.begin() + static_cast<std::ptrdiff_t>(i));
      longer.insert(longer.begin() + static_cast<std::ptrdiff_t>(i), f[i]);
      cobs_reader<most> r;
      EXPECT_TRUE(read(r, shorter, 64).empty());
      EXPECT_TRUE(read(r, longer, 64).empty());
    }
  }
}
TEST(Cobs, After_any_garbage_it_is_in_step_within_one_frame) {
  tensorpull::testing::seeded_random random(3);
  for (int round = 0; round < 3000; ++round) {
    bytes garbage = random_datagram(random, random.below(1500));
    const bytes first = random_datagram(random, random.between(1, most)),
                second = random_datagram(random, random.between(1, most));
    const bool ends = !garbage.empty() && garbage.back() == std::byte{0};
    for (const bytes& d : {first, second}) {
      const bytes f = frame(d);
      garbage.insert(garbage.end(), f.begin(), f.end());
    }
    cobs_reader<most> r;
    const auto found = read(r, garbage, 1 + random.below(600));
    ASSERT_FALSE(found.empty()) << round;
    EXPECT_EQ(found.back(), second) << round;
    EXPECT_LE(found.size(), 2u) << round;
    if (ends || found.size() == 2) {
      ASSERT_EQ(found.size(), 2u) << round;  // a zero ends the garbage, so not even one frame is lost
      EXPECT_EQ(found[0], first) << round;
    }
  }
}
TEST(Cobs, Zeros_between_frames_are_nothing) {
  const bytes d(7, std::byte{3});
  bytes line(50);
  const bytes f = frame(d);
  line.insert(line.end(), f.begin(), f.end());
  line.insert(line.end(), 9, std::byte{0});
  cobs_reader<most> r;
  EXPECT_EQ(read(r, line, 5).size(), 1u);
  EXPECT_EQ(r.dropped(), 0u);
}

}  // namespace cobs_test
