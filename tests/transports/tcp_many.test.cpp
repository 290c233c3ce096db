// Many recipients on one owner: their memory, threads and descriptors; several threads; in which order objects may be
// destroyed.
#include "network.hpp"
#include "support/allocation_counter.hpp"
#include "support/whole_schedule.hpp"

#include <sys/resource.h>

#include <latch>

namespace tcp_many_test {

using namespace test;
using net = raw_net<mlp, tp::tcp>;

static_assert(sizeof(net::host<tp::detail::silent_handler, tp::no_consumer>::connection) <=
              2048 + tp::tcp::connection_bytes);
static_assert(net::memory.owner_per_recipient <= 2048 + tp::tcp::connection_bytes);
static_assert(net::memory.recipient <= 4096);

/// A crowd of recipients on an event loop of their own thread's; each pulls into a digest.
struct crowd {
  struct check : tp::land {
    explicit check(mlp& m) noexcept : tp::land(tp::raw_tensors<mlp>::destination(m)) {}
  };
  using host_type = net::host<crowd, check>;
  using connection = host_type::connection;

  tp::event_loop io;
  tp::reference ref{};
  mlp& mine;  // all land in the same memory: what each received is checked by its digest
  host_type host;
  std::size_t wanted = 0, done = 0, completed = 0, closed_count = 0;
  std::size_t most_connected = 0;

  explicit crowd(mlp& m) : mine(m), host(io, *this, {.max_connections = 1}) {}
  void connected(connection& c) { (void)c.pull(ref, {}, mine); }
  void message(connection&, const tp::message&) {}
  void pulled(connection& c, const tp::result<tp::receipt>& r) {
    most_connected = std::max(most_connected, host.connections());
    ++done, completed += r.has_value() && r->outcome == tp::outcome::completed;
    if (done == wanted) io.stop();
    (void)c;  // stays connected, so that all are there at once
  }
  void closed(connection&, const tp::error&) { ++closed_count; }

  void pull_all(std::uint16_t port, const tp::reference& r, std::size_t n) {
    ref = r;
    wanted = n, done = completed = 0;
    for (std::size_t i = 0; i < n; ++i) ASSERT_TRUE(host.connect(local(port)));
    io.restart();
    io.run_for(120s);
    EXPECT_EQ(completed, n);
    EXPECT_EQ(most_connected, n);
  }
};

void expect_recipients(std::size_t n) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_cur < 2 * n + 100) GTEST_SKIP() << "the limit on descriptors is " << files.rlim_cur;
  const std::size_t files_before = descriptors();
  {
    const auto mine = blank<mlp>();
    owner_at_work<net> o({.recipients = static_cast<std::uint32_t>(n)});
    const std::size_t threads_before = threads();
    {
      crowd all(*mine);
      all.pull_all(o.owner->port(), o.ref, n);
      EXPECT_EQ(threads(), threads_before);
      EXPECT_TRUE(same(*mine, *o.source));
      EXPECT_GE(descriptors(), 2 * n);
    }
    o.server.stop();
    EXPECT_TRUE(o.owner->settled(o.ref));
    EXPECT_EQ(o.owner->status_of(o.ref)->completed, n);
  }
  EXPECT_EQ(descriptors(), files_before);
}
TEST(TcpMany, Two_hundred_recipients_at_once) { expect_recipients(200); }
TEST(TcpMany, A_thousand_recipients_at_once) { expect_recipients(1000); }

TEST(TcpMany, C2_ThreadsServeSixteenRecipientsAndWithdrawingInTheMiddleIsSafe) {
  using threaded = tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<4096>, tp::tcp_on_threads>;
  auto source = random_model<mlp>(1);
  auto owner = threaded::downloader::open({});
  ASSERT_TRUE(owner);
  const auto ref = *owner->add_tensors(*source);
  serving server(*owner, 3);
  std::atomic<int> completed{0}, refused{0}, other{0};
  {
    const joined_threads recipients(16, [&](std::size_t) {
      const auto mine = blank<mlp>();
      for (;;) {
        const auto done = threaded::download_tensors(local(owner->port()), ref, *mine, {.per_request_timeout = 60s});
        if (done) ++completed;
        else if (done.error() == errc::withdrawn) return (void)++refused;
        else return (void)++other;
      }
    });
    (void)eventually("16 pulls are complete", [&] { return completed >= 16; });
    ASSERT_TRUE(owner->withdraw(ref));
    std::memset(source.get(), 0xee, sizeof *source);  // nothing reads it any more
    source.reset();
  }
  EXPECT_GE(completed, 16);
  EXPECT_EQ(refused, 16);
  EXPECT_EQ(other, 0);
}

TEST(TcpMany, A_large_fan_out_that_asks_again_after_the_end_is_told_so) {
  using small_net = tp::pipeline<tp::raw_tensors<tiny>, tp::fixed_bytes<64>, tp::tcp>;
  constexpr std::uint32_t n = 500;
  const auto mine = blank<tiny>();
  owner_at_work<small_net, tiny> o({.recipients = n});
  const auto where = local(o.owner->port());
  for (std::uint64_t i = 1; i <= n; ++i)
    ASSERT_TRUE(small_net::download_tensors(where, o.ref, *mine, {.recipient = {i}})) << i;
  for (std::uint64_t i = 1; i <= n; ++i)
    ASSERT_EQ(code_of(small_net::download_tensors(where, o.ref, *mine, {.recipient = {i}})), errc::already_final) << i;
  EXPECT_EQ(code_of(small_net::download_tensors(where, o.ref, *mine, {.recipient = {n + 1}})), errc::ended)
      << "who never completed is told nothing else";
  o.server.stop();
  const auto status = *o.owner->status_of(o.ref);
  EXPECT_EQ(status.completed, n);
  EXPECT_EQ(status.final(), n);
  EXPECT_EQ(status.bytes_sent, n * tp::raw_tensors<tiny>::schema().image_bytes) << "nobody was served twice";
}

