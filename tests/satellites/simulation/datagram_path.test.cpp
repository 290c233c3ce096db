// Pulls over datagrams through a bottleneck, in virtual time: round trips of 5 to 200 ms, 20 Mbit/s to 1 Gbit/s, losses
// of up to 1 %, queues of an eighth of a round trip to two, other flows, and lines that change.
#include "support/lossy_pair.hpp"

#include <tensorpull/chunking/policies.hpp>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

namespace datagram_path_test {

using namespace test;

/// As many requests on their way as the longest of these lines hold, and twice as many for what is asked for again.
struct wide : tp::default_limits {
  static constexpr std::size_t window = 16'384;
};

struct path {
  microseconds round_trip;
  double megabits;
  double loss = 0;
  double queue_in_round_trips = 1;
  double doubled = 0;
  microseconds jitter{0};
  double overtakes = 0;
  std::uint64_t seed = 1;

  double bytes_per_second() const { return megabits * 125'000; }
  double seconds() const { return static_cast<double>(round_trip.count()) * 1e-6; }
};

constexpr std::size_t datagram_bytes = 1200, chunk_bytes = 1120,
                      packet_bytes = datagram_bytes + lossy_line::overhead_bytes;

model tensor_of(std::uint64_t bytes) {
  model m;
  m.add("w", dtype::u8, {bytes}).ready();
  return m;
}

/// A pull through the path.
template <class Limits>
struct journey {
  explicit journey(const path& p, std::uint64_t bytes)
      : of(p), theirs(std::move(tensor_of(bytes).fill(1))), mine(tensor_of(bytes)), to(mine.destination()),
        pair({.datagram_bytes = datagram_bytes,
              .loss = p.loss,
              .doubled = p.doubled,
              .delay = p.round_trip / 2,
              .jitter = p.jitter,
              .overtakes = p.overtakes},
             p.seed),
        sender{p.bytes_per_second(), queue_bytes(p)}, back{p.bytes_per_second(), queue_bytes(p)},
        t(to, {.ref = {1, 2}, .recipient = {9}}, {}, pair.right.end->next_id()) {
    pair.down.sender = &sender;
    pair.up.sender = &back;
    pair.left.publish(theirs);
    t.fits(datagram_bytes);
    pair.right.end->begin_pull();
    began = pair.now;
  }
  static std::size_t queue_bytes(const path& p) {
    return std::max<std::size_t>(static_cast<std::size_t>(p.bytes_per_second() * p.seconds() * p.queue_in_round_trips),
                                 3'000);
  }
  /// The whole of it; how many seconds it took.
  double run(microseconds limit = 20min) {
    EXPECT_TRUE(pair.run(t, [&] { return t.ended(); }, limit));
    EXPECT_TRUE(t.ended() && t.outcome()) << (t.ended() ? to_string(t.outcome().error().code) : "it does not end");
    EXPECT_TRUE(mine.same_tensors(theirs));
    return took();
  }
  double took() const { return static_cast<double>((pair.now - began).count()) * 1e-6; }
  /// Until this time has passed.
  void run_for(microseconds time) {
    const microseconds end = pair.now + time;
    (void)pair.run(t, [&] { return t.ended() || pair.now >= end; }, time);
  }

  path of;
  model theirs, mine;
  tp::land to;
  lossy_pair<Limits> pair;
  bottleneck sender, back;
  tp::datagram_transfer<tp::land, tp::fit_datagram, tp::image_digest, Limits> t;
  microseconds began{};
};

/// The seconds that a line allows: a round trip for the description and one for the confirmation; ten packets in the
/// first round trip of data and twice as many in each that follows, until the line is full (RFC 9002, 7.2 and 7.3.1);
/// then as many as it carries, less what is lost. If anything is lost, one more for what was lost last.
double allowed(const path& p, std::uint64_t bytes) {
  const double packets = static_cast<double>(bytes) / chunk_bytes;
  const double carried = p.bytes_per_second() / packet_bytes;
  double window = 10, came = 0, seconds = (p.loss > 0 ? 3 : 2) * p.seconds();
  while (window < carried * p.seconds() && came < packets) came += window, window *= 2, seconds += p.seconds();
  return came < packets ? seconds + p.seconds() + (packets - came) / (carried * (1 - p.loss)) : seconds;
}

constexpr std::uint64_t sixteen_mebibytes = 16 << 20;

TEST(DatagramPath, Sixteen_mebibytes_take_what_the_line_allows_whatever_its_round_trip_rate_and_loss) {
  for (const double megabits : {20.0, 100.0, 1000.0})
    for (const microseconds round_trip : {5ms, 40ms, 100ms, 200ms})
      for (const double loss : {0.0, 0.001, 0.01}) {
        path p{round_trip, megabits, loss};
        std::vector<double> ratios;
        for (p.seed = 1; p.seed <= (loss > 0 ? 3 : 1); ++p.seed) {
          journey<wide> j(p, sixteen_mebibytes);
          ratios.push_back(j.run() / allowed(p, sixteen_mebibytes));
        }
        std::sort(ratios.begin(), ratios.end());
        const double median = ratios[ratios.size() / 2];
        std::printf("%4.0f Mbit/s, %3.0f ms, %.1f %%: %.2f\n", megabits, 1e3 * p.seconds(), 100 * loss, median);
        EXPECT_LE(median, loss > 0 && megabits > 100 && round_trip == 5ms ? 2 : 1.25)
            << megabits << " " << p.seconds() << " " << loss;
      }
}
TEST(DatagramPath, The_usual_limits_fill_what_they_hold) {
  for (const path p : {path{5ms, 100}, path{40ms, 20, 0.01}, path{40ms, 100}, path{100ms, 20}}) {
    journey<tp::default_limits> j(p, sixteen_mebibytes);
    EXPECT_LE(j.run() / allowed(p, sixteen_mebibytes), 1.25) << p.megabits << " " << p.seconds();
  }
}
TEST(DatagramPath, A_queue_without_an_end_is_not_filled) {
  const path p{40ms, 100, 0, 100};
  journey<wide> j(p, 64 << 20);
  j.run_for(2s);
  j.sender.longest_wait = {};
  (void)j.run();
  EXPECT_LE(j.sender.longest_wait, 130ms) << "it grows no more once answers take three and a half times as long";
}
TEST(DatagramPath, A_small_model_takes_three_round_trips) {
  journey<wide> j({100ms, 100}, 8 << 10);
  EXPECT_LE(j.run(), 0.305);
}

/// What lands in a time, as a share of what the line carries.
template <class Journey>
double use(Journey& j, microseconds time) {
  const std::uint64_t before = j.t.landed_bytes();
  j.run_for(time);
  return static_cast<double>(j.t.landed_bytes() - before) * packet_bytes / chunk_bytes /
         (j.of.bytes_per_second() * static_cast<double>(time.count()) * 1e-6);
}
/// The share of what both carry that a pull has beside a flow of TCP which was there before, once they have settled.
double share_beside_tcp(const path& p) {
  constexpr microseconds settles = 40s, counts = 20s;
  journey<wide> j(p, static_cast<std::uint64_t>(p.bytes_per_second() * 48));
  tcp_flow other(j.sender, p.round_trip);
  other.start(j.pair.now);
  for (const microseconds until = j.pair.now + 5s; j.pair.now < until;
       j.pair.now = std::max(j.pair.now + 1us, other.next()))
    other.step(j.pair.now);
  j.pair.besides = [&](microseconds now) {
    other.step(now);
    return other.next();
  };
  j.run_for(settles);
  const double ours = static_cast<double>(j.t.landed_bytes()), theirs = static_cast<double>(other.delivered());
  j.run_for(counts);
  EXPECT_FALSE(j.t.ended());
  const double we = static_cast<double>(j.t.landed_bytes()) - ours,
               they = static_cast<double>(other.delivered()) - theirs;
  return we / (we + they);
}
TEST(DatagramPath, Beside_a_flow_of_TCP_each_has_between_a_third_and_two_thirds_however_short_the_queue) {
  for (path p : {path{40ms, 20}, path{100ms, 10}, path{20ms, 50}, path{5ms, 50}})
    for (const double queue : {0.125, 0.25, 1.0, 2.0}) {
      p.queue_in_round_trips = queue;
      const double share = share_beside_tcp(p);
      std::printf("%4.0f Mbit/s, %3.0f ms, queue %.3f: %.2f\n", p.megabits, 1e3 * p.seconds(), queue, share);
      EXPECT_GE(share, 0.333) << p.megabits << " " << p.seconds() << " " << queue;
      EXPECT_LE(share, 0.667) << p.megabits << " " << p.seconds() << " " << queue;
    }
}
TEST(DatagramPath, Alone_it_loses_less_than_a_hundredth_however_short_the_queue_and_uses_the_line) {
  for (path p : {path{40ms, 20}, path{100ms, 10}, path{40ms, 50}, path{5ms, 50}})
    for (const double queue : {0.125, 0.25, 1.0, 2.0}) {
      p.queue_in_round_trips = queue;
      journey<wide> j(p, static_cast<std::uint64_t>(p.bytes_per_second() * 25));
      j.run_for(5s);
      const double used = use(j, 20s);
      const double lost = static_cast<double>(j.sender.dropped) / static_cast<double>(j.pair.down.sent);
      std::printf("%4.0f Mbit/s, %3.0f ms, queue %.3f: loses %.4f, uses %.2f\n", p.megabits, 1e3 * p.seconds(), queue,
                  lost, used);
      EXPECT_LE(lost, 0.01) << p.megabits << " " << p.seconds() << " " << queue;
      EXPECT_GE(used, 0.9) << p.megabits << " " << p.seconds() << " " << queue;
    }
}
TEST(DatagramPath, Six_of_them_lose_less_than_three_hundredths_and_share_the_line) {
  for (path p : {path{40ms, 20}, path{100ms, 10}})
    for (const double queue : {0.125, 0.25, 1.0, 2.0}) {
      p.queue_in_round_trips = queue;
      bottleneck sender{p.bytes_per_second(), journey<wide>::queue_bytes(p)};
      std::vector<std::unique_ptr<journey<tp::default_limits>>> all;
      for (p.seed = 1; p.seed <= 6; ++p.seed) {
        all.push_back(
            std::make_unique<journey<tp::default_limits>>(p, static_cast<std::uint64_t>(p.bytes_per_second() * 30)));
        all.back()->pair.down.sender = &sender;
      }
      const auto earlier = [](const auto& a, const auto& b) { return a->pair.now < b->pair.now; };
      for (const microseconds end = all[0]->pair.now + 30s;;) {
        auto& next = **std::min_element(all.begin(), all.end(), earlier);
        if (next.pair.now >= end) break;
        next.run_for(1us);
      }
      std::uint64_t sent = 0, landed = 0, least = ~std::uint64_t{0};
      for (const auto& j : all) {
        sent += j->pair.down.sent, landed += j->t.landed_bytes();
        least = std::min(least, std::uint64_t{j->t.landed_bytes()});
      }
      const double lost = static_cast<double>(sender.dropped) / static_cast<double>(sent);
      std::printf("%4.0f Mbit/s, %3.0f ms, queue %.3f: six lose %.4f, the least has %.2f of its share\n", p.megabits,
                  1e3 * p.seconds(), queue, lost, 6.0 * static_cast<double>(least) / static_cast<double>(landed));
      EXPECT_LE(lost, 0.03) << p.megabits << " " << p.seconds() << " " << queue;
      EXPECT_GE(6 * least, landed / 3) << p.megabits << " " << p.seconds() << " " << queue;
    }
}
TEST(DatagramPath, Losses_that_happen_however_few_are_sent_cost_little_up_to_a_hundredth) {
  for (path p : {path{40ms, 20}, path{100ms, 10}, path{40ms, 100}, path{5ms, 100}}) {
    p.loss = 0.01;
    journey<wide> j(p, static_cast<std::uint64_t>(p.bytes_per_second() * 20));
    j.run_for(5s);
    EXPECT_GE(use(j, 12s), 0.8) << p.megabits << " " << p.seconds();
  }
}
TEST(DatagramPath, Packets_that_overtake_others_are_not_taken_for_losses) {
  for (const double overtakes : {0.002, 0.02})
    for (path p : {path{40ms, 20}, path{40ms, 100}}) {
      p.overtakes = overtakes;
      journey<wide> j(p, static_cast<std::uint64_t>(p.bytes_per_second() * 15));
      j.run_for(5s);
      EXPECT_GE(use(j, 8s), 0.9) << p.megabits << " " << overtakes;
    }
  for (path p : {path{40ms, 20}, path{40ms, 100}}) {
    p.jitter = 10ms;
    journey<wide> j(p, static_cast<std::uint64_t>(p.bytes_per_second() * 15));
    j.run_for(5s);
    EXPECT_GE(use(j, 8s), 0.9) << p.megabits;
  }
}

TEST(DatagramPath, A_line_that_carries_nothing_for_half_a_minute_is_full_again_within_five_seconds) {
  for (const path p : {path{40ms, 20}, path{100ms, 100}}) {
    journey<wide> j(p, 256 << 20);
    j.run_for(5s);
    j.pair.link.loss = 1;
    j.run_for(30s);
    j.pair.link.loss = 0;
    j.run_for(5s);
    EXPECT_GE(use(j, 2s), 0.85) << p.megabits;
    EXPECT_FALSE(j.t.ended());
  }
}
TEST(DatagramPath, A_rate_that_falls_to_a_tenth_and_comes_back_is_followed_within_five_seconds) {
  const path p{40ms, 100};
  journey<wide> j(p, 256 << 20);
  j.run_for(5s);
  j.sender.bytes_per_second /= 10;
  j.run_for(10s);
  j.sender.bytes_per_second *= 10;
  j.run_for(5s);
  EXPECT_GE(use(j, 2s), 0.85);
}
TEST(DatagramPath, What_is_doubled_and_overtaken_costs_little) {
  path p{40ms, 20, 0.001};
  p.doubled = 0.03, p.jitter = 1ms;
  journey<wide> j(p, sixteen_mebibytes);
  EXPECT_LE(j.run() / allowed(p, sixteen_mebibytes), 1.35);
}

}  // namespace datagram_path_test
