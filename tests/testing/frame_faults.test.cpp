// Frames that are meddled with one by one, however the stream is cut.
#include "support/messages.hpp"
#include "support/random.hpp"

#include <tensorpull/testing/frame_faults.hpp>

namespace frame_faults_test {

using namespace tensorpull::testing;
using bytes = std::vector<std::byte>;
using kind = frame_fault_kind;

/// Control frames and chunks, the shortest frame there is among them.
std::vector<bytes> frames() {
  std::vector<bytes> all;
  const auto add = [&](const test::frame& f) { all.emplace_back(f.bytes().begin(), f.bytes().end()); };
  add(test::encode(test::every_message()[1]));
  add(test::chunk_frame(test::every_message()[2], test::some_body));
  add(test::frame(test::words{test::segment_table(1), 0}));
  add(test::encode(test::every_message()[11]));
  add(test::chunk_frame(test::every_message()[2], bytes(1000, std::byte{7})));
  add(test::encode(test::every_message()[4]));
  return all;
}
bytes joined(const std::vector<bytes>& all) {
  bytes one;
  for (const bytes& f : all) one.insert(one.end(), f.begin(), f.end());
  return one;
}
bytes through(frame_faults& faults, const bytes& in, std::size_t every) {
  bytes out;
  const auto emit = [&](std::span<const std::byte> b) { out.insert(out.end(), b.begin(), b.end()); };
  for (std::size_t at = 0; at < in.size(); at += every)
    faults.take(std::span(in).subspan(at, std::min(every, in.size() - at)), emit);
  faults.release(emit);
  return out;
}
bytes with(const std::vector<bytes>& all, const frame_fault& f, std::size_t every) {
  frame_faults faults;
  EXPECT_TRUE(faults.arm(f));
  const bytes out = through(faults, joined(all), every);
  EXPECT_EQ(faults.happened(), 1u);
  return out;
}
constexpr std::size_t cuts[] = {1, 7, 8, 24, 100, 100'000};

TEST(FrameFaults, Without_an_order_everything_passes_at_once) {
  for (const std::size_t every : cuts) {
    frame_faults none, never;
    never.arm({kind::drop, 99, 0});
    EXPECT_EQ(through(none, joined(frames()), every), joined(frames()));
    EXPECT_EQ(through(never, joined(frames()), every), joined(frames()));
  }
}
TEST(FrameFaults, Each_frame_can_be_doubled_dropped_delayed_and_shortened) {
  const auto all = frames();
  for (const std::size_t every : cuts)
    for (std::size_t i = 0; i < all.size(); ++i) {
      auto twice = all, fewer = all, later = all, shorter = all;
      twice.insert(twice.begin() + static_cast<std::ptrdiff_t>(i), all[i]);
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
      later.erase(later.begin() + static_cast<std::ptrdiff_t>(i));
      later.insert(later.begin() + static_cast<std::ptrdiff_t>(std::min(i + 2, later.size())), all[i]);
      shorter[i].resize(9);
      EXPECT_EQ(with(all, {kind::duplicate, i, 0}, every), joined(twice)) << i << ' ' << every;
      EXPECT_EQ(with(all, {kind::drop, i, 0}, every), joined(fewer)) << i << ' ' << every;
      EXPECT_EQ(with(all, {kind::late, i, 2}, every), joined(later)) << i << ' ' << every;
      EXPECT_EQ(with(all, {kind::truncate, i, 9}, every), joined(shorter)) << i << ' ' << every;
    }
}
TEST(FrameFaults, One_bit_of_the_head_or_of_the_payload) {
  const auto all = frames();
  for (const std::size_t every : cuts) {
    auto head = all, payload = all;
    head[1][3] ^= std::byte{4};
    payload[4][80 + 2] ^= std::byte{1};
    EXPECT_EQ(with(all, {kind::flip_head, 1, 3 * 8 + 2 + 640 * 5}, every), joined(head)) << "a head has 640 bits";
    EXPECT_EQ(with(all, {kind::flip_payload, 1, 16}, every), joined(payload)) << "the second chunk";
  }
}
TEST(FrameFaults, Several_faults_of_one_stream) {
  const auto all = frames();
  frame_faults faults;
  EXPECT_TRUE(faults.arm({kind::late, 0, 1}) && faults.arm({kind::late, 1, 1}) && faults.arm({kind::drop, 3, 0}) &&
              faults.arm({kind::duplicate, 5, 0}));
  EXPECT_FALSE(faults.arm({kind::drop, 4, 0}));
  EXPECT_EQ(through(faults, joined(all), 5), joined({all[1], all[0], all[2], all[4], all[5], all[5]}));
}
TEST(FrameFaults, Bytes_that_are_no_frame_pass_as_they_are) {
  test::generator random(1);
  for (int i = 0; i < 300; ++i) {
    const bytes noise = random.bytes(200);
    frame_faults faults;
    faults.arm({kind::drop, 1'000'000, 0});
    const bytes out = through(faults, noise, 1 + random.below(50));
    ASSERT_LE(out.size(), noise.size());
    ASSERT_TRUE(std::equal(out.begin(), out.end(), noise.begin()));
  }
}

}  // namespace frame_faults_test
