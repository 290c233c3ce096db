// Both ends of a serial line in both roles: messages, pulls one way and the other, at once.
#include "serial_network.hpp"

#include <future>

namespace {

using namespace test;
using net = serial_net<small>;
using session = net::session;


void expect_both_directions(const line_noise& noise, std::uint64_t rate) {
  noisy_line line(noise, rate);
  auto left = session::connect(line.left()), right = session::connect(line.right());
  ASSERT_TRUE(left && right);
  const auto a = random_model<small>(1), b = random_model<small>(2), from_a = blank<small>(), from_b = blank<small>();
  const auto of_a = *left->add_tensors(std::as_const(*a)), of_b = *right->add_tensors(std::as_const(*b));
  auto other = std::async(std::launch::async, [&] {
    const auto done = right->download_tensors(of_a, *from_a);
    (void)right->serve([&](const session& s) { return s.status_of(of_b)->completed == 1; }, 60s);
    return done;
  });
  const auto mine = left->download_tensors(of_b, *from_b);
  (void)left->serve([&](const session& s) { return s.status_of(of_a)->completed == 1; }, 60s);
  const auto theirs = other.get();
  ASSERT_TRUE(mine) << describe(mine.error());
  ASSERT_TRUE(theirs) << describe(theirs.error());
  EXPECT_TRUE(same(*from_a, *a));
  EXPECT_TRUE(same(*from_b, *b));
}
TEST(SerialSession, both_ends_pull_at_once) { expect_both_directions({}, 0); }
TEST(SerialSession, both_ends_pull_at_once_over_a_slow_and_noisy_line) {
  expect_both_directions({.flipped = 50, .lost = 20, .inserted = 20}, 40'000);
}

TEST(SerialSession, messages_arrive_once_and_in_order_whatever_the_noise) {
  noisy_line line({.flipped = 150, .lost = 100, .inserted = 100, .seed = 5}, 0);
  auto left = session::connect(line.left()), right = session::connect(line.right());
  ASSERT_TRUE(left && right);
  constexpr std::uint32_t count = 20;
  std::jthread other([&] {
    for (std::uint32_t i = 0; i < count; ++i) {
      std::vector<std::byte> body(i * 150, static_cast<std::byte>(i));
      const auto sent = left->send(i, {}, body, 60s);
      EXPECT_TRUE(sent) << describe(sent.error());
    }
  });
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto m = right->receive(60s);
    ASSERT_TRUE(m) << describe(m.error());
    EXPECT_EQ(m->kind, i);
    EXPECT_EQ(m->body.size(), i * 150);
    for (const std::byte b : m->body) ASSERT_EQ(b, static_cast<std::byte>(i));
  }
  // the answer to the last one may be lost
  (void)right->serve([n = 0](const session&) mutable { return ++n > 50; }, 2s);
}
TEST(SerialSession, a_device_takes_a_task_and_gives_its_result) {
  noisy_line line({}, 80'000);
  auto device = session::connect(line.left()), server = session::connect(line.right());
  ASSERT_TRUE(device && server);
  const auto global = random_model<small>(3), mine = blank<small>(), update = blank<small>();
  std::jthread other([&] {
    const auto task = device->receive(30s);
    ASSERT_TRUE(task && task->references.size() == 1) << "no task";
    ASSERT_TRUE(device->download_tensors(task->references[0], *mine));
    mine->w[7] += 1;
    const auto up = device->add_tensors(std::as_const(*mine), {.recipients = 1});
    ASSERT_TRUE(up);
    const std::array refs{*up};
    ASSERT_TRUE(device->send(2, refs, {}, 30s));
    (void)device->serve(tp::until_settled(*up), 30s);
  });
  const auto ref = server->add_tensors(std::as_const(*global));
  const std::array refs{*ref};
  ASSERT_TRUE(server->send(1, refs, {}, 30s));
  const auto result = server->receive(30s);
  ASSERT_TRUE(result && result->references.size() == 1);
  ASSERT_TRUE(server->download_tensors(result->references[0], *update));
  global->w[7] += 1;
  EXPECT_TRUE(same(*update, *global));
}
TEST(SerialSession, T8_a_session_whose_tty_is_gone_says_so) {
  noisy_line line;
  auto left = session::connect(line.left());
  ASSERT_TRUE(left);
  line.vanish(0);
  const auto m = left->receive(30s);
  ASSERT_FALSE(m);
  EXPECT_EQ(m.error().code, tp::errc::connection_lost);
}

}  // namespace
