// UDP over networks that lose, double, re-order and damage, and with ends that stop, start again, or go.
#include "support/clocks.hpp"
#include "udp_network.hpp"

#include <atomic>
#include <optional>
#include <stop_token>

namespace udp_faults_test {

using namespace test;

using troubled_net = tp::pipeline<tp::raw_tensors<mlp>, fit, troubled_udp>;

void expect_exact(const tp::testing::datagram_faults& faults) {
  troubled_udp::faults = faults;
  auto owner = troubled_net::downloader::open();
  const auto source = random_model<mlp>(faults.seed), mine = blank<mlp>();
  const auto ref = *owner->add_tensors(*source, {.recipients = 1});
  serving server(*owner);
  const auto done = troubled_net::download_tensors(local(owner->port()), ref, *mine);
  server.stop();
  ASSERT_TRUE(completed(done)) << ", seed " << faults.seed;
  EXPECT_TRUE(same(*mine, *source)) << "seed " << faults.seed;
  EXPECT_TRUE(done->confirmed) << "seed " << faults.seed;
}

TEST(UdpFaults, Five_in_a_hundred_are_lost_each_way) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) expect_exact({.lost = 50, .seed = seed});
}
TEST(UdpFaults, A_quarter_is_lost) { expect_exact({.lost = 250}); }
TEST(UdpFaults, A_third_is_doubled) { expect_exact({.doubled = 333}); }
TEST(UdpFaults, A_third_is_overtaken) { expect_exact({.overtaken = 333}); }
TEST(UdpFaults, Lost_doubled_and_overtaken) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed)
    expect_exact({.lost = 100, .doubled = 50, .overtaken = 100, .seed = seed});
}
TEST(UdpFaults, With_delay) { expect_exact({.lost = 20, .overtaken = 20, .delay = 2ms}); }

// A bit that is another is noticed by the digest of the chunk, and the chunk comes again.
TEST(UdpFaults, Damaged_chunks_come_again) {
  using net = tp::pipeline<tp::raw_tensors<mlp>, fit, troubled_udp, tp::chunk_and_image_digest>;
  troubled_udp::faults = {.damaged = 20};
  const auto mine = blank<mlp>();
  owner_at_work<net> o;
  const auto done = net::download_tensors(local(o.owner->port()), o.ref, *mine);
  ASSERT_TRUE(succeeded(done));
  EXPECT_TRUE(same(*mine, *o.source));
}

TEST(UdpFaults, T1_a_peer_that_was_forgotten_in_the_middle_goes_on) {
  const auto mine = blank<mlp>();
  owner_at_work<udp_net> o(udp_net::downloader::open({.peers = 1, .budgets = {.idle = 20ms, .idle_if_full = 10ms}}));
  struct slow : tp::land {  // silent for longer than the budgets, several times
    using tp::land::land;
    tp::result<void> commit(std::uint64_t offset, const_byte_span bytes) noexcept {
      if (offset / 100'000 != last_) last_ = offset / 100'000, be_slow(120ms);
      return tp::land::commit(offset, bytes);
    }
    std::uint64_t last_ = 0;
  } to(tp::raw_tensors<mlp>::destination(*mine));
  const auto done = udp_net::pull(local(o.owner->port()), o.ref, to, {.per_request_timeout = 2s});
  ASSERT_TRUE(succeeded(done));
  EXPECT_TRUE(same(*mine, *o.source));
  o.server.stop();
  EXPECT_GT(o.owner->counts().aged, 1u);
}

TEST(UdpFaults, T8_an_abort_is_heard_within_a_tenth_of_a_second) {
  auto silent = tp::udp_link::open(any_port);  // takes everything and says nothing
  const auto mine = blank<mlp>();
  std::stop_source stop;
  steady_clock::time_point at{};
  joined_thread other([&] {
    be_slow(80ms);
    at = steady_clock::now();
    stop.request_stop();
  });
  const auto done = udp_net::download_tensors(local(silent->port()), tp::ref_id{1, 2}, *mine,
                                              {.stop = stop.get_token()});
  const auto now = steady_clock::now();
  other.join();
  const auto took = now - at;
  EXPECT_EQ(code_of(done), errc::cancelled);
  EXPECT_LE(took, 1s) << "a wait hears it within 0.1 s; the rest is for slow machines";
}

TEST(UdpFaults, An_owner_is_told_of_an_abort) {
  using net = tp::pipeline<tp::raw_tensors<large>, fit, tp::udp>;
  const auto mine = blank<large>();
  owner_at_work<net, large> o({.recipients = 1});
  std::stop_source stop;
  const auto at_once = [&](const tp::progress_event&) { stop.request_stop(); };
  const auto done = net::download_tensors(local(o.owner->port()), o.ref, *mine,
                                          {.stop = stop.get_token(), .progress = at_once});
  EXPECT_EQ(code_of(done), errc::cancelled);
  o.server.stop();
  EXPECT_TRUE(runs_until("it is told", *o.owner, [&] { return o.owner->status_of(o.ref)->cancelled == 1; }));
}

TEST(UdpFaults, Nobody_there_is_told_soon_and_not_after_the_time_out) {
  const own_udp_port nobody;
  const auto mine = blank<mlp>();
  const fast_clock fast(5);
  const auto start = steady_clock::now();
  const auto done = udp_net::download_tensors(nobody.address(), tp::ref_id{1, 2}, *mine, {.retry = {.retries = 0}});
  ASSERT_EQ(code_of(done), errc::connection_lost);
  EXPECT_EQ(done.error().system, ECONNREFUSED);
  EXPECT_LT(steady_clock::now() - start, 60s) << "the time-out is ten minutes";
}

TEST(UdpFaults, T7_a_time_out_ends_a_pull_from_an_owner_that_says_nothing) {
  auto silent = tp::udp_link::open(any_port);
  const auto mine = blank<mlp>();
  const auto done = udp_net::download_tensors(
      local(silent->port()), tp::ref_id{1, 2}, *mine,
      {.per_request_timeout = 100ms, .retry = {.retries = 1, .first_delay = 1ms}});
  EXPECT_EQ(code_of(done), errc::timed_out);
}

TEST(UdpFaults, C2_a_reference_that_is_withdrawn_in_the_middle_is_told_so) {
  using net = tp::pipeline<tp::raw_tensors<large>, fit, tp::udp>;
  auto owner = net::downloader::open();
  const auto source = random_model<large>(6);
  const auto ref = *owner->add_tensors(*source);
  std::atomic<std::uint64_t> landed{0};
  std::vector<tp::result<tp::receipt>> done(4, tp::failure(errc::timed_out));
  const auto note = [&](const tp::progress_event& e) {
    if (e.bytes_done > 1_MiB) landed = e.bytes_done;
  };
  joined_threads all(done.size(), [&](std::size_t i) {
    const auto mine = blank<large>();
    done[i] = net::download_tensors(local(owner->port()), ref, *mine,
                                    {.per_request_timeout = 20s, .progress = note, .progress_interval = 0ms});
  });
  ASSERT_TRUE(runs_until("some bytes have landed", *owner, [&] { return landed > 0; }));
  ASSERT_TRUE(owner->withdraw(ref, 7));
  serving server(*owner);
  all.join();
  for (const auto& d : done) {
    ASSERT_EQ(code_of(d), errc::withdrawn);
    EXPECT_EQ(d.error().system, 7);
  }
}

}  // namespace udp_faults_test
