// Both ends of a serial line in both roles: messages, pulls one way and the other, at once.
#include "serial_network.hpp"
#include "support/clocks.hpp"

#include <atomic>

namespace serial_session_test {

using namespace test;
using net = serial_net<small>;
using session = net::session;

TEST(SerialSession, Both_ends_pull_at_once_over_a_slow_and_noisy_line) {
  noisy_line line({.flipped = 50, .lost = 20, .inserted = 20}, 40'000);
  auto left = session::connect(line.left()), right = session::connect(line.right());
  ASSERT_TRUE(left && right);
  const auto a = random_model<small>(1), b = random_model<small>(2), from_a = blank<small>(), from_b = blank<small>();
  const auto of_a = *left->add_tensors(std::as_const(*a)), of_b = *right->add_tensors(std::as_const(*b));
  tp::result<tp::receipt> theirs = tp::failure(errc::timed_out);
  joined_thread other([&] {
    theirs = right->download_tensors(of_a, *from_a);
    (void)right->serve([&](const session& s) { return s.status_of(of_b)->completed == 1; }, 60s);
  });
  const auto mine = left->download_tensors(of_b, *from_b);
  (void)left->serve([&](const session& s) { return s.status_of(of_a)->completed == 1; }, 60s);
  other.join();
  ASSERT_TRUE(succeeded(mine));
  ASSERT_TRUE(succeeded(theirs));
  EXPECT_TRUE(same(*from_a, *a));
  EXPECT_TRUE(same(*from_b, *b));
}

TEST(SerialSession, Messages_arrive_once_and_in_order_whatever_the_noise) {
  noisy_line line({.flipped = 150, .lost = 100, .inserted = 100, .seed = 5}, 0);
  auto left = session::connect(line.left()), right = session::connect(line.right());
  ASSERT_TRUE(left && right);
  const fast_clock fast(10);
  constexpr std::uint32_t count = 20;
  std::atomic<bool> over = false;
  joined_thread other([&] {
    for (std::uint32_t i = 0; i < count; ++i) {
      byte_vector body(i * 150, static_cast<std::byte>(i));
      const auto sent = left->send(i, {}, body, 60s);
      EXPECT_TRUE(succeeded(sent));
    }
    over = true;
  });
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto m = right->receive(60s);
    ASSERT_TRUE(succeeded(m));
    EXPECT_EQ(m->kind, i);
    EXPECT_EQ(m->body.size(), i * 150);
    for (const std::byte b : m->body) ASSERT_EQ(b, static_cast<std::byte>(i));
  }
  // the answer to the last one may be lost, more than once
  while (!over) (void)right->serve([](const session&) { return false; }, 100ms);
}
TEST(SerialSession, T8_a_session_whose_tty_is_gone_says_so) {
  noisy_line line;
  auto left = session::connect(line.left());
  ASSERT_TRUE(left);
  line.vanish(0);
  const auto m = left->receive(30s);
  EXPECT_EQ(code_of(m), errc::connection_lost);
}
TEST(SerialSession, T8_messages_that_came_before_the_tty_was_gone_are_received_before_the_error) {
  noisy_line line;
  auto left = session::connect(line.left()), right = session::connect(line.right());
  ASSERT_TRUE(left && right);
  joined_thread other([&] {
    EXPECT_TRUE(right->send(1, {}, {}, 30s));
    EXPECT_TRUE(right->send(2, {}, byte_vector(2000), 30s));
    line.vanish(0);
  });
  EXPECT_EQ(code_of(left->serve([](const session&) { return false; }, 60s)), errc::connection_lost);
  for (const std::uint32_t kind : {1u, 2u}) {
    const auto m = left->receive(30s);
    ASSERT_TRUE(succeeded(m));
    EXPECT_EQ(m->kind, kind);
  }
  EXPECT_EQ(code_of(left->receive(30s)), errc::connection_lost);
}

}  // namespace serial_session_test
