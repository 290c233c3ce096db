// The round trip of RFC 6298, and the window: slow start, AIMD, noise told apart, pacing.
#include <tensorpull/protocol/datagrams/congestion_window.hpp>
#include <tensorpull/protocol/datagrams/round_trip.hpp>

#include <gtest/gtest.h>

namespace datagram_window_test {

using tensorpull::congestion_window;
using tensorpull::round_trip;
using us = std::chrono::microseconds;

TEST(RoundTrip, Is_that_of_RFC_6298) {
  round_trip t;
  EXPECT_EQ(t.timeout(), us(1'000'000)) << "2.1";
  t.took(us(100'000));
  EXPECT_EQ(t.smoothed(), us(100'000)) << "2.2";
  EXPECT_EQ(t.timeout(), us(300'000)) << "R + 4 * R / 2";
  t.took(us(180'000));
  EXPECT_EQ(t.smoothed(), us(110'000)) << "2.3: 7/8 R + 1/8 R'";
  EXPECT_EQ(t.timeout(), us(110'000 + 4 * 57'500)) << "3/4 of 50 ms + 1/4 of 80 ms";
  t.back_off();
  EXPECT_EQ(t.timeout(), us(680'000)) << "5.5";
  for (int i = 0; i < 20; ++i) t.back_off();
  EXPECT_EQ(t.timeout(), round_trip::most);
  t.go_on();
  EXPECT_EQ(t.timeout(), us(340'000));
  EXPECT_EQ(t.fastest(), us(100'000));
  for (int i = 0; i < 200; ++i) t.took(us(50));
  EXPECT_EQ(t.timeout(), round_trip::least);
  t.took(us(0));
  EXPECT_EQ(t.fastest(), us(1)) << "known, although nothing could be measured";
}

round_trip steady(us t = us(40'000)) {
  round_trip trip;
  for (int i = 0; i < 50; ++i) trip.took(t);
  return trip;
}
void round(congestion_window& w, const round_trip& trip, std::uint32_t lost) {
  const std::uint32_t n = std::max(w.size(), 32u);
  for (std::uint32_t i = 0; i < n; ++i) i < lost ? w.lost(trip) : w.answered(trip, true);
}

TEST(CongestionWindow, Doubles_until_something_is_lost_then_halves_and_grows_by_one) {
  congestion_window w(4, 1024);
  const auto trip = steady();
  std::uint32_t before = w.size();
  for (std::uint32_t i = 0; i < 4; ++i) w.answered(trip, true);
  EXPECT_EQ(w.size(), 2 * before);
  while (w.size() < 256) w.answered(trip, true);
  for (int again = 0; again < 3; ++again) {
    before = w.size();
    for (std::uint32_t i = 0; i < before / 5; ++i) w.lost(trip);
    for (int i = 0; i < 3; ++i) round(w, trip, 0);
    EXPECT_LE(w.size(), before / 2 + 20) << "one that overflowed";
    EXPECT_GE(w.size(), before / 2);
    before = w.size();
    round(w, trip, 0);
    EXPECT_GE(w.size(), before);
    EXPECT_LE(w.size(), before + 2) << "one for each window";
  }
}
TEST(CongestionWindow, A_share_that_is_lost_with_half_of_the_window_too_is_noise) {
  congestion_window w(4, 1024);
  const auto trip = steady();
  for (int i = 0; i < 400; ++i) round(w, trip, std::max(w.size(), 32u) / 10);
  EXPECT_GE(w.size(), 64u) << "a tenth is lost however few are sent";
  for (int i = 0; i < 40; ++i) round(w, trip, std::max(w.size(), 32u) / 3);
  EXPECT_LE(w.size(), 12u) << "a third is never noise";
}
TEST(CongestionWindow, A_loss_while_the_round_trip_shows_a_queue_is_no_noise) {
  congestion_window w(4, 1024);
  auto trip = steady();
  for (int i = 0; i < 200; ++i) round(w, trip, std::max(w.size(), 32u) / 10);
  for (int i = 0; i < 50; ++i) trip.took(us(150'000));
  for (int i = 0; i < 40; ++i) round(w, trip, std::max(w.size(), 32u) / 10);
  EXPECT_LE(w.size(), 20u);
}
TEST(CongestionWindow, Falls_to_its_beginning_when_nothing_comes_and_does_not_grow_unused) {
  congestion_window w(4, 1024);
  const auto trip = steady();
  while (w.size() < 100) w.answered(trip, true);
  w.timed_out();
  EXPECT_EQ(w.size(), 4u);
  for (int i = 0; i < 1000; ++i) w.answered(trip, false);
  EXPECT_EQ(w.size(), 4u);
  congestion_window small(100, 7);
  EXPECT_EQ(small.size(), 7u);
  for (int i = 0; i < 1000; ++i) small.answered(trip, true);
  EXPECT_EQ(small.size(), 7u);
  EXPECT_EQ(congestion_window(0, 0).size(), 1u);
}
TEST(CongestionWindow, Requests_are_spread_over_the_round_trip) {
  congestion_window w(4, 1024);
  const auto trip = steady();
  while (w.size() < 400) w.answered(trip, true);
  us now(1'000'000);
  std::uint32_t at_once = 0;
  while (w.release() <= now) w.left(trip, now), ++at_once;
  EXPECT_LE(at_once, 100u) << "no burst of a whole window";
  EXPECT_GE(at_once, 8u);
  std::uint32_t in_a_round = at_once;
  for (const us end = now + us(40'000); now < end; now += us(100))
    while (w.release() <= now) w.left(trip, now), ++in_a_round;
  EXPECT_GE(in_a_round, 400u) << "the window is used";
  EXPECT_LE(in_a_round, 1200u);
}

}  // namespace datagram_window_test
