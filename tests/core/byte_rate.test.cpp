// A rate holds over any second, whatever is asked for and when.
#include "support/random.hpp"

#include <tensorpull/core/byte_rate.hpp>

#include <gtest/gtest.h>

#include <deque>

namespace byte_rate_test {

using std::chrono::nanoseconds;
using tensorpull::byte_rate;

/// Adds up what was sent, and checks each second that ends with something sent.
struct any_second {
  std::uint64_t rate, within = 0, total = 0;
  std::deque<std::pair<std::int64_t, std::uint64_t>> sent{};
  void send(std::int64_t now, std::uint64_t bytes) {
    total += bytes;
    within += bytes;
    sent.emplace_back(now, bytes);
    while (sent.front().first < now - 1'000'000'000)
      within -= sent.front().second, sent.pop_front();  // both ends belong to the second
    ASSERT_LE(within, rate) << "at " << now;
  }
};

TEST(ByteRate, No_second_has_more) {
  for (const std::uint64_t rate :
       {1ull, 2ull, 3ull, 15ull, 16ull, 17ull, 1000ull, 999'983ull, 125'000'000ull, 10'000'000'000ull, 1ull << 37}) {
    const byte_rate r(rate);
    byte_rate::used u;
    any_second sum{rate};
    test::generator random(rate);
    std::int64_t now = 5'000'000'000'000;
    for (int i = 0; i < 20'000; ++i) {
      const std::uint64_t left = r.left(u, nanoseconds(now));
      ASSERT_LE(left, r.burst_bytes());
      if (left > 0) {
        const std::uint64_t n = random.below(2) == 0 ? left : 1 + random.below(left),
                            back = random.below(4) == 0 ? random.below(n + 1) : 0;
        r.use(u, n, nanoseconds(now));
        now += static_cast<std::int64_t>(random.below(3) == 0 ? random.below(1'000'000) : 0);
        r.give_back(u, back);
        if (n > back) sum.send(now, n - back);
        if (HasFatalFailure()) FAIL() << rate;
      }
      // at once, soon, or after a pause in which all is saved up
      now += static_cast<std::int64_t>(random.below(10) == 0
                                           ? random.below(3'000'000'000)
                                           : random.below(1 + 200'000'000 / (1 + random.below(1000))));
    }
    EXPECT_GT(sum.total, 0u) << rate;
  }
}
TEST(ByteRate, A_sender_that_always_takes_all_has_almost_the_rate) {
  for (const std::uint64_t rate : {1600ull, 1'000'000ull, 10'000'000'000ull}) {
    const byte_rate r(rate);
    byte_rate::used u;
    any_second sum{rate};
    for (std::int64_t now = 0; now <= 60'000'000'000; now += 10'000'000)
      if (const std::uint64_t left = r.left(u, nanoseconds(now)); left > 0)
        r.use(u, left, nanoseconds(now)), sum.send(now, left);
    EXPECT_GE(sum.total, rate * 60 * 93 / 100);
  }
}
TEST(ByteRate, Without_a_limit_there_is_none) {
  for (const std::uint64_t rate : {0ull, (1ull << 37) + 1, ~0ull}) {
    const byte_rate r(rate);
    byte_rate::used u;
    EXPECT_FALSE(r.limited());
    r.use(u, ~0ull, nanoseconds(1));
    EXPECT_EQ(r.left(u, nanoseconds(1)), ~0ull);
  }
}

}  // namespace byte_rate_test
