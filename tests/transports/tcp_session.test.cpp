// Both roles over one connection: a device's round, and two ends that send at each other.
// first, so that it shows whether it includes all that it uses
#include <tensorpull/transports/session/stream_session.hpp>

#include "four_answers.hpp"
#include "support/memory_pipe.hpp"

#include <tensorpull/transports/over/tcp/tcp_listener.hpp>

namespace tcp_session_test {

using namespace test;
using net = raw_net<mlp, tp::tcp>;

constexpr std::uint32_t task_kind = 1, result_kind = 2;

/// The server of a round: gives each device that connects the task, pulls the update that it offers.
struct aggregator {
  using host_type = net::host<aggregator, net::consumer>;
  using connection = host_type::connection;

  explicit aggregator(const mlp& model) : global(model) {}
  void connected(connection& c) { (void)c.send(task_kind, {&task, 1}, {}); }
  void message(connection& c, const tp::message& m) {
    kind = m.kind;
    body.assign(m.body.begin(), m.body.end());
    if (m.references.size() == 1) (void)c.pull(m.references[0], {}, update);
  }
  void pulled(connection&, const tp::result<tp::receipt>& r) {
    ++pulls, ok = r.has_value() && r->outcome == tp::outcome::completed;
  }
  void closed(connection& c, const tp::error&) {
    ++closes;
    sent_late = code_of(c.send(task_kind, {}, {}));
  }

