// A host's pulls honour their options, as those of a program that waits do.
#include "network.hpp"
#include "support/clocks.hpp"
#include "support/frames.hpp"
#include "support/whole_schedule.hpp"

#include <tensorpull/transports/over/tcp/tcp_listener.hpp>

#include <atomic>
#include <new>
#include <stop_token>
#include <thread>

namespace test {

/// Thirty tensors: where they are does not fit a frame of 512 bytes.
struct wide {
  std::uint8_t a0[3], a1[3], a2[3], a3[3], a4[3], a5[3], a6[3], a7[3], a8[3], a9[3];
  std::uint8_t b0[3], b1[3], b2[3], b3[3], b4[3], b5[3], b6[3], b7[3], b8[3], b9[3];
  std::uint8_t c0[3], c1[3], c2[3], c3[3], c4[3], c5[3], c6[3], c7[3], c8[3], c9[3];
};

}  // namespace test

BOOST_HANA_ADAPT_STRUCT(test::wide, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, c0,
                        c1, c2, c3, c4, c5, c6, c7, c8, c9);

namespace tcp_host_pulls_test {

using namespace test;
using net = raw_net<mlp, tp::tcp>;
/// Its owners may be asked while they serve.
using net_on_threads = raw_net<mlp, tp::tcp_on_threads>;

/// Lands in a model while it is allowed to; until then it has no memory.
struct patient : tp::land {
  const bool* open;
  patient(mlp& m, const bool& may, bool throws = false) : tp::land(tp::raw_tensors<mlp>::destination(m)), open(&may) {
    if (throws) throw std::bad_alloc();
  }
  tp::prepared prepare(std::uint64_t offset, std::uint64_t length, std::span<byte_span> out) noexcept {
    return *open ? tp::land::prepare(offset, length, out) : tp::prepared{};
  }
};

/// Connects, pulls once with these options, and keeps what it is told.
struct puller {
  using host_type = net::host<puller, patient>;
  using connection = host_type::connection;

  tp::reference ref{};
  tp::pull_options options{};
  std::unique_ptr<mlp> mine = blank<mlp>();
  bool may_land = true, close_after = true, throws_first = false;
  std::optional<tp::result<tp::receipt>> outcome;
  int closes = 0;
  tp::event_loop io;
  std::unique_ptr<host_type> host;

  void connected(connection& c) {
    if (throws_first) {
      EXPECT_THROW((void)c.pull(ref, options, *mine, may_land, true), std::bad_alloc);
    }
    EXPECT_TRUE(c.pull(ref, options, *mine, may_land));
  }
  void message(connection&, const tp::message&) {}
  void pulled(connection& c, const tp::result<tp::receipt>& r) {
    outcome = r;
    if (close_after) c.close();
  }
  void closed(connection&, const tp::error&) { ++closes; }

