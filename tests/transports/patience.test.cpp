// How a pull deals with time. Waiting passes time without taking any, and the wall clock can jump.
#include "network.hpp"
#include "support/clocks.hpp"
#include "support/pair.hpp"
#include "support/processor_time.hpp"

#include <tensorpull/transports/blocking/stream_pull.hpp>

#include <atomic>
#include <functional>
#include <stop_token>

namespace patience_test {

using namespace test;
using net = tp::pipeline<tp::tensor_list, tp::fixed_bytes<1024>, tp::tcp>;
constexpr std::size_t step = 1024 / 64 + 1;  // of what the library calls progress

/// An owner and the connections of one recipient to it, on one thread.
struct world {
  const model source = mixed_model().fill(1);
  model mine = mixed_model();
  party owner{11};
  wire requests, answers;
  pipe_end owner_end{requests, answers, {}, {}};
  std::chrono::milliseconds waited{0}, waited_after_stop{0};
  std::uint64_t waits = 0, calls = 0;
  std::size_t connections = 0;
  std::stop_source stop;

  // What the test decides.
  std::uint64_t stop_at_call = ~std::uint64_t{0};
  bool deaf = false;  ///< the owner hears and says nothing
  std::size_t most_per_wait = ~std::size_t{0};  ///< bytes of answers that arrive while the recipient waits once
  std::size_t most_per_connection = ~std::size_t{0};  ///< bytes of answers, after which it is lost
  std::function<void()> on_wait;

  std::size_t allowed = 0, carried = 0;

  world() { owner.publish(source); }

  void call() {
    if (++calls == stop_at_call) stop.request_stop();
  }
  void pass(std::chrono::milliseconds t) {
    call();
    ++waits;
    waited += t;
    if (stop.stop_requested()) waited_after_stop += t;
    pass_time(std::max(t, 0ms));
    allowed = most_per_wait;
    if (on_wait) on_wait();
  }
  void connect() {
    call();
    ++connections;
    carried = 0;
    allowed = most_per_wait;
    owner.renew();
    for (wire* const w : {&requests, &answers}) w->bytes.clear(), w->begin = 0;
  }
  void serve() {
    tp::no_transfer idle;
    if (!deaf)
      (void)tp::pump_once(owner.end, idle, owner_end, {reinterpret_cast<std::byte*>(owner.scratch.get()), 65536});
  }
};

/// The recipient's end of a connection.
class recipient_end {
 public:
  explicit recipient_end(world& w) noexcept : w_(&w) {}
  tp::io_result read_some(std::span<const byte_span> spans) noexcept {
    w_->call();
    w_->serve();
    if (w_->carried >= w_->most_per_connection) return {tp::io_status::closed, 0, 0};
    const std::size_t most = w_->deaf ? 0 : std::min(w_->allowed, w_->most_per_connection - w_->carried);
    if (most == 0) return {tp::io_status::would_block, 0, 0};
    pipe_end in{w_->answers, w_->requests, {most}, {}};
    const auto io = in.read_some(spans);
    w_->carried += io.bytes;
    w_->allowed -= io.bytes;
    return io;
  }
  tp::io_result write_some(std::span<const const_byte_span> spans) noexcept {
    w_->call();
    pipe_end out{w_->answers, w_->requests, {}, {}};
    return out.write_some(spans);
  }
  tp::io_ready wait(bool read, bool write, std::chrono::milliseconds t) noexcept {
    w_->pass(t);
    return {read, write};
  }