  const mlp& global;
  mlp update{};
  tp::reference task{};
  std::uint32_t kind = 0;
  byte_vector body;
  int pulls = 0, closes = 0;
  bool ok = false;
  errc sent_late{};
};

TEST(TcpSession, A_whole_round_over_one_connection) {
  const auto global = random_model<mlp>(1), trained = random_model<mlp>(2);
  const auto server = std::make_unique<aggregator>(*global);
  tp::event_loop io;
  aggregator::host_type host(io, *server);
  const auto port = host.listen(any_port);
  ASSERT_TRUE(port);
  const auto task = host.published().add_tensors(*global, {.recipients = 1});
  ASSERT_TRUE(task);
  server->task = *task;

  joined_thread device([&] {
    auto peer = net::session::connect(local(*port));
    ASSERT_TRUE(peer);
    const auto got = peer->receive(60s);
    ASSERT_TRUE(succeeded(got));
    EXPECT_EQ(got->kind, task_kind);
    ASSERT_EQ(got->references.size(), 1u);
    const auto mine = blank<mlp>();
    ASSERT_TRUE(peer->download_tensors(got->references[0], *mine));
    EXPECT_TRUE(same(*mine, *global));
    *mine = *trained;
    const auto up = peer->add_tensors(*mine, {.recipients = 1});
    ASSERT_TRUE(up);
    const std::array samples{std::byte{42}};
    ASSERT_TRUE(peer->send(result_kind, {&*up, 1}, samples));
    const auto served = peer->serve(tp::until_settled(*up), 60s);
    EXPECT_TRUE(succeeded(served));
    EXPECT_EQ(peer->status_of(*up)->completed, 1u);
  });
  const auto end = steady_clock::now() + 60s;
  while (server->closes == 0 && steady_clock::now() < end) io.run_one_for(50ms);
  EXPECT_EQ(server->sent_late, errc::connection_lost) << "it would have taken a buffer for ever";
  device.join();
  EXPECT_EQ(server->pulls, 1);
  EXPECT_TRUE(server->ok);
  EXPECT_EQ(server->kind, result_kind);
  ASSERT_EQ(server->body.size(), 1u);
  EXPECT_TRUE(same(server->update, *trained));
  EXPECT_TRUE(host.published().settled(*task));
  EXPECT_EQ(host.connections(), 0u);
}

/// The two sessions of one connection.
template <class Net>
auto two_ends() {
  raw_listener listener;
  auto left = Net::session::connect(local(listener.port()));
  return std::pair(std::move(left), Net::session::over(std::move(listener.accept().stream())));
}

TEST(TcpSession, A_message_that_comes_while_the_connection_is_used_is_not_lost) {
  auto ends = two_ends<net>();
  auto &left = ends.first, &right = ends.second;
  ASSERT_TRUE(left && right);
  const std::array body{std::byte{7}};
  ASSERT_TRUE(left->send(1, {}, body));
  ASSERT_TRUE(left->send(2, {}, body));
  (void)right->serve([](const auto&) { return false; }, 200ms);  // takes the first from the connection
  ASSERT_TRUE(right->send(3, {}, body));
  for (std::uint32_t kind = 1; kind <= 2; ++kind) {
    const auto got = right->receive(20s);
    ASSERT_TRUE(got) << kind;
    EXPECT_EQ(got->kind, kind);
  }
  EXPECT_EQ(code_of(right->receive(50ms)), errc::timed_out);
}

/// What the other end sends while a session pulls: `count` messages of `bytes` bytes each before the owner's first
/// answer.
tp::result<tp::receipt> pull_behind_messages(net::session& mine, net::session& theirs, const tp::reference& ref,
                                             mlp& to, std::uint32_t count, std::size_t bytes) {
  const byte_vector body(bytes, std::byte{5});
  joined_thread sender([&] {
    for (std::uint32_t kind = 1; kind <= count; ++kind)
      if (!theirs.send(kind, {}, body, 20s)) return;
    (void)theirs.serve([&](const auto& s) { return s.settled(ref); }, 20s);
  });
  // the messages are under way before the pull begins; a later one only makes the test easier
  mine.stream().wait(true, false, 20s);
  be_slow(20ms);
  return mine.download_tensors(ref, to, {.per_request_timeout = 20s});
}

TEST(TcpSession, Many_unread_messages_wait_while_it_pulls) {
  auto ends = two_ends<net>();
  auto &mine = ends.first, &theirs = ends.second;
  ASSERT_TRUE(mine && theirs);
  const auto source = random_model<mlp>(1), to = blank<mlp>();
  const auto ref = theirs->add_tensors(*source, {.recipients = 1});
  ASSERT_TRUE(ref);
  const auto done = pull_behind_messages(*mine, *theirs, *ref, *to, 100, 500);
  ASSERT_TRUE(succeeded(done));
  EXPECT_TRUE(same(*to, *source));
  for (std::uint32_t kind = 1; kind <= 100; ++kind) {
    const auto got = mine->receive(20s);
    ASSERT_TRUE(got) << kind << to_string(got.error().code);
    EXPECT_EQ(got->kind, kind);
    EXPECT_EQ(got->body.size(), 500u);
    EXPECT_EQ(got->body.back(), std::byte{5});
  }
}

TEST(TcpSession, A_pull_behind_messages_that_nobody_reads_fails_at_once_and_by_name) {
  auto ends = two_ends<net>();
  auto &mine = ends.first, &theirs = ends.second;
  ASSERT_TRUE(mine && theirs);
  const auto source = random_model<mlp>(1), to = blank<mlp>();
  const auto ref = theirs->add_tensors(*source, {.recipients = 0});
  ASSERT_TRUE(ref);
  tp::result<tp::receipt> done;
  joined_thread sender([&] {
    const byte_vector body(64_KiB, std::byte{5});
    for (std::uint32_t kind = 1; kind <= 4; ++kind) ASSERT_TRUE(theirs->send(kind, {}, body, 20s));
    (void)theirs->serve([&](const auto& s) { return s.status_of(*ref)->completed == 1; }, 20s);
  });
  done = mine->download_tensors(*ref, *to, {.per_request_timeout = 600s});
  EXPECT_EQ(code_of(done), errc::unread_messages) << "four of the longest messages do not fit";
  for (std::uint32_t kind = 1; kind <= 4; ++kind) {
    const auto got = mine->receive(20s);
    ASSERT_TRUE(got) << kind << to_string(got.error().code);
    EXPECT_EQ(got->kind, kind);
  }
  EXPECT_TRUE(mine->download_tensors(*ref, *to, {.per_request_timeout = 20s})) << "the connection goes on";
  EXPECT_TRUE(same(*to, *source));
}

TEST(TcpSession, Both_ends_pull_at_once_in_chunks_that_fill_every_buffer) {
  using big = tp::pipeline<tp::raw_tensors<large>, tp::fixed_bytes<2_MiB>, tp::tcp>;
  auto ends = two_ends<big>();
  auto &left = ends.first, &right = ends.second;
  ASSERT_TRUE(left && right);
  const auto a = random_model<large>(1), b = random_model<large>(2);
  const auto ref_a = left->add_tensors(*a, {.recipients = 1}), ref_b = right->add_tensors(*b, {.recipients = 1});
  ASSERT_TRUE(ref_a && ref_b);
  const auto round = [](big::session& s, const tp::reference& theirs, const tp::reference& ours,
                        const large& expected) {
    const auto mine = blank<large>();
    const auto done = s.download_tensors(theirs, *mine, {.per_request_timeout = 60s});
    ASSERT_TRUE(succeeded(done));
    EXPECT_TRUE(same(*mine, expected));
    EXPECT_EQ(done->chunks, 7u);
    const auto served = s.serve(tp::until_settled(ours), 60s);
    EXPECT_TRUE(served || s.settled(ours)) << to_string(served.error().code);
  };
  joined_thread other([&] { round(*right, *ref_a, *ref_b, *a); });
  round(*left, *ref_b, *ref_a, *b);
}

TEST(TcpSession, Many_transfers_over_one_connection) {
  using small_net = tp::pipeline<tp::raw_tensors<tiny>, tp::fixed_bytes<64>, tp::tcp>;
  owner_at_work<small_net, tiny> o({.recipients = 0});
  auto peer = small_net::session::connect(local(o.owner->port()));
  ASSERT_TRUE(peer);
  for (int i = 0; i < 50; ++i) {
    tiny mine{};
    if (i % 3 == 2) {
      EXPECT_EQ(code_of(peer->download_tensors({{7, 7}, 0, 0}, mine)), errc::unknown_reference);
      continue;
    }
    ASSERT_TRUE(peer->download_tensors(o.ref, mine, {.window = static_cast<std::uint32_t>(i)})) << i;
    EXPECT_TRUE(same(mine, *o.source));
  }
  o.server.stop();
  const auto status = *o.owner->status_of(o.ref);
  EXPECT_EQ(status.acquired, 1u) << "a connection is one recipient, however often it asks";
  EXPECT_EQ(status.completed, 1u);
  EXPECT_EQ(status.bytes_sent, 34 * tp::raw_tensors<tiny>::schema().image_bytes);
}

TEST(TcpSession, T1_budgets_pass_also_while_the_session_is_busy_with_something_else) {
  const auto source = random_model<mlp>(1), mine = blank<mlp>(), other = random_model<mlp>(2);
  auto owner = net::downloader::open({});
  const auto ref = owner->add_tensors(*source);
  serving server(*owner);
  int settled = 0;
  auto tell = [&](const tp::settlement& s) { settled += s.verdict == tp::verdict::failed ? 1 : 100; };
  auto peer = net::session::connect(local(owner->port()));
  ASSERT_TRUE(peer);
  const auto up = peer->add_tensors(*other, {.recipients = 1, .budgets = {.transaction_idle = 100ms}, .settled = tell});
  ASSERT_TRUE(up);
  const auto end = steady_clock::now() + 20s;
  while (settled == 0 && steady_clock::now() < end) ASSERT_TRUE(peer->download_tensors(*ref, *mine));
  EXPECT_EQ(settled, 1) << "nobody came for it, and the session never waited";
}

TEST(TcpSession, C1_a_digest_that_differs_is_a_failure_at_the_owner_and_the_session_goes_on) {
  auto source = random_model<mlp>(1);
  const auto good = random_model<mlp>(2), mine = blank<mlp>();
  auto owner = net::downloader::open({});
  const auto changed = *owner->add_tensors(*source, {.recipients = 1}),
             kept = *owner->add_tensors(*good, {.recipients = 1});
  source->step ^= 1;
  std::optional<serving> server(std::in_place, *owner);
  auto peer = net::session::connect(local(owner->port()));
  ASSERT_TRUE(peer);
  EXPECT_EQ(code_of(peer->download_tensors(changed, *mine)), errc::digest_mismatch);
  ASSERT_TRUE(peer->download_tensors(kept, *mine))
      << "the answer to the last word of the one before is not taken for its own";
  EXPECT_TRUE(same(*mine, *good));
  server.reset();
  EXPECT_EQ(owner->status_of(changed)->failed, 1u);
  EXPECT_EQ(owner->status_of(changed)->cancelled, 0u);
  EXPECT_TRUE(owner->settled(changed));
}

// So that the other end works on it while the rest is collected.
TEST(TcpSession, Of_several_answers_the_first_goes_alone) {
  const auto source = random_model<mlp>(1);
  auto listener = tp::tcp_listener::open(any_port);
  ASSERT_TRUE(listener);
  raw_peer peer(listener->port());
  if (!segments_received(peer)) GTEST_SKIP() << "this kernel does not count them";
  auto session = net::session::over(*listener->accept(10s));
  const auto ref = *session->add_tensors(*source);
  EXPECT_EQ(
      segments_of_four_answers(peer, ref.id, [&] { (void)session->serve([](const auto&) { return false; }, 50ms); }),
      2u);
}

/// Both ends in memory, so that a test chooses what one step finds.
using over_memory = tp::stream_session<net::parts, pipe_end>;

TEST(TcpSession, A_message_that_has_left_was_sent_though_the_other_end_closes_at_once) {
  const byte_vector body(60'000, std::byte{7});
  // It leaves at once, and nothing is read; or its last bytes leave in the step that finds the end, after 17 steps that
  // only write.
  for (const std::size_t most : {~std::size_t{0}, body.size() / 18 + 10}) {
    wire there, here;
    pipe_end mine(here, there, {}, {most});
    mine.close();
    auto session = over_memory::over(std::move(mine));
    const auto sent = session->send(task_kind, {}, body);
    ASSERT_TRUE(succeeded(sent));
    EXPECT_GT(there.carried, body.size());
    for (int i = 0; i < 2; ++i) {
      const auto got = session->receive(30s);
      EXPECT_EQ(code_of(got), errc::connection_lost);
    }
    const auto another = session->send(task_kind, {}, body);
    EXPECT_EQ(code_of(another), errc::connection_lost);
    EXPECT_LT(there.carried, 2 * body.size());
  }
}

TEST(TcpSession, A_message_that_came_before_the_end_of_the_connection_is_received_after_it) {
  wire there, here;
  auto other = over_memory::over(pipe_end(there, here, {}, {}));
  ASSERT_TRUE(other->send(result_kind, {}, {}));
  ASSERT_TRUE(other->send(task_kind, {}, {}));
  pipe_end mine(here, there, {}, {});
  mine.close();
  auto session = over_memory::over(std::move(mine));
  EXPECT_TRUE(session->send(task_kind, {}, {}));
  EXPECT_EQ(code_of(session->serve([](const auto&) { return false; }, 30s)), errc::connection_lost);
  for (const std::uint32_t kind : {result_kind, task_kind}) {
    const auto got = session->receive(30s);
    ASSERT_TRUE(succeeded(got));
    EXPECT_EQ(got->kind, kind);
  }
  EXPECT_EQ(code_of(session->receive(30s)), errc::connection_lost);
}

TEST(TcpSession, Messages_that_came_before_something_that_is_no_message_are_received_before_the_error) {
  wire there, here;
  auto other = over_memory::over(pipe_end(there, here, {}, {}));
  const byte_vector longest(tp::default_limits::application_body_bytes, std::byte{7});
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(other->send(result_kind, {}, longest));
  ASSERT_TRUE(other->send(task_kind, {}, {}));  // there is no room for it until one of the others was received
  here.put(byte_vector(64, std::byte{0xff}));
  auto session = over_memory::over(pipe_end(here, there, {}, {}));
  ASSERT_TRUE(session->serve([&](const auto&) { return here.waiting() == 0; }, 30s));
  for (const std::uint32_t kind : {result_kind, result_kind, task_kind}) {
    const auto got = session->receive(30s);
    ASSERT_TRUE(succeeded(got));
    EXPECT_EQ(got->kind, kind);
  }
  EXPECT_FALSE(session->receive(30s));
}

TEST(TcpSession, A_message_that_has_not_left_when_the_other_end_closes_was_not_sent) {
  wire there, here;
  there.capacity = 1000;
  pipe_end mine(here, there, {}, {});
  mine.close();
  auto session = over_memory::over(std::move(mine));
  const byte_vector body(60'000);
  EXPECT_EQ(code_of(session->send(task_kind, {}, body)), errc::connection_lost);
}

}  // namespace tcp_session_test
