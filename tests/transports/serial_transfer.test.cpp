// Whole transfers over serial lines: quick and slow ones, noisy ones, lines that are cut, ttys that vanish.
#include "serial_network.hpp"

namespace serial_transfer_test {

using namespace test;

constexpr std::uint64_t baud_115200 = 11'520;  // bytes a second

TEST(SerialTransfer, Chunks_of_2_kib) { over_line<mlp, 2048>().expect_completed(); }
TEST(SerialTransfer, Less_than_a_chunk) { over_line<tiny>().expect_completed(); }
TEST(SerialTransfer, At_115200_baud) { over_line<small>({}, baud_115200).expect_completed(); }
TEST(SerialTransfer, At_115200_baud_with_noise) {
  over_line<small>({.flipped = 100, .lost = 50, .inserted = 50}, baud_115200).expect_completed();
}
TEST(SerialTransfer, At_9600_baud) { over_line<tiny>({}, 960).expect_completed(); }

/// Every transfer completes, exact. TENSORPULL_LINE_SEEDS: how many.
TEST(SerialTransfer, R13_noise_of_every_kind_is_lost_datagrams) {
  const char* const given = std::getenv("TENSORPULL_LINE_SEEDS");
  const std::uint64_t seeds = given != nullptr ? std::strtoull(given, nullptr, 10) : 2;
  for (std::uint64_t seed = 1; seed <= seeds && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    const auto rate = static_cast<std::uint32_t>(seed % 4 * 50);
    over_line<small>({.flipped = 100 + rate, .seed = seed}).expect_completed();
    over_line<small>({.lost = 100 + rate, .seed = seed}).expect_completed();
    over_line<small>({.inserted = 100 + rate, .seed = seed}).expect_completed();
    over_line<small, 128>({.flipped = 300, .lost = 300, .inserted = 300, .seed = seed}).expect_completed();
  }
}
TEST(SerialTransfer, T3_noise_that_lets_nothing_through_ends_with_a_name) {
  over_line<small, 2048> o({.flipped = 20'000, .seed = 3});
  const auto done = o.pull({.per_request_timeout = 300ms, .retry = {.retries = 0}});
  EXPECT_EQ(code_of(done), errc::timed_out);
}
TEST(SerialTransfer, T3_a_line_that_is_cut_for_a_while_goes_on) {
  over_line<mlp> o({}, 400'000);
  joined_thread scissors([&] {
    for (int i = 0; i < 3; ++i) {
      be_slow(100ms);
      o.line.cut(true);
      be_slow(100ms);
      o.line.cut(false);
    }
  });
  o.expect_completed();
}
TEST(SerialTransfer, T3_a_line_that_stays_cut_ends_by_the_time_out_and_the_next_pull_completes) {
  over_line<mlp> o;
  o.line.cut(true);
  const auto done = o.pull({.per_request_timeout = 200ms, .retry = {.retries = 1, .first_delay = 10ms}});
  ASSERT_EQ(code_of(done), errc::timed_out);
  EXPECT_EQ(done.error().at, 0u);
  EXPECT_TRUE(same(*o.mine, *blank<mlp>()));
  o.line.cut(false);
  o.expect_completed();
}
TEST(SerialTransfer, T4_the_recipients_tty_vanishes_and_comes_back) {
  over_line<mlp> o({}, 400'000);
  joined_thread hand([&] {
    be_slow(200ms);
    o.line.vanish(0);
    be_slow(100ms);
    o.line.come_back(0);
  });
  o.expect_completed({.retry = {.retries = 20, .first_delay = 20ms}});
}
TEST(SerialTransfer, T4_the_owners_tty_vanishes_and_comes_back) {
  over_line<mlp> o({}, 400'000);
  joined_thread hand([&] {
    be_slow(200ms);
    o.line.vanish(1);
    be_slow(100ms);
    o.line.come_back(1);
  });
  o.expect_completed();
}
TEST(SerialTransfer, T1_a_tty_that_stays_away_is_a_lost_connection) {
  over_line<mlp> o({}, 200'000);
  joined_thread hand([&] {
    be_slow(200ms);
    o.line.vanish(0);
  });
  const auto done = o.pull({.retry = {.retries = 2, .first_delay = 10ms}});
  ASSERT_FALSE(done);
  EXPECT_TRUE(done.error().code == errc::connection_lost || done.error().code == errc::connection_failed)
      << describe(done.error());
}
TEST(SerialTransfer, T8_a_stop_is_heard_on_a_slow_line) {
  over_line<mlp> o({}, baud_115200);
  stop_after stop(200ms);
  const auto done = o.pull({.stop = stop.get_token()});
  EXPECT_EQ(code_of(done), errc::cancelled);
}
TEST(SerialTransfer, Malformed_addresses_are_refused) {
  const auto mine = blank<tiny>();
  using net = serial_net<tiny>;
  EXPECT_EQ(code_of(net::download_tensors("/dev/null", tp::ref_id{1, 1}, *mine, {.retry = {.retries = 0}})),
            errc::bad_address);
  EXPECT_EQ(code_of(net::download_tensors("/dev/no-such-tty", tp::ref_id{1, 1}, *mine, {.retry = {.retries = 0}})),
            errc::connection_failed);
  EXPECT_EQ(code_of(net::downloader::open({.listen = "/dev/ttyS0?speed=1"})), errc::bad_address);
}

}  // namespace serial_transfer_test
