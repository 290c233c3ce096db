// The driver of a device in a world of its own: clock, random numbers and connections are the test's, so that a whole
// pull is the same each time.
#include "pair.hpp"

#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/integrity/policies.hpp>
#include <tensorpull/pull/device_pull.hpp>
#include <tensorpull/transports/blocking/stream_pull.hpp>

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

namespace device_pull_test {

using namespace test;
using std::chrono::milliseconds;

/// A machine whose clock moves only while somebody waits. It has 32 bits and is about to wrap.
struct machine {
  using moment = std::chrono::duration<std::uint32_t, std::milli>;
  static constexpr std::uint32_t start = 0xffff'ff00;
  static inline std::uint32_t ms = start;
  static inline std::uint64_t next_random = 0;
  static inline std::uint64_t random_step = 0;
  static inline std::uint32_t stops_after = ~std::uint32_t{0};
  static inline std::string log;

  static void reset() {
    ms = start, next_random = random_step = 0, stops_after = ~std::uint32_t{0};
    log.clear();
  }
  static std::uint32_t passed() { return ms - start; }
  static void wrote(const char* what, long long value) {
    log += std::to_string(passed()) + ' ' + what + ' ' + std::to_string(value) + '\n';
  }

  static moment now() noexcept { return moment(ms); }
  static std::uint64_t random() noexcept { return next_random += random_step; }
  static void panic(const char* what) noexcept {
    std::fprintf(stderr, "panic: %s\n", what);
    std::_Exit(3);
  }
  static bool stopped() noexcept { return passed() >= stops_after; }
};
static_assert(tp::platform<machine>);

struct device {
  using platform = machine;
  using framing = tp::word_framing;
  using chunking = tp::fixed_bytes<1024>;
  using integrity = tp::basic_image_digest<tp::xxh3_64>;
  using limits = tp::default_limits;
};

/// What is wrong with a stream of the device's program.
enum class fault {
  none,
  reads_too_much,
  reads_nothing,
  writes_too_much
};

/// A connection to the owner, whose answers take 7 ms. After `most` bytes of them it is closed, or silent.
class fake_stream {
 public:
  fake_stream(party& owner, std::size_t most, bool closes, fault wrong = fault::none)
      : s_(std::make_unique<state>(owner, most, closes, wrong)) {}

  tp::io_result read_some(std::span<const byte_span> spans) noexcept {
    if (s_->wrong == fault::reads_nothing) return {};
    std::size_t asked = 0, n = 0;
    for (const auto& to : spans) {
      asked += to.size();
      const std::size_t k = std::min({to.size(), s_->answers.waiting(), s_->most});
      if (k > 0) s_->answers.take(to.data(), k);
      s_->most -= k;
      n += k;
    }
    if (n > 0 && s_->wrong == fault::reads_too_much) return {tp::io_status::ok, 0, asked + 1};
    if (n > 0) return {tp::io_status::ok, 0, n};
    return {s_->most == 0 && s_->closes ? tp::io_status::closed : tp::io_status::would_block, 0, 0};
  }
  tp::io_result write_some(std::span<const const_byte_span> spans) noexcept {
    std::size_t n = 0;
    for (const auto& from : spans) s_->requests.put(from), n += from.size();
    return {tp::io_status::ok, 0, n + (s_->wrong == fault::writes_too_much ? 1 : 0)};
  }
  tp::io_ready wait(bool read, bool write, milliseconds time) noexcept {
    const std::uint64_t before = s_->answers.carried;
    no_transfer none;
    pipe_end own(s_->requests, s_->answers, {}, {});
    if (read)
      while (s_->answers.waiting() < (1u << 20) && (s_->owners.output_ready() || s_->requests.waiting() > 0))
        if (!tp::pump_once(s_->owners, none, own, s_->scratch)) break;
    const bool answered = s_->answers.carried != before && s_->most > 0;
    machine::ms += static_cast<std::uint32_t>(answered ? std::min<std::int64_t>(time.count(), 7) : time.count());
    machine::wrote(answered ? "answered" : "waited", time.count());
    return {read && answered, write};
  }

 private:
  using no_transfer = tp::no_transfer;
  struct state {
    state(party& owner, std::size_t bytes, bool closing, fault what)
        : owners(owner.references, owner.pool, box), most(bytes), closes(closing), wrong(what) {}
    wire requests, answers;
    inbox box;
    test::endpoint owners;
    std::size_t most;
    bool closes;
    fault wrong;
    alignas(64) std::array<std::byte, 16384> scratch;
  };
  std::unique_ptr<state> s_;
};
static_assert(tp::byte_stream<fake_stream>);

struct plan {
  std::size_t most = ~std::size_t{0};
  bool closes = true;
  fault wrong = fault::none;
};

model five_kilobytes() {
  model m;
  m.add("weight", dtype::f32, {32, 33}).add("bias", dtype::f32, {32}).add("mask", dtype::u8, {333});
  return m;
}

struct world {
  party owner{1};
  model source = five_kilobytes(), mine = five_kilobytes();
  tp::ref_id ref{};
  tp::resume_cursor cursor;

