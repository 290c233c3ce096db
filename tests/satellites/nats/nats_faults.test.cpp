// A NATS server that restarts, allows less, is not there; a recipient that is stopped; an owner that says nothing.
#include "nats_network.hpp"

#include <atomic>
#include <functional>
#include <optional>

namespace nats_faults_test {

using namespace test;
using NatsFaults = nats_test;

struct flag {
  const std::atomic<bool>* set;
  bool stop_requested() const { return *set; }
};

/// Calls something once, when half of the bytes are there.
struct at_half {
  std::function<void()> call;
  void operator()(const tp::progress_event& e) {
    if (2 * e.bytes_done >= e.bytes_total && e.bytes_total > 0 && call) std::exchange(call, nullptr)();
  }
};

TEST_F(NatsFaults, T4_a_server_that_restarts_in_the_middle_is_found_again_and_what_has_landed_stays) {
  nats_process server;
  auto owner = nats_owner_at<large>(server);
  const auto source = random_model<large>(1), mine = blank<large>();
  const auto ref = *owner.add_tensors(*source, {.recipients = 1});
  serving on(owner);
  at_half restart{[&] { server.kill(), server.start(); }};
  const auto done = nats_net<large>::download_tensors(server.url(), ref, *mine,
                                                      {.progress = restart, .progress_interval = 0ms});
  ASSERT_TRUE(done) << describe(done.error());
  EXPECT_TRUE(same(*mine, *source));
  on.stop();
  EXPECT_LT(owner.status_of(ref)->bytes_sent, sizeof(large) * 5 / 4) << "it began again";
  EXPECT_EQ(owner.settlement_of(ref)->verdict, tp::verdict::completed);
}

TEST_F(NatsFaults, T4_a_server_that_comes_back_with_64_KiB_gets_shorter_chunks) {
  nats_process server;
  using wide = tp::pipeline<tp::raw_tensors<large>, tp::fixed_bytes<512_KiB>, tp::nats>;
  const std::string url = server.url();
  auto owner = wide::downloader::open({.server = {.url = url, .timeout = std::chrono::minutes(1)}});
  const auto source = random_model<large>(1), mine = blank<large>();
  const auto ref = *owner->add_tensors(*source, {.recipients = 1});
  serving on(*owner);
  at_half restart{[&] { server.kill(), server.start("max_payload: 65536"); }};
  const auto done = wide::download_tensors(url, ref, *mine, {.progress = restart, .progress_interval = 0ms});
  ASSERT_TRUE(done) << describe(done.error());
  EXPECT_TRUE(same(*mine, *source));
  EXPECT_GT(done->chunks, sizeof(large) / 512_KiB + 40);
}

TEST_F(NatsFaults, T4_a_server_that_does_not_come_back_is_a_named_error) {
  nats_process server;
  auto owner = nats_owner_at<large>(server);
  const auto source = random_model<large>(1), mine = blank<large>();
  const auto ref = *owner.add_tensors(*source);
  serving on(owner);
  tp::resume_cursor cursor;
  at_half kill{[&] { server.kill(); }};
  const auto lost = nats_net<large>::download_tensors(server.url(), ref, *mine,
                                                      {.per_request_timeout = 300ms,
                                                       .retry = {.retries = 1, .first_delay = 1ms},
                                                       .cursor = &cursor,
                                                       .progress = kill,
                                                       .progress_interval = 0ms});
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code, tp::errc::connection_failed) << describe(lost.error());
  EXPECT_GE(cursor.offset, sizeof(large) / 2);
}

TEST_F(NatsFaults, T3_a_server_that_stands_still_for_a_while_only_costs_time) {
  nats_process server;
  auto owner = nats_owner_at<large>(server);
  const auto source = random_model<large>(1), mine = blank<large>();
  const auto ref = *owner.add_tensors(*source, {.recipients = 1});
  serving on(owner);
  std::optional<joined_thread> thaw;
  at_half freeze{[&] {
    server.freeze();
    thaw.emplace([&] { be_slow(1500ms), server.thaw(); });
  }};
  const auto done = nats_net<large>::download_tensors(server.url(), ref, *mine,
                                                      {.progress = freeze, .progress_interval = 0ms});
  ASSERT_TRUE(done) << describe(done.error());
  EXPECT_TRUE(same(*mine, *source));
}

TEST_F(NatsFaults, T8_an_abort_is_heard_within_a_tenth_of_a_second) {
  nats_process server;
  auto owner = nats_owner_at<large>(server);
  const auto source = random_model<large>(1), mine = blank<large>();
  const auto ref = *owner.add_tensors(*source);
  // nobody answers: the owner does not run; then nobody is there; then the server says nothing
  for (int round = 0; round < 3; ++round) {
    if (round == 2) server.freeze();
    std::atomic<bool> stop{false};
    std::chrono::steady_clock::time_point said;
    joined_thread later([&] { be_slow(200ms), said = std::chrono::steady_clock::now(), stop = true; });
    const auto done = nats_net<large>::download_tensors(
        server.url(), round == 1 ? tp::ref_id{1, 2} : ref.id, *mine,
        {.believe = true, .stop = flag{&stop}, .retry = {.retries = 1000, .first_delay = 10s}});
    later.join();
    const auto took = std::chrono::steady_clock::now() - said;
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, tp::errc::cancelled) << round;
    EXPECT_LT(took, 1s) << "a wait hears it within 0.1 s; the rest is for slow machines";
  }
  server.thaw();
}

TEST_F(NatsFaults, T7_a_coordinator_that_says_nothing_is_lost_after_the_patience_with_silence) {
  const nats_process server;
  auto owner = nats_owner_at<large>(server);
  const auto source = random_model<large>(1), mine = blank<large>();
  const auto ref = *owner.add_tensors(*source);
  std::optional<serving> on(owner);
  const std::string url = server.url();
  at_half pause{[&] { on.reset(); }};
  const auto lost = nats_net<large>::download_tensors(tp::nats_address{{.url = url}, {.silent = 1s}}, ref, *mine,
                                                      {.progress = pause, .progress_interval = 0ms});
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code, tp::errc::owner_lost) << describe(lost.error());
  EXPECT_GE(lost.error().at, sizeof(large) / 2);
}

TEST_F(NatsFaults, Who_is_not_let_in_is_told_so_at_once) {
  const nats_process server(R"(authorization { users = [
    {user: owner, password: right}
    {user: deaf, password: right, permissions: {subscribe: {allow: ["_INBOX.>"]}}} ] })");
  using net = nats_net<mlp>;
  const auto source = random_model<mlp>(1), mine = blank<mlp>();
  EXPECT_EQ(net::download_tensors(server.url("owner:wrong"), tp::ref_id{1, 1}, *mine, {.believe = true}).error().code,
            tp::errc::not_permitted);
  EXPECT_EQ(net::downloader::open({.server = {.url = server.url()}}).error().code, tp::errc::not_permitted);
  const std::string deaf = server.url("deaf:right"), good = server.url("owner:right");
  auto owner = net::downloader::open({.server = {.url = deaf}});
  ASSERT_TRUE(owner);
  const auto refused = owner->add_tensors(*source);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, tp::errc::not_permitted);
  auto other = net::downloader::open({.server = {.url = good}});
  const auto ref = *other->add_tensors(*source, {.recipients = 1});
  serving on(*other);
  EXPECT_TRUE(net::download_tensors(deaf, ref, *mine));
}

}  // namespace nats_faults_test
