// Peers that vanish, say nothing, say the wrong thing, or are slow.
#include "network.hpp"

#include <tensorpull/framing/word_framing.hpp>

#include <sys/time.h>
#include <atomic>
#include <csignal>
#include <stop_token>

namespace tcp_faults_test {

using namespace test;
using net = raw_net<mlp, tp::tcp>;

tp::host_options impatient() {
  tp::host_options o;
  o.budgets.accept = o.budgets.stall = 200ms;
  return o;
}

/// An owner of one random model that runs on a thread of its own.
struct good_owner {
  std::unique_ptr<mlp> source = random_model<mlp>(1);
  tp::result<net::downloader> owner;
  tp::reference ref{};
  std::optional<serving> server;

  explicit good_owner(const tp::host_options& options = {}) : owner(net::downloader::open({.host = options})) {
    ref = *owner->add_tensors(*source);
    server.emplace(*owner);
  }
  std::string where() const { return local(owner->port()); }
  void expect_download() const { EXPECT_TRUE(arrives<net>(where(), ref, *source, {.per_request_timeout = 60s})); }
  /// Waits until no connection is left; then asks on this thread.
  std::size_t connections_left() {
    server->stop();
    (void)runs_until("no connection is left", *owner, [&] { return owner->connections() == 0; });
    return owner->connections();
  }
};

TEST(TcpFaults, T4_ConnectionsCutAfterAnyByteAreLost) {
  const good_owner g;
  raw_listener listener;
  generator random(4);
  for (int i = 0; i < 20; ++i) {
    const std::size_t most = i < 5 ? std::array<std::size_t, 5>{0, 1, 100, 200, 66'000}[static_cast<std::size_t>(i)]
                                   : static_cast<std::size_t>(random.below(400'000));
    joined_thread middle([&](const std::stop_token& stop) {
      raw_peer client = listener.accept(), owner(g.owner->port());
      if (carry_answers(client, owner, most, stop) && i % 2 == 0) client.reset();
    });
    const auto mine = blank<mlp>();
    const auto done = net::download_tensors(local(listener.port()), g.ref, *mine,
                                            {.per_request_timeout = 60s, .retry = {.retries = 0}});
    ASSERT_FALSE(done) << most;
    // a reset may come before connect() has returned
    EXPECT_TRUE(done.error() == errc::connection_lost || (most == 0 && done.error() == errc::connection_failed))
        << most;
    EXPECT_LE(done.error().at, most);
    EXPECT_TRUE(done.error().at > 0 || same(*mine, *blank<mlp>()));
  }
  g.expect_download();
}
TEST(TcpFaults, A_peer_that_never_answers_times_out) {
  raw_listener deaf;
  const auto mine = blank<mlp>();
  for (const auto budget : {0ms, 1ms, 200ms}) {
    const auto done = net::download_tensors(local(deaf.port()), tp::ref_id{1, 2}, *mine,
                                            {.per_request_timeout = budget, .retry = {.retries = 0}});
    ASSERT_EQ(code_of(done), errc::timed_out);
    EXPECT_EQ(done.error().at, 0u);
  }
}
TEST(TcpFaults, T7_TheLongestBudgetDoesNotOverflow) {
  const good_owner g;
  const auto mine = blank<mlp>();
  EXPECT_TRUE(
      net::download_tensors(g.where(), g.ref, *mine, {.per_request_timeout = std::chrono::milliseconds::max()}));
}

/// Asks to stop once so many bytes have landed.
struct stopping : tp::land {
  std::stop_source* source;
  std::uint64_t at;
  stopping(mlp& m, std::stop_source& s, std::uint64_t a)
      : tp::land(tp::raw_tensors<mlp>::destination(m)), source(&s), at(a) {}
  tp::result<void> commit(std::uint64_t offset, const_byte_span bytes) noexcept {
    if (offset + bytes.size() >= at) source->request_stop();
    return tp::land::commit(offset, bytes);
  }
};
TEST(TcpFaults, Abort_while_waiting_and_between_chunks) {
  good_owner g;
  const auto mine = blank<mlp>();
  raw_listener deaf;
  stop_after later(100ms);
  EXPECT_EQ(code_of(net::download_tensors(local(deaf.port()), g.ref, *mine, {.stop = later.get_token()})),
            errc::cancelled);

  std::stop_source half;
  stopping to(*mine, half, 200'000);
  const auto cut = net::pull(g.where(), g.ref, to, {.stop = half.get_token()});
  ASSERT_EQ(code_of(cut), errc::cancelled);
  EXPECT_GE(cut.error().at, 200'000u);
  EXPECT_LT(cut.error().at, sizeof(mlp));
  EXPECT_EQ(g.connections_left(), 0u);
  EXPECT_EQ(g.owner->status_of(g.ref)->completed, 0u);
}

TEST(TcpFaults, F16_GarbageIsClosedAndCostsNobodyElse) {
  good_owner g(impatient());
  const std::string zeros(64 * 1024, '\0');
  std::size_t before = 0;
  {
    const std::string tls("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);
    before = descriptors();
    for (const std::string_view text :
         {std::string_view("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), std::string_view(zeros), std::string_view(tls),
          std::string_view("SSH-2.0-OpenSSH_9.2\r\n"), std::string_view("\xff\xff\xff\xff\xff\xff\xff\xff", 8)}) {
      raw_peer peer(g.owner->port());
      (void)peer.say(text);
      EXPECT_TRUE(peer.hear_end()) << text.substr(0, 10);
      g.expect_download();
    }
  }
  EXPECT_EQ(g.connections_left(), 0u);
  EXPECT_EQ(descriptors(), before);
}
TEST(TcpFaults, F6_ARequestCutAnywhereThenSilenceIsClosed) {
  good_owner g(impatient());
  tp::frame m;
  m.kind = tp::frame_kind::describe;
  m.id = 1;
  m.ref = g.ref.id;
  alignas(8) std::array<std::byte, 512> frame{};
  const auto n = tp::word_framing::encode(m, frame);
  ASSERT_TRUE(n);
  const std::size_t before = descriptors();
  {
    std::vector<raw_peer> peers;
    for (std::size_t k = 0; k < *n; k += 3) {
      peers.emplace_back(g.owner->port());
      EXPECT_TRUE(peers.back().say(std::span(frame).first(k)));
    }
    g.expect_download();
    for (auto& p : peers) EXPECT_TRUE(p.hear_end());
  }
  EXPECT_EQ(g.connections_left(), 0u);
  EXPECT_EQ(descriptors(), before);
}
TEST(TcpFaults, T5_AHalfCloseAfterARequestLeaksNothing) {
  good_owner g;
  tp::frame m;
  m.kind = tp::frame_kind::pull;
  m.id = 1;
  m.ref = g.ref.id;
  m.length = 64 * 1024;
  alignas(8) std::array<std::byte, 512> frame{};
  const auto n = tp::word_framing::encode(m, frame);
  {
    raw_peer peer(g.owner->port());
    EXPECT_TRUE(peer.say(std::span(frame).first(*n)));
    peer.half_close();
    EXPECT_TRUE(peer.hear_end());
  }
  g.expect_download();
  EXPECT_EQ(g.connections_left(), 0u);
}
TEST(TcpFaults, T2_ConnectionsThatSayNothingAreClosed) {
  good_owner g(impatient());
  std::vector<raw_peer> peers;
  for (int i = 0; i < 400; ++i) peers.emplace_back(g.owner->port());
  g.expect_download();
  for (auto& p : peers) EXPECT_TRUE(p.hear_end());
  EXPECT_EQ(g.connections_left(), 0u);
}
TEST(TcpFaults, More_connections_than_allowed_wait_for_one_to_end) {
  tp::host_options options;
  options.max_connections = 2;
  good_owner g(options);
  std::optional<raw_peer> first(g.owner->port()), second(g.owner->port());
  const auto mine = blank<mlp>();
  g.server->stop();
  EXPECT_TRUE(runs_until("both are accepted", *g.owner, [&] { return g.owner->connections() == 2; }));
  g.server.emplace(*g.owner);
  EXPECT_EQ(
      code_of(net::download_tensors(g.where(), g.ref, *mine, {.per_request_timeout = 300ms, .retry = {.retries = 0}})),
      errc::timed_out);
  first.reset();
  g.expect_download();
}
/// The slow reader is in the middle of its transfer until the others are done, however long that takes: if they waited
/// for it, nobody would ever be.
TEST(TcpFaults, A_slow_reader_delays_nobody) {
  struct sleepy : tp::land {
    using tp::land::land;
    std::atomic<int>* state;  // 1: in the middle, 2: it may go on
    sleepy(const tp::destination_view& d, std::atomic<int>& s) noexcept : tp::land(d), state(&s) {}
    tp::result<void> chunk(std::uint64_t offset, std::uint64_t) noexcept {
      if (offset > 0) return {};
      *state = 1;
      (void)eventually("the others are done", [this] { return *state == 2; });
      return {};
    }
  };
  const auto source = random_model<large>(1);  // of which a socket holds a part
  using large_net = raw_net<large, tp::tcp>;
  auto owner = large_net::downloader::open({});
  const auto ref = *owner->add_tensors(*source);
  serving server(*owner);
  std::atomic<int> state{0};
  joined_thread slow([&] {
    const auto mine = blank<large>();
    sleepy to(tp::raw_tensors<large>::destination(*mine), state);
    EXPECT_TRUE(large_net::pull(local(owner->port()), ref, to));
    EXPECT_TRUE(same(*mine, *source));
  });
  ASSERT_TRUE(eventually("the slow one has begun", [&] { return state == 1; }));
  const auto mine = blank<large>();
  for (int i = 0; i < 5; ++i) {
    const auto done = large_net::download_tensors(local(owner->port()), ref, *mine,
                                                  {.per_request_timeout = 20s, .retry = {.retries = 0}});
    EXPECT_TRUE(succeeded(done));
  }
  EXPECT_TRUE(same(*mine, *source));
  EXPECT_EQ(state, 1) << "the slow one is where it was";
  state = 2;
}

/// A signal every half millisecond that interrupts whatever the process is in: calls are not restarted.
class interruptions {
 public:
  interruptions() {
    struct sigaction action{};
    action.sa_handler = [](int) { ++count; };
    ::sigaction(SIGALRM, &action, nullptr);
    const itimerval every{{0, 500}, {0, 500}};
    ::setitimer(ITIMER_REAL, &every, nullptr);
  }
  ~interruptions() {
    const itimerval none{};
    ::setitimer(ITIMER_REAL, &none, nullptr);
    ::signal(SIGALRM, SIG_IGN);  // one may be on its way to a thread that has not run since
  }
  static inline std::atomic<int> count = 0;  // whichever thread it interrupts
  static_assert(std::atomic<int>::is_always_lock_free);
};

TEST(TcpFaults, Q5_signals_that_interrupt_every_call_change_nothing) {
  const auto source = random_model<large>(1), mine = blank<large>();
  using large_net = raw_net<large, tp::tcp>;
  auto owner = large_net::downloader::open({});
  const auto ref = *owner->add_tensors(*source);
  serving server(*owner);
  {
    const interruptions now;
    const auto end = steady_clock::now() + 20s;
    for (int i = 0; (i < 20 || interruptions::count < 100) && steady_clock::now() < end; ++i) {
      std::memset(mine.get(), 0, sizeof *mine);
      const auto done = large_net::download_tensors(local(owner->port()), ref, *mine);
      ASSERT_TRUE(succeeded(done)) << ", errno " << done.error().system;
      ASSERT_TRUE(same(*mine, *source));
    }
  }
  EXPECT_GE(interruptions::count, 100);
}

}  // namespace tcp_faults_test