  world() {
    machine::reset();
    source.fill(1).ready();
    mine.ready();
    ref = owner.publish(source);
  }
  auto connecting(const std::vector<plan>& connections) {
    return [this, &connections, made = std::size_t{0}]() mutable noexcept -> tp::result<fake_stream> {
      machine::wrote("connect", static_cast<long long>(made));
      const plan p = made < connections.size() ? connections[made] : plan{};
      ++made;
      return fake_stream(owner, p.most, p.closes, p.wrong);
    };
  }
  tp::result<tp::receipt> pull(std::vector<plan> connections, tp::pull_options options = {},
                               tp::recipient_id me = {77}) {
    tp::land to(mine.destination());
    return tp::device_pull_with<device>(connecting(connections), pause, {.ref = ref, .recipient = me}, to, options, {},
                                        [&]() noexcept { ++steps; });
  }
  /// The same with the driver of hosts.
  tp::result<tp::receipt> pull_as_host(std::vector<plan> connections, const tp::pull_options& options) {
    tp::land to(mine.destination());
    return tp::pull_with<device>(connecting(connections), pause, {ref, 0, 0}, to, options);
  }
  static void pause(milliseconds time) noexcept {
    machine::ms += static_cast<std::uint32_t>(time.count());
    machine::wrote("paused", time.count());
  }
  int steps = 0;
};

/// The sum of what the log says of this word.
long long total(const std::string& log, const std::string& word) {
  long long sum = 0;
  for (std::size_t at = 0; (at = log.find(' ' + word + ' ', at)) != std::string::npos;)
    sum += std::atoll(log.c_str() + (at += word.size() + 2));
  return sum;
}

TEST(DevicePull, A_whole_pull_takes_its_time_and_its_numbers_from_the_platform) {
  std::string first;
  for (int run = 0; run < 2; ++run) {
    world w;
    const auto done = w.pull({{.most = 1500}, {.most = 3000, .closes = false}},
                             {.per_request_timeout = 730ms, .retry = {.first_delay = 240ms}, .cursor = &w.cursor});
    ASSERT_TRUE(confirmed(done));
    EXPECT_TRUE(w.source.same_tensors(w.mine));
    EXPECT_TRUE(w.mine.guards_intact());
    EXPECT_EQ(w.cursor.offset, done->bytes);
    EXPECT_GT(w.steps, 10);
    EXPECT_EQ(total(machine::log, "connect"), 0 + 1 + 2);
    EXPECT_EQ(total(machine::log, "paused"), 50 * 4 + 40 + 50 * 4 + 40)
        << "each try after the first waits 240 ms, in steps; there was progress between them\n"
        << machine::log;
    EXPECT_EQ(total(machine::log, "waited"), 50 * 14 + 30) << "the silent owner has 730 ms, and the others none\n"
                                                           << machine::log;
    if (run == 0) first = machine::log;
    else EXPECT_EQ(machine::log, first);
  }
}

TEST(DevicePull, Jitter_and_the_name_of_the_recipient_are_the_platforms_random_numbers) {
  world w;
  machine::random_step = 0xffff'ff00'0000'0000;  // 2^24 - 1 of 2^24: nearly half is taken off
  const auto done = w.pull({{.most = 0}}, {.retry = {.first_delay = 240ms}}, {});
  ASSERT_TRUE(succeeded(done));
  EXPECT_GT(total(machine::log, "paused"), 115);
  EXPECT_LT(total(machine::log, "paused"), 130);
  tp::recipient_id me{machine::random_step};
  EXPECT_TRUE(w.owner.references.recipient_of(w.ref, me)) << "the first number";
}

TEST(DevicePull, A_host_with_this_clock_and_these_random_numbers_waits_and_tries_as_the_device_does) {
  const std::vector<plan> connections{{.most = 1500}, {.most = 3000, .closes = false}, {.most = 0}, {.most = 0}};
  for (const std::uint64_t step : {std::uint64_t{0}, std::uint64_t{0xfedc'ba98'7654'3210}}) {
    constexpr tp::retry_policy retry{.first_delay = 240ms};
    world of_device;
    machine::random_step = step;
    const auto first = of_device.pull(connections, {.per_request_timeout = 730ms, .retry = retry});
    ASSERT_TRUE(succeeded(first));
    const std::string log = machine::log;

    world of_host;
    machine::random_step = step;
    int told = 0;
    const auto watch = [&](const tp::progress_event&) { ++told; };
    const auto done = of_host.pull_as_host(connections, {.per_request_timeout = 730ms,
                                                         .retry = retry,
                                                         .recipient = {77},
                                                         .progress = watch,
                                                         .progress_interval = step == 0 ? 700ms : 24h});
    ASSERT_TRUE(succeeded(done));
    EXPECT_TRUE(of_host.source.same_tensors(of_host.mine));
    EXPECT_EQ(machine::log, log);
    if (step == 0) EXPECT_GT(told, 2) << "while the owner was silent 730 ms of this clock went by";
    else EXPECT_EQ(told, 2) << "the first and the last";
  }
}

TEST(DevicePull, A_program_that_stops_is_heard_within_50_ms_of_any_wait) {
  for (const std::uint32_t after : {0u, 3u, 100u, 400u}) {
    world w;
    machine::stops_after = after;
    const auto done = w.pull({{.most = 1500, .closes = false}, {.most = 0}}, {.per_request_timeout = 300ms});
    EXPECT_EQ(code_of(done), errc::cancelled);
    EXPECT_LE(machine::passed(), after + 50);
  }
}

TEST(DevicePull, Without_retries_the_first_fault_is_the_last) {
  world lost;
  const auto closed = lost.pull({{.most = 1500}}, {.retry = {.retries = 0}});
  EXPECT_EQ(code_of(closed), errc::connection_lost);
  world silent;
  const auto late = silent.pull({{.most = 0, .closes = false}}, {.per_request_timeout = 99ms, .retry = {.retries = 0}});
  EXPECT_EQ(code_of(late), errc::timed_out);
  EXPECT_EQ(machine::passed(), 99u);
}

TEST(DevicePull, One_stream_is_borrowed_and_pulled_over) {
  world w;
  fake_stream line(w.owner, ~std::size_t{0}, false);
  tp::land to(w.mine.destination());
  const auto done = tp::device_pull_over<device>(line, {.ref = w.ref, .recipient = {5}}, to);
  ASSERT_TRUE(succeeded(done));
  EXPECT_TRUE(w.source.same_tensors(w.mine));
}

TEST(DevicePull, A_stopwatch_survives_the_wrap_and_any_time_out) {
  machine::reset();
  tp::detail::stopwatch<machine> watch;
  machine::ms += 0x200;  // past the wrap
  EXPECT_EQ(watch.spent(), milliseconds(0x200));
  EXPECT_EQ(watch.left(milliseconds(0x300)), milliseconds(0x100));
  EXPECT_EQ(watch.left(milliseconds(0x200)), 0ms);
  EXPECT_EQ(watch.left(milliseconds(-5)), 0ms);
  EXPECT_EQ(watch.left(milliseconds::max()), milliseconds(0x3fff'ffff - 0x200)) << "a quarter of the clock's range";
}

/// A clock with a sign, and a panic that returns.
struct careless : machine {
  static inline std::int64_t us = 0;
  static std::chrono::microseconds now() noexcept { return std::chrono::microseconds(us); }
  static void panic(const char* what) noexcept { std::fprintf(stderr, "ignored: %s\n", what); }
};

using DevicePullDeathTest = ::testing::Test;

TEST(DevicePullDeathTest, A_contract_that_the_stream_breaks_is_a_panic) {
  const auto with = [](fault f) {
    world w;
    (void)w.pull({{.wrong = f}});
  };
  EXPECT_EXIT(with(fault::reads_too_much), ::testing::ExitedWithCode(3),
              "panic: byte_stream 1: read_some.. gave more bytes");
  EXPECT_EXIT(with(fault::reads_nothing), ::testing::ExitedWithCode(3),
              "panic: byte_stream 1: read_some.. gave nothing");
  EXPECT_EXIT(with(fault::writes_too_much), ::testing::ExitedWithCode(3), "panic: byte_stream 2: write_some");
}

TEST(DevicePullDeathTest, A_contract_that_the_platform_breaks_is_a_panic) {
  EXPECT_EXIT(
      {
        world w;
        (void)w.pull({}, {}, {});  // random_step is 0
      },
      ::testing::ExitedWithCode(3), "panic: platform::random.. gives nothing but 0");
  EXPECT_EXIT(
      {
        machine::reset();
        tp::detail::stopwatch<machine> watch;
        machine::ms -= 1;
        (void)watch.spent();
      },
      ::testing::ExitedWithCode(3), "panic: platform::now.. went back");
  EXPECT_DEATH(
      {
        tp::detail::stopwatch<careless> watch;
        careless::us = -1;
        (void)watch.spent();
      },
      "ignored: platform::now.. went back")
      << "a panic that returns";
}

}  // namespace device_pull_test
