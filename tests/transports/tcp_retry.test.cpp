// Connections that are lost, time out and come back; owners that restart; recipients that give up and say why.
#include "network.hpp"
#include "support/clocks.hpp"

#include <atomic>
#include <stop_token>

namespace tcp_retry_test {

using namespace test;
using net = tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<16_KiB>, tp::tcp>;
constexpr tp::retry_policy quick{.retries = 3, .first_delay = 5ms, .longest_delay = 20ms};

/// Stands between a recipient and an owner; what it does with each connection is the test's.
class middle {
 public:
  /// `most(n)`: bytes of answers that the n-th connection carries before it is cut; 0: it stays silent, for `silence`.
  template <class Most>
  middle(std::atomic<std::uint16_t>& owner, Most most, std::chrono::milliseconds silence = 0ms, bool by_reset = false)
      : thread_([this, &owner, most, silence, by_reset](const std::stop_token& stop) {
          while (!stop.stop_requested()) {
            auto client = listener_.next(20ms);
            if (!client) continue;
            const std::size_t bytes = most(connections_++);
            if (bytes == 0) {
              stay_silent(*client, silence, stop);
            } else {
              raw_peer behind(owner);
              carry_answers(*client, behind, bytes, stop);
            }
            if (by_reset) client->reset();
          }
        }) {}
  std::uint16_t port() const { return listener_.port(); }
  std::size_t connections() const { return connections_; }
  /// The same, once so many have come.
  std::size_t connections_up_to(std::size_t n) const {
    (void)eventually("they come", [&] { return connections_ >= n; });
    return connections_;
  }