  void start(std::uint16_t port, const tp::connection_budgets& budgets = {}) {
    host = std::make_unique<host_type>(io, *this, tp::host_options{.budgets = budgets});
    ASSERT_TRUE(host->connect(local(port)));
  }
  template <class Done>
  bool turn_until(Done done, std::chrono::milliseconds patience = 10s) {
    const auto end = steady_clock::now() + patience;
    while (!done() && steady_clock::now() < end) io.run_one_for(5ms);
    return done();
  }
  bool turn_until_pulled() {
    return turn_until([&] { return outcome.has_value(); });
  }
};

TEST(TcpHostPulls, A_request_that_is_not_answered_in_time_is_made_again_and_then_times_out) {
  raw_listener deaf;
  puller p;
  p.ref = {{1, 2}, 0, 0};
  p.options = {.per_request_timeout = 100ms, .retry = {.retries = 2, .first_delay = 1ms}};
  p.start(deaf.port());
  raw_peer owner = deaf.accept();
  ASSERT_TRUE(p.turn_until_pulled());
  EXPECT_EQ(p.outcome->error(), errc::timed_out);
  EXPECT_TRUE(p.turn_until([&] { return p.closes == 1; }));
  const std::size_t one = request(tp::frame_kind::describe, 1, p.ref.id, 0, 0).size();
  EXPECT_GE(owner.hear(~std::size_t{0}).size(), 3 * one) << "it was asked three times";
}

TEST(TcpHostPulls, A_stop_request_ends_a_pull_and_the_owner_is_told_the_reason) {
  auto owner = *net_on_threads::downloader::open();
  const auto source = random_model<mlp>(1);
  const std::array who{tp::recipient_id{5}};
  const auto ref = *owner.add_tensors(*source, {.named = who});
  serving server(owner);
  std::stop_source stop;
  const std::uint32_t reason = 7;
  puller p;
  p.ref = ref;
  // with more requests on their way the owner has sent all there is before anybody looks
  p.options = {.window = 1, .stop = stop.get_token(), .stop_reason = &reason, .recipient = who[0]};
  p.may_land = p.close_after = false;
  p.start(owner.port());
  EXPECT_TRUE(p.turn_until([&] {
    const auto r = owner.recipient_of(ref, who[0]);
    return r && r->state == tp::recipient_state::acquired;
  }));
  EXPECT_FALSE(p.turn_until([&] { return p.outcome.has_value(); }, 300ms));
  stop.request_stop();
  ASSERT_TRUE(p.turn_until_pulled());
  EXPECT_EQ(p.outcome->error(), errc::cancelled);
  EXPECT_TRUE(p.turn_until([&] { return owner.settled(ref); }));
  server.stop();
  const auto record = owner.recipient_of(ref, who[0]);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->state, tp::recipient_state::cancelled);
  EXPECT_EQ(record->reason, reason);
}

TEST(TcpHostPulls, A_consumer_whose_constructor_throws_begins_nothing) {
  owner_at_work<net_on_threads> o;
  puller p;
  p.ref = o.ref;
  p.throws_first = true;
  p.start(o.owner->port());
  ASSERT_TRUE(p.turn_until_pulled());
  EXPECT_TRUE(succeeded(*p.outcome));
  EXPECT_TRUE(same(*p.mine, *o.source));
}

TEST(TcpHostPulls, Progress_is_told_and_the_cursor_kept) {
  owner_at_work<net_on_threads> o;
  tp::resume_cursor cursor;
  std::vector<tp::progress_event> events;
  auto tell = [&](const tp::progress_event& e) { events.push_back(e); };
  puller p;
  p.ref = o.ref;
  p.options = {.cursor = &cursor, .progress = tell, .progress_interval = 0ms};
  p.start(o.owner->port());
  ASSERT_TRUE(p.turn_until_pulled());
  ASSERT_TRUE(*p.outcome) << to_string(p.outcome->error().code);
  EXPECT_TRUE(same(*p.mine, *o.source));
  ASSERT_GE(events.size(), 2u);
  EXPECT_EQ(events.front().phase, tp::progress_phase::started);
  EXPECT_EQ(events.back().phase, tp::progress_phase::completed);
  EXPECT_EQ(events.back().bytes_done, events.back().bytes_total);
  EXPECT_EQ(cursor.ref, o.ref.id);
  EXPECT_EQ(cursor.offset, (*p.outcome)->bytes);

  // and a pull goes on from it: the first half is not fetched again
  puller again;
  again.ref = o.ref;
  again.mine = std::move(p.mine);
  again.options = {.cursor = &cursor};
  const auto before = o.owner->status_of(o.ref)->bytes_sent;
  again.start(o.owner->port());
  ASSERT_TRUE(again.turn_until_pulled());
  ASSERT_TRUE(*again.outcome);
  EXPECT_TRUE(again.turn_until([&] { return o.owner->status_of(o.ref)->bytes_sent > before; }));
  EXPECT_LT(o.owner->status_of(o.ref)->bytes_sent - before, 64_KiB) << "only the last byte";
}

