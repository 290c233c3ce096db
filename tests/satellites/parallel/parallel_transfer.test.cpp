// One pull over two lines, each to an owner of its own, whose answers come when the test says so.
#include "support/pair.hpp"

#include <tensorpull/satellites/parallel/parallel_transfer.hpp>

namespace parallel_transfer_test {

using namespace test;
using parallel = tp::parallel_transfer<tp::land, tp::fixed_bytes<65'536>, tp::image_digest>;

model of_both() {
  model m;
  m.add("a", tp::dtype::f32, {256 * 1024}).add("b", tp::dtype::f32, {256 * 1024}).ready();
  return m;
}

/// Both lines take turns `turns` times, and then the first one is silent. The line that confirms if the other one has
/// brought the rest; nothing: it has not. At the end both go on.
std::optional<std::uint8_t> confirms(const model& source, model& mine, bool part, int turns) {
  pair first, second;
  first.left.publish(source);
  second.left.publish(source);
  tp::land to(mine.destination());
  parallel t(to, {.ref = {1, 2}, .part = part, .recipient = {9}}, {}, 1);
  t.up(0, 0, first.right.end.next_id());
  t.up(1, 1, second.right.end.next_id());
  first.right.end.begin_pull();
  second.right.end.begin_pull();
  tp::no_transfer idle;
  auto one = t.line_of(0), other = t.line_of(1);
  for (int i = 0; i < turns; ++i) first.pump(idle, one), second.pump(idle, other);
  for (int i = 0; i < 500 && !t.ended(); ++i) second.pump(idle, other);
  const bool all = t.total_bytes() > 0 && t.landed_bytes() == t.total_bytes();
  const std::uint8_t line = t.first_line();
  for (int i = 0; i < 2000 && !t.ended(); ++i) first.pump(idle, one), second.pump(idle, other);
  EXPECT_TRUE(t.ended());
  if (!t.ended()) return {};
  const auto done = t.outcome();
  EXPECT_TRUE(succeeded(done));
  EXPECT_TRUE(done && done->confirmed) << turns;
  EXPECT_TRUE(mine.guards_intact());
  if (!all) return {};
  return line;
}

TEST(ParallelTransfer, An_idle_line_confirms_what_it_has_brought_while_the_first_is_silent) {
  const model source = std::move(of_both().fill(1));
  int moved = 0;
  for (int turns = 0; turns < 40; ++turns) {
    model mine = of_both();
    const auto line = confirms(source, mine, false, turns);
    moved += line == 1;
    EXPECT_TRUE(mine.same_tensors(source));
  }
  EXPECT_GT(moved, 0);
}
TEST(ParallelTransfer, Named_tensors_are_confirmed_over_the_line_that_was_told_their_names) {
  const model source = std::move(of_both().fill(1));
  int brought = 0;
  for (int turns = 0; turns < 40; ++turns) {
    model mine;
    mine.add("a", tp::dtype::f32, {256 * 1024}).ready();
    const auto line = confirms(source, mine, true, turns);
    if (!line) continue;
    ++brought;
    EXPECT_EQ(*line, 0) << turns;
  }
  EXPECT_GT(brought, 0);
}
/// Lands in memory that cannot be read back, so that one line brings all of it in order.
struct unreadable : tp::land {
  using tp::land::land;
  tp::source_view read_back() const noexcept { return {}; }
};
TEST(ParallelTransfer, Adaptive_chunks_keep_their_length_while_one_line_brings_them_in_order) {
  const model source = std::move(of_both().fill(1));
  pair p(cut{3000});
  p.left.publish(source);
  model mine = of_both();
  unreadable to(mine.destination());
  tp::parallel_transfer<unreadable, tp::adaptive_bytes<8192, 65'536>, tp::image_digest> t(
      to, {.ref = {1, 2}, .recipient = {9}}, {}, 1);
  t.up(0, 0, p.right.end.next_id());
  p.right.end.begin_pull();
  tp::no_transfer idle;
  auto line = t.line_of(0);
  for (int i = 0; i < 20'000 && !t.ended(); ++i) {
    p.pump(idle, line);
    t.measured(std::chrono::milliseconds(i % 7));
  }
  ASSERT_TRUE(t.ended());
  EXPECT_TRUE(completed(t.outcome()));
  EXPECT_TRUE(mine.same_tensors(source));
}
TEST(ParallelTransfer, A_first_line_that_has_another_connection_describes_again) {
  const model source = std::move(of_both().fill(1));
  for (int turns = 0; turns < 8; ++turns) {
    pair p;
    p.left.publish(source);
    model mine = of_both();
    tp::land to(mine.destination());
    parallel t(to, {.ref = {1, 2}, .recipient = {9}}, {}, 1);
    tp::no_transfer idle;
    auto line = t.line_of(0);
    t.up(0, 0, p.right.end.next_id());
    p.right.end.begin_pull();
    for (int i = 0; i < turns; ++i) p.pump(idle, line);
    p.reconnect();
    t.up(0, 0, p.right.end.next_id());
    p.right.end.begin_pull();
    for (int i = 0; i < 2000 && !t.ended(); ++i) p.pump(idle, line);
    ASSERT_TRUE(t.ended()) << turns;
    ASSERT_TRUE(t.outcome()) << turns;
    EXPECT_TRUE(mine.same_tensors(source));
  }
}

}  // namespace parallel_transfer_test
