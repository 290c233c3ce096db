// The round trip of RFC 6298, and the window: slow start, AIMD, noise told apart, pacing.
#include <tensorpull/protocol/datagrams/congestion_window.hpp>
#include <tensorpull/protocol/datagrams/round_trip.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

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

/// A path that carries `rate` answers in a second, and what a window does over it, a round trip at a time.
struct path {
  std::uint32_t rate;
  us fastest{40'000};
  congestion_window w{4, 4096};
  round_trip trip{};
  us now{1'000'000};
  std::uint32_t id = 0;

  /// As many requests as the window allows: `lost` of a hundred are lost, answers wait in a queue for `queue`.
  void round(std::uint32_t lost = 0, us queue = us(0)) {
    const std::uint32_t n = w.size(), most = std::uint32_t(rate * std::uint64_t(fastest.count()) / 1'000'000);
    const us end = now + fastest + queue;
    trip.took(fastest + queue);
    const std::uint32_t next = id + n, came = std::min(n, most);
    for (std::uint32_t i = 0; i < came; ++i) {
      now += (end - now) / (came - i);
      if (i % 100 < lost) w.lost();
      else w.answered(trip, id + i, next, n, true, now);
    }
    now = end;
    id = next;
  }
  void rounds(int n, std::uint32_t lost = 0, us queue = us(0)) {
    for (; n > 0; --n) round(lost, queue);
  }
  std::uint32_t holds() const { return std::uint32_t(rate * std::uint64_t(fastest.count()) / 1'000'000); }
};

TEST(CongestionWindow, Begins_with_ten_and_doubles_as_long_as_more_comes) {
  path p{25'000};
  EXPECT_EQ(p.w.size(), 10u) << "RFC 9002, 7.2";
  for (std::uint32_t expected = 20; expected <= 640; expected *= 2) {
    p.round();
    EXPECT_GE(p.w.size(), expected * 9 / 10);
    EXPECT_LE(p.w.size(), expected);
  }
  p.rounds(12);
  EXPECT_GE(p.w.size(), p.holds() * 3 / 2);
  EXPECT_LE(p.w.size(), p.holds() * 5 / 2) << "twice what the path holds";
  EXPECT_NEAR(p.w.rate(), p.rate, p.rate / 10);
}
TEST(CongestionWindow, Losses_that_happen_however_few_are_sent_change_little) {
  path p{25'000};
  p.rounds(20, 5);
  EXPECT_GE(p.w.size(), p.holds() * 3 / 2);
  p.rounds(60, 5);
  EXPECT_GE(p.w.size(), p.holds() * 3 / 2);
}
TEST(CongestionWindow, If_much_more_is_lost_than_before_the_rate_falls_to_what_comes) {
  path p{25'000};
  p.rounds(20);
  const std::uint32_t before = p.w.rate();
  p.rounds(4, 60);
  EXPECT_LE(p.w.rate(), before / 2);
}
TEST(CongestionWindow, Others_that_fill_the_queue_keep_their_share_and_once_they_are_gone_all_is_used) {
  path p{25'000};
  p.rounds(20);
  const std::uint32_t alone = p.w.size();
  EXPECT_FALSE(p.w.shares());
  p.rounds(2, 2, us(40'000));
  EXPECT_FALSE(p.w.shares()) << "a probe of its own makes a queue for so long";
  p.rounds(2, 2, us(40'000));
  ASSERT_TRUE(p.w.shares());
  EXPECT_LE(p.w.size(), alone * 8 / 10);
  const std::uint32_t least = p.w.size();
  p.rounds(4, 0, us(40'000));
  EXPECT_LE(p.w.size(), least * 12 / 10) << "as CUBIC grows";
  p.rounds(24);
  EXPECT_FALSE(p.w.shares());
  EXPECT_GE(p.w.size(), alone * 9 / 10);
}
TEST(CongestionWindow, A_path_that_carries_more_than_before_is_found_to_do_so) {
  path p{2'500};
  p.rounds(30);
  EXPECT_LE(p.w.size(), 260u);
  p.rate = 25'000;
  p.rounds(40);
  EXPECT_GE(p.w.size(), p.holds() * 3 / 2);
}
TEST(CongestionWindow, A_path_that_carries_more_than_before_is_found_to_do_so_by_requests_that_are_spread) {
  std::uint32_t rate = 2'500, id = 0;
  congestion_window w(4, 4096);
  round_trip trip;
  us now{1'000'000};
  struct request {
    std::uint32_t id;
    us left, answered;
  };
  std::deque<request> out;
  const auto run = [&](us time) {
    for (const us end = now + time; now < end; now += us(20)) {
      while (!out.empty() && out.front().answered <= now) {
        const request r = out.front();
        trip.took(now - r.left);
        w.answered(trip, r.id, id, static_cast<std::uint32_t>(out.size()), true, now);
        out.pop_front();
      }
      while (out.size() < w.size() && w.release() <= now) {
        const us free = out.empty() ? us(0) : out.back().answered + us(1'000'000) / rate;
        out.push_back({id++, now, std::max(now + us(40'000), free)});
        w.left(trip, now);
      }
    }
  };
  run(us(2'000'000));
  EXPECT_NEAR(w.rate(), rate, rate / 10);
  rate = 25'000;
  run(us(1'280'000));
  EXPECT_GE(w.rate(), rate * 8 / 10) << "32 round trips; a quarter more in each eight of them would make 6,100";
}
TEST(CongestionWindow, A_path_that_is_longer_than_before_is_found_to_be_so) {
  path p{25'000};
  p.rounds(20);
  const std::uint32_t before = p.w.size();
  p.fastest = us(80'000);
  p.rounds(400);
  EXPECT_GE(p.w.size(), before * 3 / 2);
}
TEST(CongestionWindow, Falls_to_its_least_when_nothing_comes_and_begins_again) {
  path p{25'000};
  p.rounds(20);
  p.w.timed_out();
  EXPECT_EQ(p.w.size(), 4u);
  EXPECT_EQ(p.w.rate(), 0u);
  p.rounds(20);
  EXPECT_GE(p.w.size(), p.holds() * 3 / 2);
}
TEST(CongestionWindow, Does_not_grow_far_beyond_what_is_asked_for) {
  for (const std::uint32_t in_flight : {1u, 8u}) {
    congestion_window w(4, 1024);
    round_trip trip;
    trip.took(us(40'000));
    us now(1'000'000);
    std::uint32_t most = 0;
    for (std::uint32_t id = 0; id < 1000; ++id) {
      w.answered(trip, id, id + in_flight, in_flight, false, now += us(40'000) / in_flight);
      most = std::max(most, w.size());
    }
    EXPECT_LE(most, 12 + in_flight);
  }
}
TEST(CongestionWindow, One_that_stays_stays) {
  congestion_window w(100, 7);
  round_trip trip;
  trip.took(us(40'000));
  us now(1'000'000);
  for (std::uint32_t id = 0; id < 1000; ++id) w.answered(trip, id, id + 7, 7, true, now += us(1'000));
  for (int i = 0; i < 100; ++i) w.lost();
  w.timed_out();
  EXPECT_EQ(w.size(), 7u);
  EXPECT_EQ(congestion_window(0, 0).size(), 1u);
  EXPECT_EQ(congestion_window(1, 4).size(), 1u);
}
TEST(CongestionWindow, Requests_are_spread_over_the_round_trip) {
  path p{10'000};
  p.rounds(30);
  us now = p.now + us(100'000);
  std::uint32_t at_once = 0;
  while (p.w.release() <= now) p.w.left(p.trip, now), ++at_once;
  EXPECT_LE(at_once, 40u) << "no burst of a whole window";
  EXPECT_GE(at_once, 8u);
  std::uint32_t in_a_round = at_once;
  for (const us end = now + us(40'000); now < end; now += us(100))
    while (p.w.release() <= now) p.w.left(p.trip, now), ++in_a_round;
  EXPECT_GE(in_a_round, 280u) << "as fast as they are answered";
  EXPECT_LE(in_a_round, 560u);
}
TEST(CongestionWindow, On_one_machine_nothing_is_held_back) {
  path p{1'000'000, us(50)};
  p.rounds(30);
  for (int i = 0; i < 100'000; ++i) p.w.left(p.trip, p.now);
  EXPECT_LE(p.w.release(), p.now);
}

}  // namespace datagram_window_test
