// Sessions over NATS: two ends that only reach a server own, pull and send messages.
#include "nats_network.hpp"

namespace nats_session_test {

using namespace test;
using net = nats_net<mlp>;
class NatsSession : public nats_test {};

TEST_F(NatsSession, Shorter_chunks_go_through_a_server_that_allows_less) {
  nats_process server("max_payload: 8192");
  const std::string where = server.url() + "#room";
  auto far = net::session::open(where), near = net::session::connect(where);
  ASSERT_TRUE(far && near);
  const auto source = random_model<mlp>(3), mine = blank<mlp>();
  const auto ref = *far->add_tensors(*source, {.recipients = 1});
  joined_thread other([&] { EXPECT_TRUE(far->serve(tp::until_settled(ref), 30s)); });
  const auto done = near->download_tensors(ref, *mine, {.per_request_timeout = 10s});
  ASSERT_TRUE(done) << describe(done.error());
  EXPECT_GT(done->chunks, 40u) << "of 8 KiB at most";
  EXPECT_TRUE(same(*mine, *source));
}

TEST_F(NatsSession, A_third_end_is_heard_by_nobody) {
  nats_process server;
  const std::string where = server.url() + "#room";
  auto far = net::session::open(where), near = net::session::connect(where), third = net::session::connect(where);
  ASSERT_TRUE(far && near && third);
  joined_thread other([&] { (void)far->serve([](const auto&) { return false; }, 1s); });
  EXPECT_TRUE(near->send(1, {}, {}, 10s));
  EXPECT_EQ(third->send(2, {}, {}, 300ms).error(), tp::errc::timed_out);
  other.join();
  EXPECT_EQ(far->receive(0ms)->kind, 1u);
  EXPECT_EQ(far->receive(0ms).error(), tp::errc::timed_out);
}

// The first that said anything had the only seat for ever.
TEST_F(NatsSession, An_end_that_asks_for_what_nobody_has_takes_no_seat) {
  nats_process server;
  const std::string where = server.url() + "#room";
  auto far = net::session::open(where), near = net::session::connect(where), third = net::session::connect(where);
  ASSERT_TRUE(far && near && third);
  joined_thread other([&] {
    EXPECT_EQ(far->receive(20s)->kind, 1u);
    (void)far->serve([](const auto&) { return false; }, 300ms);  // so that the other end hears that it has come
  });
  const auto mine = blank<mlp>();
  EXPECT_EQ(third->download_tensors({{1, 2}, 3, 4}, *mine, {.retry = {.retries = 0}}).error(),
            tp::errc::unknown_reference);
  EXPECT_TRUE(near->send(1, {}, {}, 10s));
}

TEST_F(NatsSession, Goes_on_when_the_server_is_started_again) {
  nats_process server;
  const std::string where = server.url() + "#room";
  auto far = net::session::open(where), near = net::session::connect(where);
  ASSERT_TRUE(far && near);
  const auto say = [&](std::uint32_t kind) {
    joined_thread other([&] { EXPECT_TRUE(near->send(kind, {}, {}, 30s)) << kind; });
    const auto got = far->receive(30s);
    ASSERT_TRUE(got) << kind << describe(got.error());
    EXPECT_EQ(got->kind, kind);
    (void)far->serve([](const auto&) { return false; }, 300ms);  // so that the other end hears that it has come
  };
  say(1);
  server.kill();
  server.start();
  say(2);
}

TEST_F(NatsSession, Ends_if_a_server_comes_back_that_allows_less_than_it_was_told) {
  nats_process server;
  auto far = net::session::open(server.url() + "#room");
  ASSERT_TRUE(far);
  server.kill();
  server.start("max_payload: 4096");
  EXPECT_EQ(far->receive(30s).error(), tp::errc::connection_lost);
}

TEST_F(NatsSession, A_name_that_is_missing_or_makes_no_subject_is_a_bad_address) {
  nats_process server;
  for (const std::string name : {"", "#", "#a b", "#*", "#a..b", "#>"}) {
    EXPECT_EQ(net::session::connect(server.url() + name).error(), tp::errc::bad_address) << name;
    EXPECT_EQ(net::session::open(server.url() + name).error(), tp::errc::bad_address) << name;
  }
  EXPECT_EQ(net::session::open(server.url() + "#" + std::string(77, 'x')).error(), tp::errc::bad_address);
}

}  // namespace nats_session_test
