// The round trip of RFC 6298, and the window: HyStart++, CUBIC, noise told apart, pacing; which requests are lost.
#include <tensorpull/protocol/datagrams/congestion_window.hpp>
#include <tensorpull/protocol/datagrams/detail/requests_in_flight.hpp>
#include <tensorpull/protocol/datagrams/round_trip.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <vector>

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
  EXPECT_NEAR(double(t.timeout().count()), 25'050, 10);
  t.took(us(0));
  EXPECT_EQ(t.fastest(), us(1)) << "known, although nothing could be measured";
}

/// A path that carries `rate` answers in a second and keeps `queue` of them, and a window over it.
struct path {
  struct request {
    std::uint32_t id;
    us left, answered;  // us::max(): it is lost
  };
  std::uint32_t rate, queue, every = 0;  // each `every`-th is lost
  us fastest{40'000};
  congestion_window w{16'384};
  round_trip trip{};
  us now{1'000'000}, free{0};
  std::uint32_t id = 4'000'000'000, lost = 0;
  std::deque<request> out{};

  void run(us time) {
    for (const us end = now + time; now < end;) {
      while (out.size() < w.size() && w.release() <= now) ask();
      const auto answer = std::find_if(out.begin(), out.end(),
                                       [](const request& r) { return r.answered != us::max(); });
      if (answer == out.end()) {
        w.timed_out();
        out.clear();
        now += fastest;
        continue;
      }
      now = std::max(now, out.size() < w.size() ? std::min(answer->answered, w.release()) : answer->answered);
      if (answer->answered > now) continue;
      const request r = *answer;
      for (; out.front().id != r.id; out.pop_front()) w.lost(out.front().id, id), ++lost;
      const auto in_flight = static_cast<std::uint32_t>(out.size());
      out.pop_front();
      trip.took(now - r.left);
      w.answered(trip, now - r.left, r.id, id, in_flight, true, now);
    }
  }
  void ask() {
    const us begins = std::max(free, now + fastest);
    const bool full = (begins - now - fastest) * rate > us(1'000'000) * queue;
    const bool gone = full || (every != 0 && id % every == 0);
    if (!full) free = begins + us(1'000'000) / rate;
    out.push_back({id++, now, gone ? us::max() : free});
    w.left(trip, now);
  }
  std::uint32_t holds() const { return std::uint32_t(rate * std::uint64_t(fastest.count()) / 1'000'000); }
};

TEST(CongestionWindow, Begins_with_ten_and_doubles_until_answers_wait) {
  path p{25'000, 8'000};
  EXPECT_EQ(p.w.size(), 10u) << "RFC 9002, 7.2";
  std::uint32_t before = 10;
  for (int i = 0; i < 6; ++i, before = p.w.size()) {
    p.run(us(42'000));
    EXPECT_GE(p.w.size(), before * 5 / 4);
    EXPECT_LE(p.w.size(), before * 5 / 2);
  }
  p.run(us(2'000'000));
  EXPECT_GE(p.w.size(), p.holds());
  EXPECT_LE(p.w.size(), 4 * p.holds()) << "HyStart++ (RFC 9406), but no more once answers take twice as long";
  p.run(us(60'000'000));
  EXPECT_LE(p.w.size(), 4 * p.holds()) << "a queue that has no end is not filled";
  EXPECT_EQ(p.lost, 0u);
}
TEST(CongestionWindow, Falls_to_seven_tenths_where_the_queue_is_full_and_CUBIC_brings_it_back) {
  path p{25'000, 125};
  p.run(us(20'000'000));
  const std::uint32_t before = p.lost;
  std::uint32_t full = p.w.size();
  while (p.lost == before) full = p.w.size(), p.run(us(1'000));
  p.run(us(50'000));
  EXPECT_NEAR(full, p.holds() + p.queue, 50);
  EXPECT_NEAR(p.w.size(), full * 7 / 10, full / 50);
  EXPECT_LE(p.lost - before, full / 50) << "a queue of an eighth loses a few";
  const us fell = p.now;
  while (p.w.size() < full * 98 / 100) p.run(us(10'000));
  const double k = std::cbrt(0.75 * full), took = double((p.now - fell).count()) * 1e-6;
  EXPECT_GE(took, 0.5 * k) << "RFC 9438, 4.2: K = cbrt(W (1 - 0.7) / 0.4)";
  EXPECT_LE(took, 1.1 * k);
}
TEST(CongestionWindow, However_short_the_queue_less_than_a_hundredth_is_lost_and_the_line_is_used) {
  for (const std::uint32_t part : {8u, 4u, 1u}) {
    path p{25'000, 1'000 / part};
    p.run(us(5'000'000));
    const std::uint32_t began = p.id, before = p.lost;
    p.run(us(40'000'000));
    EXPECT_LE((p.lost - before) * 100, p.id - began) << part;
    EXPECT_GE(p.id - began, 40 * p.rate * 9 / 10) << part;
  }
}
TEST(CongestionWindow, One_event_counts_once) {
  path p{25'000, 100};
  p.run(us(8'000'000));
  const std::uint32_t size = p.w.size();
  for (std::uint32_t i = 0; i < 3; ++i) p.w.answered(p.trip, us(45'000), p.id + i, p.id + 500, 0, false, p.now);
  for (std::uint32_t i = 3; i < 400; i += 2) p.w.lost(p.id + i, p.id + 500);
  EXPECT_NEAR(p.w.size(), size * 7 / 10, 1) << "those had left before it fell";
  p.w.lost(p.id + 500, p.id + 900);
  EXPECT_NEAR(p.w.size(), size * 49 / 100, 1);
}
TEST(CongestionWindow, Losses_without_a_queue_change_little_up_to_a_fiftieth) {
  for (const std::uint32_t every : {1'000u, 100u, 67u}) {
    path p{25'000, 1'000, every};
    p.run(us(5'000'000));
    const std::uint32_t began = p.id;
    p.run(us(10'000'000));
    EXPECT_GE(p.id - began, 10 * p.rate * 8 / 10) << every;
  }
  path p{25'000, 1'000, 20};
  p.run(us(15'000'000));
  EXPECT_LE(p.w.size(), p.holds() / 5) << "a twentieth that is lost for long is congestion, queue or not";
}
TEST(CongestionWindow, An_event_in_which_nothing_was_lost_is_undone) {
  path p{25'000, 100};
  p.run(us(8'000'000));
  const std::uint32_t size = p.w.size();
  for (std::uint32_t i = 0; i < 3; ++i) p.w.answered(p.trip, us(45'000), p.id + i, p.id + 500, 0, false, p.now);
  for (std::uint32_t i = 3; i < 6; ++i) p.w.lost(p.id + i, p.id + 500);
  EXPECT_LT(p.w.size(), size);
  for (std::uint32_t i = 3; i < 5; ++i) p.w.was_not_lost(p.id + i);
  EXPECT_LT(p.w.size(), size) << "one still is";
  p.w.was_not_lost(p.id + 5);
  EXPECT_EQ(p.w.size(), size);
}
TEST(CongestionWindow, A_path_that_carries_more_than_before_is_found_to_do_so) {
  path p{2'500, 100};
  p.run(us(4'000'000));
  EXPECT_LE(p.w.size(), 250u);
  p.rate = 25'000;
  p.run(us(12'000'000));
  EXPECT_GE(p.w.size(), p.holds() * 8 / 10);
}
TEST(CongestionWindow, A_path_that_takes_much_longer_than_before_is_used_as_well_whether_it_was_cut_or_not) {
  for (const bool cut : {false, true})
    for (const int longer : {60'000, 150'000}) {
      path p{25'000, 500, 0, us{10'000}};
      p.run(us(20'000'000));
      p.fastest = us(longer);
      if (cut) p.w.timed_out(), p.out.clear();
      p.run(us(2'000'000));
      EXPECT_GE(p.w.size(), 250u) << "cut " << cut << ", " << longer;
      p.run(us(58'000'000));
      const std::uint32_t before = p.id;
      p.run(us(10'000'000));
      EXPECT_GE(p.id - before, 225'000u) << "cut " << cut << ", " << longer << ": nine tenths of the line";
    }
}
TEST(CongestionWindow, An_answer_after_a_timeout_that_tells_no_time_is_no_wait) {
  congestion_window w(100);
  round_trip trip;
  trip.took(us(40'000));
  w.answered(trip, us(40'000), 1, 2, 10, true, us(1'000'000));
  w.timed_out();
  for (std::uint32_t id = 2; id < 5; ++id) w.answered(trip, us(0), id, id + 1, 10, true, us(2'000'000) + us(id));
  EXPECT_EQ(w.size(), 2u);
  for (std::uint32_t id = 5; id < 9; ++id) w.answered(trip, us(40'000), id, id + 1, 10, true, us(3'000'000) + us(id));
  EXPECT_EQ(w.size(), 6u) << "the first whose time is known";
}
TEST(CongestionWindow, A_queue_that_has_no_end_is_not_filled_in_time_either) {
  path p{5'000, 1'600, 0, us{10'000}};
  p.run(us(600'000'000));
  EXPECT_LE(p.w.size(), 4 * p.holds());
}
TEST(CongestionWindow, Falls_to_two_when_nothing_comes_and_doubles_to_where_it_was_nearly) {
  path p{25'000, 1'000};
  p.run(us(1'000'000));
  const std::uint32_t before = p.w.size();
  for (int i = 0; i < 5; ++i) p.w.timed_out();
  EXPECT_EQ(p.w.size(), 2u) << "RFC 9002, 7.6";
  p.out.clear();
  p.run(us(600'000));
  EXPECT_GE(p.w.size(), before * 65 / 100) << "it was silent once, however long";
}
TEST(CongestionWindow, Does_not_grow_far_beyond_what_is_asked_for) {
  for (const std::uint32_t in_flight : {1u, 8u}) {
    congestion_window w(1024);
    round_trip trip;
    trip.took(us(40'000));
    us now(1'000'000);
    std::uint32_t most = 0;
    for (std::uint32_t id = 0; id < 1000; ++id) {
      w.answered(trip, us(40'000), id, id + in_flight, in_flight, true, now += us(40'000) / in_flight);
      most = std::max(most, w.size());
    }
    EXPECT_LE(most, 13 + in_flight);
  }
}
TEST(CongestionWindow, One_that_stays_stays) {
  congestion_window w(7, true);
  round_trip trip;
  trip.took(us(40'000));
  us now(1'000'000);
  for (std::uint32_t id = 0; id < 1000; ++id) w.answered(trip, us(40'000), id, id + 7, 7, true, now += us(1'000));
  for (std::uint32_t i = 0; i < 100; ++i) w.lost(1000 + i, 1100);
  w.timed_out();
  EXPECT_EQ(w.size(), 7u);
  EXPECT_EQ(congestion_window(0).size(), 1u);
  EXPECT_EQ(congestion_window(4).size(), 4u);
}
TEST(CongestionWindow, Requests_are_spread_over_the_round_trip) {
  path p{10'000, 50};
  p.run(us(10'000'000));
  us now = p.now + us(100'000);
  std::uint32_t at_once = 0;
  while (p.w.release() <= now) p.w.left(p.trip, now), ++at_once;
  EXPECT_LE(at_once, 40u) << "no burst of a whole window";
  EXPECT_GE(at_once, 8u);
  std::uint32_t in_a_round = at_once;
  for (const us end = now + us(40'000); now < end; now += us(100))
    while (p.w.release() <= now) p.w.left(p.trip, now), ++in_a_round;
  EXPECT_GE(in_a_round, p.w.size()) << "the whole window within a round trip";
  EXPECT_LE(in_a_round, p.w.size() * 3 / 2);
}
TEST(CongestionWindow, On_one_machine_nothing_is_held_back) {
  path p{1'000'000, 1'000, 0, us(50)};
  p.run(us(10'000));
  for (int i = 0; i < 100'000; ++i) p.w.left(p.trip, p.now);
  EXPECT_LE(p.w.release(), p.now);
}

/// Requests that leave every millisecond, over a path of 40.
struct requests {
  tensorpull::detail::requests_in_flight<64> asked{};
  round_trip trip{};
  std::vector<std::uint32_t> lost{};

  explicit requests(std::uint32_t count) {
    trip.took(us(40'000));
    for (std::uint32_t i = 0; i < count; ++i) asked.add(i, std::uint16_t(i), us(1'000 * i));
  }
  void answer(std::uint32_t id) {
    if (asked.take(id) == asked.nobody) return (void)asked.was_late(id);
    asked.answered(id, trip, [this](std::uint32_t gone, std::uint16_t) { lost.push_back(gone); });
  }
  using ids = std::vector<std::uint32_t>;
};

TEST(RequestsInFlight, One_is_lost_if_one_that_left_three_later_was_answered) {
  requests r(10);
  r.answer(1), r.answer(2);
  EXPECT_TRUE(r.lost.empty());
  r.answer(3);
  EXPECT_EQ(r.lost, requests::ids{0});
  EXPECT_EQ(r.asked.count(), 6u);
}
TEST(RequestsInFlight, Once_one_has_overtaken_others_it_is_time_that_counts) {
  requests r(60);
  r.answer(1), r.answer(0);
  for (std::uint32_t id = 3; id < 12; ++id) r.answer(id);
  EXPECT_TRUE(r.lost.empty()) << "a quarter of the round trip is ten milliseconds (RFC 8985, 6.2)";
  r.answer(13);
  EXPECT_EQ(r.lost, requests::ids{2});
}
TEST(RequestsInFlight, Only_one_that_was_given_up_is_late) {
  requests r(10);
  r.answer(1), r.answer(2), r.answer(3);
  EXPECT_FALSE(r.asked.was_late(1)) << "it is doubled";
  EXPECT_TRUE(r.asked.was_late(0));
  EXPECT_FALSE(r.asked.was_late(0));
  EXPECT_FALSE(r.asked.was_late(4)) << "it is awaited";
  EXPECT_FALSE(r.asked.was_late(0u - 60)) << "never asked";
}
TEST(RequestsInFlight, Each_round_trip_in_which_a_lost_one_was_answered_makes_it_more_patient) {
  requests r(60);
  r.answer(1), r.answer(2), r.answer(3);
  EXPECT_EQ(r.lost, requests::ids{0});
  r.answer(0);
  for (std::uint32_t id = 5; id < 24; ++id) r.answer(id);
  EXPECT_EQ(r.lost, requests::ids{0}) << "a half is twenty";
  r.answer(24);
  EXPECT_EQ(r.lost, (requests::ids{0, 4}));
}

}  // namespace datagram_window_test