TEST(TcpHostPulls, Who_waits_for_a_buffer_of_ours_is_not_counted_as_stalled) {
  owner_at_work<net_on_threads> o;
  puller p;
  p.ref = o.ref;
  p.may_land = false;
  p.options.per_request_timeout = 500ms;
  p.start(o.owner->port(), {.stall = 200ms});
  {
    const fast_clock fast(4);
    EXPECT_FALSE(p.turn_until([&] { return p.outcome.has_value(); }, 2s)) << "it was we who did not read";
  }
  p.may_land = true;
  ASSERT_TRUE(p.turn_until_pulled());
  ASSERT_TRUE(*p.outcome) << to_string(p.outcome->error().code);
  EXPECT_TRUE(same(*p.mine, *o.source));
}

TEST(TcpHostPulls, A_busy_owner_is_asked_again_over_the_same_connection) {
  raw_listener listener;
  puller p;
  p.ref = {{1, 2}, 0, 0};
  p.start(listener.port());
  raw_peer owner = listener.accept();
  joined_thread answering([&] {
    for (int described = 0; described < 2;) {
      auto bytes = owner.hear(8);
      const auto size = tp::detail::measure_frame(bytes, 4096, 16);
      if (!size || !*size) return;
      const auto rest = owner.hear(**size - bytes.size());
      bytes.insert(bytes.end(), rest.begin(), rest.end());
      const decoded asked{frame(bytes)};
      if (asked.m.kind != tp::frame_kind::describe) continue;  // a pull that was sent ahead
      tp::frame refusal;
      refusal.kind = tp::frame_kind::refused;
      refusal.status = described++ == 0 ? tp::status::busy : tp::status::unknown_reference;
      refusal.id = asked.m.id;
      refusal.ref = asked.m.ref;
      refusal.delay_ms = 10;
      EXPECT_TRUE(owner.say(encode(refusal).bytes()));
    }
  });
  ASSERT_TRUE(p.turn_until_pulled());
  EXPECT_EQ(p.outcome->error(), errc::unknown_reference) << "busy was not the end";
}

/// Pulls once over each connection, and closes it.
struct hurrying {
  tp::reference ref{};
  tp::stop_token stop{};
  std::vector<tiny> mine;
  std::atomic<std::size_t> completed = 0, cancelled = 0, other = 0, closes = 0;
  template <class C> void connected(C& c) {
    EXPECT_TRUE(c.pull(ref, {.stop = stop}, tp::raw_tensors<tiny>::destination(mine[c.tag])));
  }
  template <class C> void message(C&, const tp::message&) {}
  template <class C> void pulled(C& c, const tp::result<tp::receipt>& r) {
    if (r) ++completed;
    else ++(r.error() == errc::cancelled ? cancelled : other);
    c.close();
  }
  template <class C> void closed(C&, const tp::error&) { ++closes; }
};

// A connection may be pulled over, closed and released before the call that began it has returned.
TEST(TcpHostPulls, Threads_may_begin_connections_while_others_end_them) {
  using threaded = raw_net<tiny, tp::tcp_on_threads>;
  auto owner = *threaded::downloader::open();
  const auto source = random_model<tiny>(1);
  constexpr std::size_t each = 40;
  hurrying handler;
  handler.mine.resize(3 * each);
  handler.ref = *owner.add_tensors(*source);
  std::stop_source stop;
  handler.stop = stop.get_token();
  serving server(owner, 2);
  tp::event_loop io;
  threaded::host<hurrying, tp::land> host(io, handler);
  {
    const joined_threads running(3, [&](std::size_t) {
      for (const auto end = within(60s); handler.closes < 3 * each && !end.stop_requested();) io.run_one_for(20ms);
    });
    on_threads(3, [&](std::size_t t) {
      for (std::size_t i = 0; i < each; ++i) {
        EXPECT_TRUE(host.connect(local(owner.port()), t * each + i));
        if (t == 0 && i == each / 2) stop.request_stop();
      }
    });
  }
  EXPECT_EQ(handler.closes, 3 * each);
  EXPECT_EQ(handler.completed + handler.cancelled, 3 * each);
  EXPECT_EQ(handler.other, 0);
  EXPECT_EQ(host.connections(), 0u);
}

