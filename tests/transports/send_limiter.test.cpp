// What an owner may send is shared out: in virtual time, among many that want more than there is.
#include "support/random.hpp"

#include <tensorpull/transports/send_limiter.hpp>

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <vector>

namespace send_limiter_test {

namespace tp = tensorpull;
using std::chrono::nanoseconds;
using limiter = tp::send_limiter<>;

/// Connections that always have something to send, and a driver that calls tick() as it has to.
struct network {
  explicit network(const tp::send_limits& l, std::size_t count)
      : limits(l), to(l), lines(count), sent(count), seconds(count + 1), within(count + 1) {}

  tp::send_limits limits;
  limiter to;
  std::vector<limiter::share> lines;
  std::vector<std::uint64_t> sent;
  std::vector<std::deque<std::pair<std::int64_t, std::uint64_t>>> seconds;  // of each, and of all
  std::vector<std::uint64_t> within;
  std::deque<std::size_t> turn;
  std::int64_t now = 1'000'000'000'000;
  bool ticks = true;

  void count(std::size_t i, std::uint64_t n, std::uint64_t rate) {
    auto& s = seconds[i];
    s.emplace_back(now, n);
    within[i] += n;
    while (s.front().first < now - 1'000'000'000) within[i] -= s.front().second, s.pop_front();
    ASSERT_TRUE(rate == 0 || within[i] <= rate) << within[i];
  }
  void wake(std::size_t i) { turn.push_back(i); }
  /// Whose turn it is sends until it has to wait, in the order in which they were woken, as an event loop does.
  void run(std::int64_t milliseconds, std::uint64_t wanted, std::uint64_t least = 1) {
    for (const std::int64_t end = now + milliseconds * 1'000'000; now < end; now += 1'000'000) {
      for (; !turn.empty(); turn.pop_front()) {
        const std::size_t i = turn.front();
        while (const std::uint64_t n = to.take(lines[i], wanted, nanoseconds(now), least)) {
          ASSERT_GE(n, std::min(least, wanted));
          sent[i] += n;
          count(i, n, limits.recipient_bytes_per_second);
          count(lines.size(), n, limits.owner_bytes_per_second);
          if (testing::Test::HasFatalFailure()) return;
        }
      }
      ticks |= to.needs_ticks();
      if (ticks && now % 10'000'000 == 0)
        ticks = to.tick(nanoseconds(now),
                        [&](limiter::share& s) { wake(static_cast<std::size_t>(&s - lines.data())); });
    }
  }
  std::uint64_t total() const {
    std::uint64_t n = 0;
    for (const auto s : sent) n += s;
    return n;
  }
};

TEST(SendLimiter, No_second_has_more_and_nothing_is_wasted) {
  for (const std::size_t count : {1u, 2u, 7u, 100u})
    for (const std::uint64_t rate : {20'000ull, 1'000'000ull, 1'000'000'000ull}) {
      network n({.owner_bytes_per_second = rate}, count);
      for (std::size_t i = 0; i < count; ++i) n.wake(i);
      n.run(20'000, 256 * 1024);
      if (testing::Test::HasFatalFailure()) FAIL() << count << " at " << rate;
      EXPECT_GE(n.total(), rate * 20 * 9 / 10) << count << " at " << rate;
      for (const auto s : n.sent)
        EXPECT_NEAR(static_cast<double>(s), static_cast<double>(n.total()) / static_cast<double>(count),
                    static_cast<double>(rate) / 4)
            << count << " at " << rate;
    }
}
TEST(SendLimiter, What_one_may_not_use_is_left_to_the_others) {
  network n({.owner_bytes_per_second = 1'000'000, .recipient_bytes_per_second = 300'000}, 5);
  for (std::size_t i = 0; i < 3; ++i) n.wake(i);
  n.run(20'000, 64 * 1024);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_GE(n.sent[i], 20u * 270'000) << "three together are below the owner's limit";
  n.wake(3);
  n.wake(4);
  const auto before = n.sent;
  n.run(20'000, 64 * 1024);
  for (std::size_t i = 0; i < 5; ++i)
    EXPECT_NEAR(static_cast<double>(n.sent[i] - before[i]), 20.0 * 188'000, 400'000) << "five share it";
}
TEST(SendLimiter, A_newcomer_waits_behind_those_who_wait) {
  limiter to({.owner_bytes_per_second = 16'000});
  limiter::share early, late;
  const nanoseconds at{1'000'000'000};
  EXPECT_EQ(to.take(early, 1 << 20, at), 1000u) << "all that was saved";
  EXPECT_EQ(to.take(early, 1 << 20, at), 0u);
  EXPECT_TRUE(to.waits(early));
  EXPECT_EQ(to.take(late, 1, at + std::chrono::seconds(1)), 0u) << "although there would be something for it";
  std::vector<limiter::share*> woken;
  (void)to.tick(at + std::chrono::seconds(1), [&](limiter::share& s) { woken.push_back(&s); });
  EXPECT_EQ(woken, (std::vector<limiter::share*>{&early, &late}));
  EXPECT_EQ(to.take(early, 1 << 20, at + std::chrono::seconds(1)), 500u);
  EXPECT_EQ(to.take(late, 1, at + std::chrono::seconds(1)), 1u);
  to.leave(late);  // the rest is for others
  EXPECT_GE(to.take(early, 1 << 20, at + std::chrono::seconds(1)), 498u) << "but for what is lost by rounding";
}
TEST(SendLimiter, Who_may_not_send_yet_does_not_keep_others_waiting) {
  limiter to({.owner_bytes_per_second = 160'000, .recipient_bytes_per_second = 16'000});
  limiter::share early, late;
  const nanoseconds at{1'000'000'000};
  EXPECT_EQ(to.take(early, 1 << 20, at), 1000u) << "all that it may";
  EXPECT_EQ(to.take(early, 1 << 20, at), 0u);
  EXPECT_EQ(to.take(late, 1 << 20, at), 0u) << "it came second";
  std::vector<limiter::share*> woken;
  EXPECT_TRUE(to.tick(at, [&](limiter::share& s) { woken.push_back(&s); }));
  EXPECT_EQ(woken, std::vector<limiter::share*>{&late});
  EXPECT_EQ(to.take(late, 1 << 20, at), 1000u);
}
TEST(SendLimiter, Datagrams_are_whole) {
  network n({.owner_bytes_per_second = 30'000}, 4);  // a burst is 1,875 bytes
  for (std::size_t i = 0; i < 4; ++i) n.wake(i);
  n.run(20'000, 1200, 1200);
  EXPECT_GE(n.total(), 20u * 30'000 * 8 / 10);
  EXPECT_EQ(n.total() % 1200, 0u);
  for (const auto s : n.sent) EXPECT_GE(s, n.total() / 5) << "nobody starves";
}
TEST(SendLimiter, Who_goes_away_gives_back_its_part) {
  limiter to({.owner_bytes_per_second = 16'000});
  const nanoseconds at{1'000'000'000};
  auto gone = std::make_unique<limiter::share>();
  limiter::share there, other;
  EXPECT_EQ(to.take(there, 1 << 20, at), 1000u);
  EXPECT_EQ(to.take(*gone, 100, at), 0u);
  EXPECT_EQ(to.take(there, 1 << 20, at), 0u);
  to.leave(*gone);
  gone.reset();
  EXPECT_FALSE(to.tick(at + std::chrono::seconds(1), [&](limiter::share& s) { EXPECT_EQ(&s, &there); }));
  to.leave(there);  // it was given 1,000 bytes and has nothing to send
  EXPECT_GE(to.take(other, 1 << 20, at + std::chrono::seconds(1)), 999u);
  to.put_back(other, 600);
  EXPECT_GE(to.take(other, 1 << 20, at + std::chrono::seconds(1)), 598u);
}

TEST(SendLimiter, What_was_given_and_is_taken_late_counts_when_it_is_taken) {
  constexpr std::uint64_t rate = 160'000;
  limiter to({.owner_bytes_per_second = rate});
  limiter::share early, late;
  std::int64_t now = 1'000'000'000'000;
  const auto nothing = [](limiter::share&) {};
  EXPECT_GT(to.take(early, 1 << 20, nanoseconds(now)), 0u);
  EXPECT_EQ(to.take(early, 1 << 20, nanoseconds(now)), 0u);
  (void)to.tick(nanoseconds(now += 1'000'000'000), nothing);
  now += 5'000'000'000;  // a callback of the program takes its time
  std::uint64_t within = 0;
  for (const std::int64_t end = now + 1'000'000'000; now < end; now += 10'000'000) {
    for (limiter::share* s : {&early, &late})
      while (const std::uint64_t n = to.take(*s, 1 << 20, nanoseconds(now))) within += n;
    (void)to.tick(nanoseconds(now), nothing);
  }
  EXPECT_LE(within, rate);
  EXPECT_GE(within, rate * 9 / 10);
}
TEST(SendLimiter, What_was_given_long_ago_and_is_not_needed_is_not_there_twice) {
  constexpr std::uint64_t rate = 160'000;
  limiter to({.owner_bytes_per_second = rate});
  limiter::share gone, other;
  std::int64_t now = 1'000'000'000'000;
  EXPECT_GT(to.take(gone, 1 << 20, nanoseconds(now)), 0u);
  EXPECT_EQ(to.take(gone, 1 << 20, nanoseconds(now)), 0u);
  (void)to.tick(nanoseconds(now += 1'000'000'000), [](limiter::share&) {});
  now += 5'000'000'000;
  std::uint64_t within = to.take(other, 1 << 20, nanoseconds(now));
  for (int i = 0; i < 2; ++i, to.leave(gone)) {
    (void)to.tick(nanoseconds(now), [](limiter::share&) {});
    while (const std::uint64_t n = to.take(other, 1 << 20, nanoseconds(now))) within += n;
  }
  EXPECT_EQ(within, rate / 16);
}

}  // namespace send_limiter_test
