// Many recipients of different speeds that give up at will, and a great many connections that come to nothing.
#include "network.hpp"
#include "support/sanitizers.hpp"

#include <atomic>

namespace tcp_cohort_test {

using namespace test;
using net = tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<16_KiB>, tp::tcp>;

/// Takes its time over each chunk, and gives up after some of them.
struct recipient_of_a_kind : tp::land {
  std::chrono::microseconds pace;
  std::uint64_t chunks_left;
  std::stop_source* stop;
  recipient_of_a_kind(mlp& m, std::chrono::microseconds p, std::uint64_t chunks, std::stop_source& s)
      : tp::land(tp::raw_tensors<mlp>::destination(m)), pace(p), chunks_left(chunks), stop(&s) {}
  tp::result<void> chunk(std::uint64_t, std::uint64_t) noexcept {
    be_slow(pace);
    if (chunks_left-- == 0) stop->request_stop();
    return {};
  }
};

TEST(TcpCohort, C4_recipients_of_speeds_from_one_to_a_hundred_that_abort_at_random_are_counted_as_they_ended) {
  constexpr std::size_t n = 32;
  const auto source = random_model<mlp>(1);
  auto owner = *net::downloader::open();
  const auto ref = *owner.add_tensors(*source, {.recipients = n});
  std::array<std::unique_ptr<mlp>, n> models;
  std::array<bool, n> completed{};
  for (auto& m : models) m = blank<mlp>();
  std::array<std::uint64_t, n> chunks;
  generator random(44);
  for (auto& c : chunks) c = random.below(3) == 0 ? random.below(20) : 1000;
  {
    const serving server(owner);
    on_threads(n, [&](std::size_t i) {
      const auto pace = std::chrono::microseconds(40 << (i % 8 < 7 ? i % 8 : 0));  // 40 to 2,560
      std::stop_source stop;
      recipient_of_a_kind to(*models[i], i == 5 ? 4000us : pace, chunks[i], stop);
      const auto done = net::pull(local(owner.port()), ref, to,
                                  {.per_request_timeout = 60s, .stop = stop.get_token(), .recipient = {100 + i}});
      completed[i] = done && done->outcome == tp::outcome::completed;
      EXPECT_TRUE(done || done.error() == errc::cancelled) << i;
    });
  }
  ASSERT_TRUE(runs_until("all have ended", owner, [&] { return owner.settled(ref); }));
  std::uint32_t count = 0;
  for (std::size_t i = 0; i < n; ++i) {
    count += completed[i];
    EXPECT_TRUE(!completed[i] || same(*models[i], *source)) << i;
    EXPECT_EQ(owner.recipient_of(ref, {100 + i})->state == tp::recipient_state::completed, completed[i]) << i;
  }
  const auto outcome = *owner.settlement_of(ref);
  EXPECT_EQ(outcome.counts.completed, count);
  EXPECT_EQ(outcome.counts.cancelled, n - count);
  EXPECT_GT(count, 8u);
  EXPECT_LT(count, n);
}

TEST(TcpCohort, Q4_a_hundred_thousand_connections_leave_nothing_behind) {
#if defined(__OPTIMIZE__) && !defined(TENSORPULL_TEST_SANITIZED)
  constexpr int times = 100'000;
#else
  constexpr int times = 5'000;
#endif
  owner_at_work<net> o;
  const auto mine = blank<mlp>();
  const auto pull = [&] {
    ASSERT_TRUE(net::download_tensors(local(o.owner->port()), o.ref, *mine, {.per_request_timeout = 60s}));
    EXPECT_TRUE(same(*mine, *o.source));
  };
  pull();
  std::size_t files = 0;
  [[maybe_unused]] std::size_t resident = 0;  // sanitizers keep memory for themselves
  for (int i = 0; i < times; ++i) {
    if (i == times / 10) files = descriptors(), resident = resident_bytes();
    raw_peer peer(o.owner->port());
    if (i % 3 == 0) (void)peer.say("?");
    peer.reset();  // without the minute that the system keeps a port for after an orderly end
  }
  pull();
  o.server.stop();
  EXPECT_TRUE(runs_until("all connections have ended", *o.owner, [&] { return o.owner->connections() == 0; }));
  EXPECT_LE(descriptors(), files);
#if !defined(TENSORPULL_TEST_SANITIZED)
  EXPECT_GT(resident, 0u);
  EXPECT_LE(resident_bytes(), resident + 1_MiB);
#endif
}

}  // namespace tcp_cohort_test