using wide_net = raw_net<wide, tp::tcp>;

/// Pulls what it is told of, over the same connection.
struct accepting {
  using host_type = wide_net::host<accepting, tp::land>;
  wide mine{};
  tp::pull_options options{};
  std::optional<tp::result<tp::receipt>> outcome;
  std::optional<errc> closed_why;
  template <class C> void connected(C&) {}
  template <class C> void message(C& c, const tp::message& m) {
    EXPECT_TRUE(c.pull(m.references[0], options, tp::raw_tensors<wide>::destination(mine)));
  }
  template <class C> void pulled(C&, const tp::result<tp::receipt>& r) { outcome = r; }
  template <class C> void closed(C&, const tp::error& e) { closed_why = e.code; }
};

TEST(TcpHostPulls, A_host_pulls_a_subset_of_many_tensors_from_one_that_it_accepted) {
  tp::event_loop io;
  accepting handler;
  const std::array<std::string_view, 30> names{"a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9",
                                               "b0", "b1", "b2", "b3", "b4", "b5", "b6", "b7", "b8", "b9",
                                               "c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9"};
  handler.options = {.per_request_timeout = 5s, .tensors = names};
  accepting::host_type host(io, handler);
  const auto port = *host.listen(any_port);
  joined_thread client([&] {
    auto s = *wide_net::session::connect(local(port));
    const auto source = random_model<wide>(1);
    const auto ref = *s.add_tensors(*source, {.recipients = 1});
    const std::array refs{ref};
    EXPECT_TRUE(s.send(1, refs, {}));
    const auto done = s.serve(tp::until_settled(ref), 5s);
    EXPECT_TRUE(done) << to_string(done.error().code);
  });
  const auto end = steady_clock::now() + 8s;
  while (!handler.outcome && !handler.closed_why && steady_clock::now() < end) io.run_one_for(5ms);
  ASSERT_TRUE(handler.outcome);
  EXPECT_TRUE(*handler.outcome) << to_string(handler.outcome->error().code);
  while (!handler.closed_why && steady_clock::now() < end) io.run_one_for(5ms);
}

/// Does nothing, on threads.
struct quiet {
  std::atomic<int> closes = 0;
  template <class C> void connected(C&) {}
  template <class C> void message(C&, const tp::message&) {}
  template <class C> void pulled(C&, const tp::result<tp::receipt>&) {}
  template <class C> void closed(C&, const tp::error&) { ++closes; }
};

TEST(TcpHostPulls, Stop_ends_also_connections_that_are_taken_over_at_that_moment) {
  int left = 0;
  for (int i = 0; i < 300 && left == 0; i += whole_schedule() ? 2 : 6) {
    using quiet_host = net_on_threads::host<quiet, tp::no_consumer>;
    tp::event_loop io;
    quiet handler;
    quiet_host host(io, handler);
    std::atomic<bool> go = false;
    std::vector<tp::posix_stream> peers;
    joined_thread adopting([&] {
      go = true;
      while (peers.size() < 400) {
        int two[2];
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, two) != 0) break;
        peers.emplace_back(two[0]);
        if (!host.adopt(quiet_host::stream_type(two[1]))) break;
      }
    });
    joined_thread running([&] { io.run_for(500ms); });
    while (!go) std::this_thread::yield();
    be_slow(std::chrono::microseconds(i));
    host.stop();
    adopting.join();
    running.join();
    io.restart();  // one that came last may have posted when nobody ran it any more
    io.run_for(500ms);
    if (host.connections() != 0) ++left;
  }
  EXPECT_EQ(left, 0);
}

}  // namespace tcp_host_pulls_test