 private:
  static void stay_silent(raw_peer& client, std::chrono::milliseconds silence, const std::stop_token& stop) {
    byte_vector piece(4096);
    while (!stop.stop_requested()) {
      const auto io = read_some(client.stream(), piece);
      if (tp::is_end(io.status)) return;
      if (io.bytes > 0) pass_time(silence);
      client.stream().wait(true, false, 5ms);
    }
  }
  raw_listener listener_;
  std::atomic<std::size_t> connections_{0};
  joined_thread thread_;
};

constexpr std::size_t uncut = ~std::size_t{0};

struct running {
  std::unique_ptr<mlp> source = random_model<mlp>(1);
  tp::result<net::downloader> owner = net::downloader::open();
  tp::reference ref;
  std::atomic<std::uint16_t> port;
  std::optional<serving> server;
  explicit running(const tp::publish_options& o = {}) : ref(*owner->add_tensors(*source, o)), port(owner->port()) {
    server.emplace(*owner);
  }
};

TEST(TcpRetry, T4_a_hundred_resets_at_random_moments_are_resumed_and_cost_at_most_a_chunk_each) {
  running r({.recipients = 1});
  generator random(4);
  middle m(
      r.port, [&](std::size_t n) { return n < 100 ? 1 + static_cast<std::size_t>(random.below(7'000)) : uncut; }, 0ms,
      true);
  const auto mine = blank<mlp>();
  const auto done = net::download_tensors(
      local(m.port()), r.ref, *mine,
      {.per_request_timeout = 60s, .window = 1, .retry = {.retries = 100, .first_delay = 1ms, .longest_delay = 1ms}});
  ASSERT_TRUE(completed(done));
  EXPECT_TRUE(same(*mine, *r.source));
  EXPECT_EQ(m.connections(), 101u);
  r.server->stop();
  EXPECT_LE(r.owner->status_of(r.ref)->bytes_sent, done->bytes + m.connections() * 16_KiB);
  EXPECT_EQ(r.owner->status_of(r.ref)->acquired, 1u);
  EXPECT_EQ(r.owner->settlement_of(r.ref)->verdict, tp::verdict::completed);
}

TEST(TcpRetry, T10_sixty_four_recipients_whose_owner_restarts_all_come_back_and_finish) {
  constexpr std::uint32_t n = 64;
  const auto source = random_model<mlp>(1);
  const own_port port;
  auto first = net::downloader::open({.listen = local(port)});
  ASSERT_TRUE(first);
  const auto ref = *first->add_tensors(*source, {.recipients = n, .id = {5, 6}});
  std::atomic<int> exact{0};
  std::atomic<std::uint64_t> bytes{0};
  {
    joined_threads recipients(n, [&](std::size_t i) {
      const auto mine = blank<mlp>();
      // eight tries of up to a second: for longer than that nobody finds a closed door
      const auto done = net::download_tensors(local(port), ref, *mine,
                                              {.per_request_timeout = 60s,
                                               .retry = {.retries = 8, .first_delay = 50ms, .longest_delay = 1000ms},
                                               .recipient = {1 + i}});
      EXPECT_TRUE(done) << i << ": " << to_string(done.error().code) << " at " << done.error().at;
      if (!done) return;
      bytes = done->bytes;
      exact += same(*mine, *source);
    });
    const auto half = n * sizeof(mlp) / 2;
    EXPECT_TRUE(runs_until("all have begun, and half of the bytes are sent", *first, [&] {
      return first->status_of(ref)->acquired == n && first->status_of(ref)->bytes_sent > half;
    }));
    EXPECT_LT(first->status_of(ref)->completed, n) << "it was over before";
    first = tp::failure(errc::withdrawn);  // the process is gone, and for a while nobody is there
    be_slow(200ms);
    auto second = net::downloader::open({.listen = local(port)});
    ASSERT_TRUE(succeeded(second));
    ASSERT_TRUE(second->add_tensors(*source, {.id = {5, 6}}));
    joined_thread serves([&](const std::stop_token& stop) { second->run(stop); });
    recipients.join();
    serves.request_stop();
    serves.join();
    EXPECT_LT(second->status_of({{5, 6}, 0, 0})->bytes_sent, n * bytes) << "what had landed was not sent again";
  }
  EXPECT_EQ(exact, static_cast<int>(n));
}

TEST(TcpRetry, One_and_several_timeouts_then_recovery_and_the_count_starts_anew_after_a_success) {
  running r;
  // after each part: its cut, silence, silence: three failures in a row and no more
  const std::array<std::size_t, 7> plan{0, 0, 100'000, 0, 0, 100'000, uncut};
  middle m(r.port, [plan](std::size_t n) { return n == 0 ? 20'000 : plan[std::min(n - 1, plan.size() - 1)]; }, 60s);
  EXPECT_TRUE(arrives<net>(local(m.port()), r.ref, *r.source, {.per_request_timeout = 60s, .retry = quick}));
  EXPECT_EQ(m.connections(), plan.size() + 1);
}

TEST(TcpRetry, Retries_exhausted_and_no_retries) {
  running r;
  middle silent(r.port, [](std::size_t) { return std::size_t{0}; }, 60s);
  const auto mine = blank<mlp>();
  const auto pull = [&](tp::retry_policy retry) {
    return net::download_tensors(local(silent.port()), r.ref, *mine, {.per_request_timeout = 60s, .retry = retry});
  };
  EXPECT_EQ(code_of(pull(quick)), errc::timed_out);
  EXPECT_EQ(silent.connections_up_to(4), 4u);
  EXPECT_EQ(code_of(pull({.retries = 0})), errc::timed_out);
  EXPECT_EQ(silent.connections_up_to(5), 5u);
}

TEST(TcpRetry, An_error_that_no_try_gets_past_fails_at_once) {
  running r;
  middle m(r.port, [](std::size_t) { return uncut; });
  const auto mine = blank<mlp>();
  EXPECT_EQ(code_of(net::download_tensors(local(m.port()), tp::ref_id{7, 7}, *mine,
                                          {.per_request_timeout = 60s, .retry = quick})),
            errc::unknown_reference);
  EXPECT_EQ(m.connections(), 1u);
  const auto start = steady_clock::now();
  EXPECT_EQ(code_of(net::download_tensors("no such host:1", r.ref, *mine, {.retry = {.first_delay = 60s}})),
            errc::bad_address);
  EXPECT_EQ(code_of(net::session::connect("no such host:1", {.retry = {.first_delay = 60s}})), errc::bad_address);
  EXPECT_LT(steady_clock::now() - start, 30s);
}

TEST(TcpRetry, A_session_that_starts_before_its_owner_waits_for_it) {
  const auto source = random_model<mlp>(1), mine = blank<mlp>();
  const own_port port;
  tp::result<tp::receipt> done = tp::failure(errc{});
  joined_thread pulls([&] {
    auto s = net::session::connect(local(port),
                                   {.retry = {.retries = 10'000, .first_delay = 5ms, .longest_delay = 5ms}});
    ASSERT_TRUE(succeeded(s));
    done = s->download_tensors({.id = {5, 6}}, *mine);
  });
  be_slow(100ms);  // several tries, most likely; the test holds without them
  auto owner = net::downloader::open({.listen = local(port)});
  ASSERT_TRUE(succeeded(owner));
  ASSERT_TRUE(owner->add_tensors(*source, {.id = {5, 6}}));
  serving server(*owner);
  pulls.join();
  ASSERT_TRUE(done);
  EXPECT_TRUE(done->confirmed);
  EXPECT_TRUE(same(*mine, *source));
}
TEST(TcpRetry, T8_an_abort_ends_the_wait_for_an_owner_that_never_starts) {
  const auto mine = blank<mlp>();
  const own_port port;
  for (const bool session : {false, true}) {
    stop_after stop(50ms);
    const tp::retry_policy slow{.first_delay = 600s, .longest_delay = 600s};
    const auto start = steady_clock::now();
    if (session)
      EXPECT_EQ(code_of(net::session::connect(local(port), {.retry = slow, .stop = stop.get_token()})),
                errc::cancelled);
    else
      EXPECT_EQ(code_of(net::download_tensors(local(port), tp::ref_id{5, 6}, *mine,
                                              {.stop = stop.get_token(), .retry = slow})),
                errc::cancelled);
    EXPECT_LT(steady_clock::now() - start, 60s);
  }
}

TEST(TcpRetry, T8_an_abort_in_back_off_is_heard_at_once) {
  running r;
  middle m(r.port, [](std::size_t) { return std::size_t{20'000}; });
  std::stop_source stop;
  joined_thread later([&] {
    (void)m.connections_up_to(1);
    be_slow(100ms);
    stop.request_stop();
  });
  const auto mine = blank<mlp>();
  const auto start = steady_clock::now();
  const auto done = net::download_tensors(
      local(m.port()), r.ref, *mine,
      {.per_request_timeout = 60s, .stop = stop.get_token(), .retry = {.first_delay = 60s}});
  EXPECT_EQ(code_of(done), errc::cancelled);
  EXPECT_LT(steady_clock::now() - start, 20s);
}

TEST(TcpRetry, A_pull_that_reaches_nobody_leaves_its_cursor_where_it_was) {
  running r;
  const auto mine = blank<mlp>();
  tp::resume_cursor cursor;
  ASSERT_TRUE(net::download_tensors(local(r.port), r.ref, *mine, {.cursor = &cursor}));
  const auto kept = cursor;
  EXPECT_FALSE(net::download_tensors(local(own_port()), r.ref, *mine, {.retry = {.retries = 0}, .cursor = &cursor}));
  EXPECT_EQ(cursor, kept);
}

TEST(TcpRetry, The_longest_delay_does_not_wrap) {
  auto listener = tp::tcp_listener::open(any_port);
  ASSERT_TRUE(listener);
  const auto mine = blank<mlp>();
  std::stop_source abort;
  std::atomic<int> connections{0};
  joined_thread accepts([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) connections += listener->accept(50ms).has_value();  // and hangs up
  });
  joined_thread aborts([&] {
    (void)eventually("it connects", [&] { return connections > 0; });
    be_slow(300ms);
    abort.request_stop();
  });
  const auto longest = std::chrono::milliseconds::max();
  const auto done = net::download_tensors(
      local(listener->port()), tp::ref_id{1, 2}, *mine,
      {.stop = abort.get_token(), .retry = {.retries = 3, .first_delay = longest, .longest_delay = longest}});
  accepts.request_stop();
  accepts.join();
  EXPECT_EQ(code_of(done), errc::cancelled);
  EXPECT_EQ(connections, 1);
}

TEST(TcpRetry, T3_an_owner_that_dribbles_is_timed_out_like_a_silent_one) {
  raw_listener listener;
  joined_thread dribbler([&](std::stop_token stop) {
    raw_peer client = listener.accept();
    // of a frame of 40 words, most of which will come
    const std::array<std::byte, 8> head{{{}, {}, {}, {}, std::byte{40}}};
    for (int i = 0; i < 320 && !stop.stop_requested(); ++i) {
      const bool is_length = i < 8 && head[static_cast<std::size_t>(i)] != std::byte{};
      if (!client.say(std::span(is_length ? head.data() + 4 : head.data(), 1))) return;
      be_slow(15ms);
    }
  });
  const auto mine = blank<mlp>();
  const auto done = net::download_tensors(local(listener.port()), {{1, 2}, 0, 0}, *mine,
                                          {.per_request_timeout = 300ms, .retry = {.retries = 0}});
  EXPECT_EQ(code_of(done), errc::timed_out) << "the end of the dribbling, after 4.8 s, would be connection_lost";
}

TEST(TcpRetry, A_session_asks_again_on_its_connection_after_a_timeout) {
  running r;
  auto session = *net::session::connect(local(r.port));
  r.server->stop();  // the owner does nothing for a while
  joined_thread later([&] {
    be_slow(400ms);
    r.server.emplace(*r.owner);
  });
  const auto mine = blank<mlp>();
  const auto done = session.download_tensors(
      r.ref, *mine,
      {.per_request_timeout = 100ms, .retry = {.retries = 200, .first_delay = 20ms, .longest_delay = 20ms}});
  ASSERT_TRUE(succeeded(done));
  EXPECT_TRUE(same(*mine, *r.source));
}

TEST(TcpRetry, C6_callbacks_run_once_before_the_source_is_released_and_may_throw) {
  auto owner = *net::downloader::open();
  struct tracked {
    std::unique_ptr<mlp> model = random_model<mlp>(4);
    bool* released;
    ~tracked() { *released = true; }
  };
  bool released = false, released_at_call = true;
  int calls = 0;
  auto tell = [&](const tp::settlement& s) {
    ++calls;
    released_at_call = released;
    EXPECT_EQ(s.verdict, calls == 1 ? tp::verdict::completed : tp::verdict::withdrawn);
    throw 5;
  };
  const auto kept = std::make_shared<tracked>();
  kept->released = &released;
  auto pointer = std::shared_ptr<mlp>(kept, kept->model.get());
  const std::weak_ptr<mlp> alive = pointer;
  const auto ref = *owner.add_tensors(std::move(pointer), {.recipients = 1, .settled = tell});
  auto server = std::make_unique<serving>(owner);
  const auto mine = blank<mlp>();
  ASSERT_TRUE(net::download_tensors(local(owner.port()), ref, *mine, {.per_request_timeout = 60s}));
  server.reset();
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(released_at_call);
  EXPECT_EQ(alive.use_count(), 1) << "only the test's own is left";
  for (int i = 0; i < 3; ++i) (void)owner.withdraw(ref);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(owner.callback_failures(), 1u);

  mlp other{};
  const auto again = *owner.add_tensors(other, {.settled = tell});
  EXPECT_TRUE(owner.withdraw(again));
  EXPECT_TRUE(owner.withdraw(again));
  EXPECT_EQ(calls, 2);
}

}  // namespace tcp_retry_test
