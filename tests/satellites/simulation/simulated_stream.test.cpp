// Bytes under way in virtual time: when they arrive, what is lost, and which end is told.
#include <tensorpull/satellites/simulation/simulated_stream.hpp>

#include <gtest/gtest.h>

namespace simulated_stream_test {

using namespace tensorpull;
using namespace tensorpull::testing;
using namespace std::chrono_literals;

struct line {
  explicit line(const wire_conditions& c = {}, std::uint64_t seed = 1)
      : both(connect_simulated(clock, c, seeded_random(seed))) {}
  io_result write(std::size_t n, std::byte value = std::byte{1}) {
    const std::vector<std::byte> b(n, value);
    const std::span<const std::byte> all(b);
    return both.left.write_some({&all, 1});
  }
  io_result read(std::size_t n = 1000) {
    into.resize(n);
    const std::span<std::byte> all(into);
    return both.right.read_some({&all, 1});
  }
  virtual_clock clock;
  simulated_pair both;
  std::vector<std::byte> into;
};

TEST(SimulatedStream, Latency_passes_before_bytes_arrive_and_waiting_moves_the_clock) {
  line l({.latency = 3ms});
  EXPECT_EQ(l.write(10).bytes, 10u);
  EXPECT_EQ(l.read().status, io_status::would_block);
  EXPECT_FALSE(l.both.right.wait(true, false, 2ms).read);
  EXPECT_EQ(l.clock.now(), 2000u);
  EXPECT_TRUE(l.both.right.wait(true, false, 1h).read);
  EXPECT_EQ(l.clock.now(), 3000u);
  EXPECT_EQ(l.read().bytes, 10u);
}
TEST(SimulatedStream, Bytes_never_overtake_whatever_the_jitter) {
  line l({.latency = 100us, .jitter = 5ms, .capacity_bytes = 300, .most_per_read = 17, .most_per_write = 23});
  unsigned sent = 0, got = 0;
  while (got < 5000) {
    std::array<std::byte, 40> piece;
    for (unsigned i = 0; i < 40; ++i) piece[i] = static_cast<std::byte>((sent + i) * 7);
    const std::span<const std::byte> all(piece);
    sent += static_cast<unsigned>(l.both.left.write_some({&all, 1}).bytes);
    l.both.right.wait(true, false, 1ms);
    const auto n = static_cast<unsigned>(l.read().bytes);
    for (unsigned i = 0; i < n; ++i) ASSERT_EQ(l.into[i], static_cast<std::byte>((got + i) * 7)) << got + i;
    got += n;
    ASSERT_LE(sent - got, 300u);
  }
}
TEST(SimulatedStream, A_full_direction_takes_no_more_until_something_was_read) {
  line l({.capacity_bytes = 64});
  EXPECT_EQ(l.write(100).bytes, 64u);
  EXPECT_EQ(l.write(1).status, io_status::would_block);
  EXPECT_FALSE(l.both.left.wait(false, true, 5ms).write);
  EXPECT_EQ(l.read(4).bytes, 4u);
  EXPECT_TRUE(l.both.left.wait(false, true, 5ms).write);
  EXPECT_EQ(l.write(100).bytes, 4u);
}
TEST(SimulatedStream, A_stall_delays_what_follows) {
  line l;
  l.both.left.wire().from(0).stall(700ms);
  l.write(5);
  EXPECT_FALSE(l.both.right.wait(true, false, 699ms).read);
  EXPECT_TRUE(l.both.right.wait(true, false, 2ms).read);
}
TEST(SimulatedStream, A_cut_lets_so_many_bytes_through_and_no_more) {
  line l;
  l.write(10);
  l.both.left.wire().from(0).cut_after(7);
  l.write(10);
  EXPECT_EQ(l.write(10).status, io_status::closed);
  EXPECT_EQ(l.read().bytes, 17u);
  EXPECT_EQ(l.read().status, io_status::closed);
}
TEST(SimulatedStream, A_reset_is_heard_by_both_and_loses_what_was_under_way) {
  line l;
  l.write(10);
  l.both.left.wire().reset();
  EXPECT_EQ(l.read().status, io_status::closed);
  EXPECT_EQ(l.read().bytes, 0u);
  EXPECT_EQ(l.write(1).status, io_status::closed);
}
TEST(SimulatedStream, Who_is_lost_without_notice_leaves_a_writer_that_fills_its_buffer) {
  line l({.capacity_bytes = 64});
  l.write(10);
  l.both.left.wire().lose();
  {
    const simulated_stream gone = std::move(l.both.right);
  }
  EXPECT_EQ(l.write(100).bytes, 54u) << "no word of the end gets here";
  EXPECT_EQ(l.write(100).status, io_status::would_block);
  line m({.capacity_bytes = 64});
  m.both.left.wire().lose();
  EXPECT_EQ(m.write(100).bytes, 64u);
  EXPECT_EQ(m.write(100).status, io_status::would_block);
  EXPECT_EQ(m.read().status, io_status::would_block);
  EXPECT_FALSE(m.both.right.wait(true, false, 1h).read);
}
TEST(SimulatedStream, Closing_is_read_after_everything_that_was_written) {
  line l({.latency = 500us});
  l.write(10);
  {
    const simulated_stream gone = std::move(l.both.left);
  }
  EXPECT_EQ(l.read().status, io_status::would_block);
  EXPECT_TRUE(l.both.right.wait(true, false, 1s).read);
  EXPECT_EQ(l.read().bytes, 10u);
  EXPECT_EQ(l.read().status, io_status::closed);
}
TEST(SimulatedStream, A_late_frame_that_nothing_overtakes_arrives_after_a_while) {
  line l;
  l.both.left.wire().from(0).faults.arm({frame_fault_kind::late, 0, 3});
  const std::array<std::uint64_t, 2> frame{std::uint64_t{1} << 32, 0};
  const auto bytes = std::as_bytes(std::span(frame));
  const std::span<const std::byte> all(bytes);
  EXPECT_EQ(l.both.left.write_some({&all, 1}).bytes, 16u);
  EXPECT_EQ(l.read().status, io_status::would_block);
  EXPECT_TRUE(l.both.right.wait(true, false, 1s).read);
  EXPECT_GT(l.clock.now(), 1000u);
  EXPECT_LT(l.clock.now(), 1'000'000u);
  EXPECT_EQ(l.read().bytes, 16u);
}

}  // namespace simulated_stream_test