 private:
  world* w_;
};
static_assert(tp::byte_stream<recipient_end>);
/// The same, which waits within a read.
struct patient_end : recipient_end {
  using recipient_end::recipient_end;
  tp::io_result read_or_wait(std::span<const byte_span> spans, std::chrono::milliseconds t) noexcept {
    const auto now = read_some(spans);
    if (now.status != tp::io_status::would_block) return now;
    (void)wait(true, false, t);
    return read_some(spans);
  }
};

/// Counts how it ended.
struct counted : tp::land {
  using tp::land::land;
  int begun = 0, finished = 0, abandoned = 0;
  tp::result<void> begin(const tp::description& d) noexcept {
    ++begun;
    return tp::land::begin(d);
  }
  tp::result<void> finish(const tp::receipt& r) noexcept {
    ++finished;
    return tp::land::finish(r);
  }
  void abandon(const tp::error& e) noexcept { ++abandoned, tp::land::abandon(e); }
};

template <class End = recipient_end, class Consumer>
tp::result<tp::receipt> pull(world& w, Consumer& to, tp::pull_options options) {
  options.stop = w.stop.get_token();
  const auto connect = [&]() noexcept -> tp::result<End> {
    w.connect();
    return End(w);
  };
  return tp::pull_with<net::parts>(
      connect, [&](std::chrono::milliseconds t) noexcept { w.pass(t); }, {{1, 2}, 0, 0}, to, options);
}
tp::result<tp::receipt> pull(world& w, tp::pull_options options) {
  tp::land to(w.mine.destination());
  return pull(w, to, options);
}

TEST(Patience, T8_a_thousand_aborts_at_random_moments_are_each_heard_within_100_ms_and_told_once) {
  generator random(8);
  int aborted = 0, tries = 0;
  for (; aborted < 1000 && tries < 20'000; ++tries) {
    world w;
    const int kind = tries % 4;
    w.deaf = kind == 0;  // an answer is waited for
    w.most_per_wait = kind == 1 ? 1 + random.below(500) : w.most_per_wait;  // bytes move
    // the next try is waited for
    w.most_per_connection = kind >= 2 ? 1 + random.below(kind == 2 ? 4000 : 100) : ~std::size_t{0};
    w.stop_at_call = 1 + random.below(300);
    int told = 0;
    auto watch = [&](const tp::progress_event& e) {
      told += e.phase == tp::progress_phase::aborted || e.phase == tp::progress_phase::completed ||
              e.phase == tp::progress_phase::failed;
    };
    counted to(w.mine.destination());
    const auto done = pull(w, to,
                           {.per_request_timeout = 24h,
                            .retry = {.retries = 1000, .first_delay = 1h, .longest_delay = 1h},
                            .progress = watch});
    ASSERT_EQ(to.finished + to.abandoned, to.begun);
    ASSERT_LE(to.begun, 1);
    EXPECT_EQ(told, 1);
    if (done) continue;  // it was over before
    ++aborted;
    ASSERT_EQ(code_of(done), errc::cancelled);
    ASSERT_LE(w.waited_after_stop, 100ms) << kind << ' ' << w.stop_at_call;
  }
  EXPECT_EQ(aborted, 1000) << "of " << tries;
}

TEST(Patience, A_transfer_that_moves_is_not_timed_out_however_long_it_takes_and_one_that_dribbles_is) {
  world slow;
  slow.most_per_wait = 3 * step;
  const auto done = pull(slow, {.per_request_timeout = 300ms, .retry = {.retries = 0}});
  ASSERT_TRUE(succeeded(done));
  EXPECT_GT(slow.waited, 10 * 300ms);
  EXPECT_EQ(slow.connections, 1u);
  EXPECT_TRUE(slow.mine.same_tensors(slow.source));

  world dribbling;
  dribbling.on_wait = [&] { dribbling.most_per_wait = dribbling.waited > 2s ? 1 : ~std::size_t{0}; };
  dribbling.most_per_wait = 200;
  EXPECT_EQ(pull(dribbling, {.per_request_timeout = 300ms, .retry = {.retries = 0}}).has_value(), true)
      << "it was done before";
  world late;
  late.most_per_wait = 1;
  EXPECT_EQ(code_of(pull(late, {.per_request_timeout = 300ms, .retry = {.retries = 0}})), errc::timed_out);
}

TEST(Patience, T3_a_partition_shorter_than_the_budget_is_waited_out_and_a_longer_one_resumes_after_it_heals) {
  for (const bool longer : {false, true}) {
    world w;
    constexpr auto budget = 10s;
    std::chrono::milliseconds healed{0};
    w.most_per_wait = 700;
    w.on_wait = [&] {
      if (w.carried > w.source.schema().image_bytes / 2 && healed == 0ms)
        w.deaf = true, healed = w.waited + (longer ? 3 * budget : 3s);
      if (w.deaf && w.waited >= healed) w.deaf = false;
    };
    tp::resume_cursor cursor;
    tp::pull_options options{
        .per_request_timeout = budget, .retry = {.retries = 0}, .recipient = {5}, .cursor = &cursor};
    tp::land to(w.mine.destination());
    const auto first = pull(w, to, options);
    EXPECT_EQ(w.connections, 1u);
    ASSERT_GT(healed, 0ms) << "there was no partition";
    if (!longer) {
      ASSERT_TRUE(succeeded(first));
      EXPECT_TRUE(w.mine.same_tensors(w.source));
      continue;
    }
    EXPECT_EQ(code_of(first), errc::timed_out);
    const auto silent_since = healed - 3 * budget;
    EXPECT_GE(w.waited, silent_since + budget - 1s)
        << "the last bytes came before the step that saw them, and a slow machine computes meanwhile";
    EXPECT_LE(w.waited, silent_since + budget + 1s);
    ASSERT_TRUE(cursor);
    const auto kept = cursor.offset, before = w.owner.status().bytes_sent;
    w.pass(3 * budget);
    ASSERT_FALSE(w.deaf);
    const auto second = pull(w, options);
    ASSERT_TRUE(succeeded(second));
    EXPECT_TRUE(w.mine.same_tensors(w.source));
    EXPECT_LE(w.owner.status().bytes_sent - before, second->bytes - kept + 1024) << "what had landed came again";
  }
}

TEST(Patience, T7_no_budget_overflows_and_none_is_waited_for_in_a_busy_loop) {
  for (const auto budget : std::initializer_list<std::chrono::milliseconds>{0ms, 1ms, 60s}) {
    world w;
    w.deaf = true;
    const auto began = steady_clock::now();
    EXPECT_EQ(code_of(pull(w, {.per_request_timeout = budget, .retry = {.retries = 0}})), errc::timed_out);
    EXPECT_GE(steady_clock::now() - began, budget) << "what it computed counts, too";
    EXPECT_LE(w.waited, budget + 50ms);
    EXPECT_LE(w.waits, static_cast<std::uint64_t>(budget / 50ms) + 5) << "20 looks a second";
    EXPECT_LE(w.calls, 3 * w.waits + 10);
  }
  constexpr auto most = std::chrono::milliseconds::max();
  world w;
  w.deaf = true;
  w.stop_at_call = 10'000;
  EXPECT_EQ(code_of(pull(w, {.per_request_timeout = most})), errc::cancelled);
  EXPECT_GE(w.waited, w.waits * 49ms) << "short waits";
  world patient;
  EXPECT_TRUE(pull(patient, {.per_request_timeout = most}));
}

TEST(Patience, A_pull_that_ends_as_it_asks_waits_for_no_bytes) {
  world w;
  model part;  // its name is longer than a request, which is found out when the owner has described what it has
  part.add(std::string(5000, 'x'), dtype::u8, {4}).ready();
  tp::land to(part.destination());
  const auto done = pull<patient_end>(w, to, {.part = true, .retry = {.retries = 0}});
  EXPECT_EQ(code_of(done), errc::does_not_fit);
  EXPECT_EQ(w.waits, 0u);
}

using tcp_net = raw_net<mlp, tp::tcp>;

TEST(Patience, T7_an_idle_owner_takes_less_than_a_twentieth_of_a_processor) {
  const auto source = random_model<mlp>(1);
  auto owner = tcp_net::downloader::open({});
  ASSERT_TRUE(owner);
  ASSERT_TRUE(owner->add_tensors(*source));
  std::vector<raw_peer> silent;
  for (int i = 0; i < 20; ++i) silent.emplace_back(owner->port());
  std::atomic<double> spent{-1};
  joined_thread runs([&](const std::stop_token& stop) {
    const double before = processor_seconds();
    owner->run(stop);
    spent = processor_seconds() - before;
  });
  const auto begun = steady_clock::now();
  be_slow(2s);
  runs.request_stop();
  runs.join();
  EXPECT_LT(spent, 0.05 * std::chrono::duration<double>(steady_clock::now() - begun).count());
}

TEST(Patience, T6_a_wall_clock_that_jumps_by_an_hour_changes_no_budget) {
  const auto source = random_model<mlp>(1), mine = blank<mlp>();
  tp::owner_options options;
  options.host.budgets.accept = options.host.budgets.stall = options.host.budgets.idle = 60s;
  auto owner = tcp_net::downloader::open(options);
  ASSERT_TRUE(owner);
  struct jumping {
    jumping() { wall_clock_jumps = true; }
    ~jumping() { wall_clock_jumps = false; }
  } now;
  const auto ref = *owner->add_tensors(
      *source, {.recipients = 4, .budgets = {.acquire = 60s, .recipient_idle = 60s, .transaction_idle = 60s}});
  {
    serving server(*owner);
    for (std::uint64_t i = 1; i < 3; ++i) {
      const auto done = tcp_net::download_tensors(
          local(owner->port()), ref, *mine, {.per_request_timeout = 60s, .retry = {.retries = 0}, .recipient = {i}});
      ASSERT_TRUE(succeeded(done));
      EXPECT_TRUE(same(*mine, *source));
    }
    auto session = tcp_net::session::connect(local(owner->port()));
    ASSERT_TRUE(succeeded(session));
    const auto done = session->download_tensors(
        ref, *mine, {.per_request_timeout = 60s, .retry = {.retries = 0}, .recipient = {3}});
    EXPECT_TRUE(succeeded(done));
  }
  EXPECT_FALSE(owner->settled(ref)) << "the fourth has 60 s to come";
  EXPECT_EQ(owner->status_of(ref)->completed, 3u);
  // and if nothing comes, the time-out is neither earlier nor later
  world w;
  w.deaf = true;
  const auto began = steady_clock::now();
  EXPECT_EQ(code_of(pull(w, {.per_request_timeout = 10s, .retry = {.retries = 0}})), errc::timed_out);
  EXPECT_GE(steady_clock::now() - began, 10s);
  EXPECT_LE(w.waited, 11s);
  // a program that asks for the wall clock sees the jumps
  const auto first = std::chrono::system_clock::now();
  EXPECT_GT(std::chrono::abs(std::chrono::system_clock::now() - first), 1h);
}

}  // namespace patience_test