TEST(TcpMany, C6_a_callback_that_blocks_holds_up_nobody_else_where_another_thread_runs_the_owner) {
  using threaded = tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<4096>, tp::tcp_on_threads>;
  const auto source = random_model<mlp>(1);
  std::latch blocked(1);
  std::atomic<bool> go_on{false};
  auto tell = [&](const tp::settlement&) {
    blocked.count_down();
    (void)eventually("the test has seen that others go on", [&] { return go_on.load(); });
  };
  auto owner = threaded::downloader::open({});
  ASSERT_TRUE(owner);
  const auto first = *owner->add_tensors(*source, {.recipients = 1, .settled = tell});
  const auto second = *owner->add_tensors(*source, {.recipients = 1});
  serving server(*owner, 2);
  const auto mine = blank<mlp>();
  ASSERT_TRUE(threaded::download_tensors(local(owner->port()), first, *mine, {.per_request_timeout = 60s}));
  EXPECT_TRUE(eventually("the callback is called", [&] { return blocked.try_wait(); }));
  for (int i = 0; i < 4; ++i) {
    const auto done = threaded::download_tensors(local(owner->port()), second, *mine, {.per_request_timeout = 60s});
    EXPECT_EQ(done.has_value(), i == 0) << i;
    EXPECT_TRUE(done || done.error() == errc::ended) << to_string(done.error().code);
  }
  EXPECT_TRUE(owner->settled(second));
  EXPECT_FALSE(go_on) << "all that while the callback had not returned";
  go_on = true;
}

/// Pulls several times over one connection; counts what was allocated from the first chunk to the last.
template <class Net>
std::uint64_t allocations_while_pulling(const mlp& source, int transfers) {
  auto owner = Net::downloader::open({});
  const auto ref = *owner->add_tensors(source);
  serving server(*owner);
  auto peer = Net::session::connect(local(owner->port()));
  const auto mine = blank<mlp>();
  EXPECT_TRUE(peer->download_tensors(ref, *mine));  // warm: kj's thread-local, the event loop's records
  const std::size_t threads_before = threads();
  const allocation_watch watch;
  for (int i = 0; i < transfers; ++i) EXPECT_TRUE(peer->download_tensors(ref, *mine));
  const std::uint64_t n = watch.count();
  EXPECT_EQ(threads(), threads_before);
  return n;
}
TEST(TcpMany, No_chunk_allocates_on_either_side) {
  const auto source = random_model<mlp>(1);
  using small_chunks = tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<400>, tp::chunk_and_image_digest, tp::tcp>;
  // reading /proc in between allocates, the same each time
  const auto few = allocations_while_pulling<net>(*source, 1),
             many = allocations_while_pulling<small_chunks>(*source, 5);
  EXPECT_EQ(few, many) << "7 chunks against 5,000";
}

TEST(TcpMany, A_host_may_go_while_connections_are_open) {
  const auto source = random_model<mlp>(1);
  std::vector<raw_peer> peers;
  tp::detail::silent_handler handler;
  using host_type = net::host<tp::detail::silent_handler, tp::no_consumer>;
  {
    tp::event_loop io;
    {
      host_type host(io, handler);
      const auto port = *host.listen(any_port);
      ASSERT_TRUE(host.published().add_tensors(*source));
      for (int i = 0; i < 5; ++i) peers.emplace_back(port);
      for (int i = 0; i < 100 && host.connections() < 5; ++i) io.run_for(100ms);
      EXPECT_EQ(host.connections(), 5u);
    }
    for (auto& p : peers) EXPECT_TRUE(p.hear_end());
    io.run_for(300ms);  // what still waited finds nothing to do
  }
  peers.clear();
  tp::event_loop io;
  std::optional<host_type> host(std::in_place, io, handler);
  const auto port = *host->listen(any_port);
  peers.emplace_back(port);
  io.run_for(100ms);
  host->stop();
  io.run_for(10s);
  EXPECT_EQ(host->connections(), 0u);
  EXPECT_TRUE(peers.front().hear_end());
}

TEST(TcpMany, Rounds_of_changing_sizes_leave_nothing_behind) {
  const auto source = random_model<mlp>(1), mine = blank<mlp>();
  generator random(3);
  std::size_t files = 0, tasks = 0;
  tp::host_options options;
  options.reserved_connections = 64;
  auto owner = net::downloader::open({.host = options});
  ASSERT_TRUE(owner);
  for (std::uint64_t round = 0; round < repetitions(45, 2); ++round) {
    const std::size_t n = 10 + static_cast<std::size_t>(random.below(31));
    const auto ref = *owner->add_tensors(*source, {.recipients = static_cast<std::uint32_t>(n)});
    serving server(*owner);
    {
      crowd all(*mine);
      all.pull_all(owner->port(), ref, n);
    }
    server.stop();
    EXPECT_TRUE(runs_until("all of them have left", *owner, [&] { return owner->connections() == 0; }));
    EXPECT_TRUE(owner->settled(ref));
    ASSERT_TRUE(owner->withdraw(ref));
    if (round == 6) files = descriptors(), tasks = threads_at_rest();
    if (round > 6) {
      EXPECT_EQ(descriptors(), files) << round;
      EXPECT_EQ(threads_at_rest(), tasks) << round;
    }
  }
}

}  // namespace tcp_many_test
