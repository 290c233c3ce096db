// One pull over two lines, each to an owner of its own, whose answers come when the test says so.
#include "support/pair.hpp"

#include <tensorpull/satellites/parallel/parallel_transfer.hpp>

#include <deque>

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

/// Pulls over a line to each of these pairs, whose left ends own `source`.
struct lines {
  std::deque<pair> to;
  tp::no_transfer idle;

  lines(std::size_t n, const model& source) {
    for (std::size_t i = 0; i < n; ++i) to.emplace_back().left.publish(source);
  }
  void begin(parallel& t) {
    for (std::uint8_t n = 0; n < to.size(); ++n) {
      t.up(n, n, to[n].right.end.next_id());
      to[n].right.end.begin_pull();
    }
  }
  /// A turn of one line, as a driver takes it.
  void step(parallel& t, std::uint8_t n) {
    auto line = t.line_of(n);
    if (t.line_ended(n)) return t.lost(n);
    (void)to[n].pump(idle, line);
    if (n != t.first_line() && t.line_pause(n).count() > 0) t.resume_line(n);
  }
  void run(parallel& t) {
    for (int i = 0; i < 2000 && !t.ended(); ++i)
      for (std::uint8_t n = 0; n < to.size(); ++n) step(t, n);
  }
};
void expect_complete(const parallel& t, const model& mine, const model& source) {
  ASSERT_TRUE(t.ended());
  EXPECT_TRUE(completed(t.outcome()));
  EXPECT_TRUE(mine.same_tensors(source) && mine.guards_intact());
}

TEST(ParallelTransfer, A_resumed_pull_takes_from_whoever_describes_before_the_first) {
  const model source = std::move(of_both().fill(1));
  model mine = of_both();
  tp::resume_cursor cursor;
  {
    pair p;
    p.left.publish(source);
    tp::land to(mine.destination());
    transfer<tp::fixed_bytes<65'536>> t(to, {.ref = {1, 2}, .recipient = {9}}, {}, 1);
    ASSERT_TRUE(cut_after(p, t, 6));
    cursor = t.cursor();
    ASSERT_GT(cursor.offset, 0u);
  }
  tp::land to(mine.destination());
  parallel t(to, {.ref = {1, 2}, .version = version_of(source), .recipient = {9}}, {}, 1);
  ASSERT_TRUE(t.resume(cursor));
  lines all(2, source);
  all.begin(t);
  for (int i = 0; i < 20; ++i) all.step(t, 1);
  EXPECT_FALSE(t.line_ended(1));
  all.run(t);
  expect_complete(t, mine, source);
  EXPECT_FALSE(t.line_ended(1));
}

/// Refuses from a chunk on what it is asked for, as if the schemas differed, and then shows another one.
tampering changes_its_schema(std::size_t from) {
  return [=, n = std::size_t{0}](byte_vector& f) mutable {
    tp::frame m;
    if (kind_of(f) == tp::frame_kind::chunk) {
      if (n++ < from) return;
      m = *tp::detail::payload_prefix::read(std::span<const std::byte, 80>(f.data(), 80));
    } else if (kind_of(f) == tp::frame_kind::schema_page) {
      m = decoded{frame(f)}.m;
    } else {
      return;
    }
    tp::frame refusal;
    refusal.kind = tp::frame_kind::refused;
    refusal.status = tp::status::schema_mismatch;
    refusal.id = m.id;
    refusal.ref = m.ref;
    const frame sent = encode(refusal);
    f.assign(sent.bytes().begin(), sent.bytes().end());
  };
}
TEST(ParallelTransfer, A_first_owner_that_changes_its_schema_in_the_middle_is_left_out) {
  const model source = std::move(of_both().fill(1));
  for (std::size_t from = 0; from < 8; ++from) {
    model mine = of_both();
    tp::land to(mine.destination());
    parallel t(to, {.ref = {1, 2}, .version = version_of(source), .recipient = {9}}, {}, 1);
    lines all(3, source);
    all.to[0].owner_lies = changes_its_schema(from);
    all.begin(t);
    all.run(t);
    expect_complete(t, mine, source);
    EXPECT_FALSE(t.line_ended(1)) << from;
    EXPECT_FALSE(t.line_ended(2)) << from;
  }
}

TEST(ParallelTransfer, Owners_that_described_before_one_with_another_schema_was_left_out_stay) {
  const model source = std::move(of_both().fill(1));
  for (int turns = 1; turns < 12; ++turns) {
    model mine = of_both();
    tp::land to(mine.destination());
    parallel t(to, {.ref = {1, 2}, .version = version_of(source), .recipient = {9}}, {}, 1);
    lines all(3, source);
    all.to[0].owner_lies = lie_about(tp::frame_kind::description, [](tp::frame& m) { ++m.fingerprint; });
    all.begin(t);
    for (int i = 0; i < turns; ++i) all.step(t, 0);
    all.run(t);
    expect_complete(t, mine, source);
    EXPECT_FALSE(t.line_ended(1)) << turns;
    EXPECT_FALSE(t.line_ended(2)) << turns;
  }
}

/// Answers as an owner that has no room.
const tampering is_busy = lie_about(tp::frame_kind::description, [](tp::frame& m) {
  m.kind = tp::frame_kind::refused;
  m.status = tp::status::busy;
  m.delay_ms = 1;
});
TEST(ParallelTransfer, An_owner_that_is_always_busy_is_no_progress) {
  const model source = std::move(of_both().fill(1));
  model mine = of_both();
  tp::land to(mine.destination());
  parallel t(to, {.ref = {1, 2}, .recipient = {9}}, {}, 1);
  lines all(2, source);
  all.to[1].owner_lies = is_busy;
  all.begin(t);
  while (t.landed_bytes() == 0) all.step(t, 0);
  const std::uint32_t answers = t.answers();
  for (int i = 0; i < 100; ++i) all.step(t, 1);
  EXPECT_GT(all.to[1].to_right.carried, 1000u);
  EXPECT_EQ(t.answers(), answers);
}
TEST(ParallelTransfer, A_line_that_was_busy_replaces_a_first_one_that_was_lost_meanwhile) {
  const model source = std::move(of_both().fill(1));
  for (int turns = 0; turns < 12; ++turns) {
    model mine = of_both();
    tp::land to(mine.destination());
    parallel t(to, {.ref = {1, 2}, .version = version_of(source), .recipient = {9}}, {}, 1);
    lines all(2, source);
    all.to[1].owner_lies = is_busy;
    all.begin(t);
    for (int i = 0; i < turns; ++i) all.step(t, 0);
    auto line = t.line_of(1);
    while (turns > 2 && t.line_pause(1).count() == 0) (void)all.to[1].pump(all.idle, line);
    t.lost(0);
    all.to[1].owner_lies = {};
    for (int i = 0; i < 2000 && !t.ended(); ++i) all.step(t, 1);
    expect_complete(t, mine, source);
  }
}

TEST(ParallelTransfer, A_line_that_becomes_the_first_while_another_brings_the_rest_confirms) {
  const model source = std::move(of_both().fill(1));
  for (const bool part : {false, true})
    for (int turns = 0; turns < 40; ++turns) {
      model mine;
      mine.add("a", tp::dtype::f32, {256 * 1024});
      if (!part) mine.add("b", tp::dtype::f32, {256 * 1024});
      mine.ready();
      tp::land to(mine.destination());
      parallel t(to, {.ref = {1, 2}, .part = part, .recipient = {9}}, {}, 1);
      lines all(2, source);
      all.begin(t);
      for (int i = 0; i < turns; ++i) all.step(t, 0), all.step(t, 1);
      if (t.total_bytes() != 0 && t.landed_bytes() == t.total_bytes()) break;  // the first one may have confirmed
      (void)t.replace_first();
      all.step(t, t.first_line());  // it asks for a description
      const auto other = static_cast<std::uint8_t>(1 - t.first_line());
      for (int i = 0; i < 500 && !t.ended(); ++i) all.step(t, other);
      all.run(t);
      ASSERT_TRUE(t.ended()) << turns;
      const auto done = t.outcome();
      ASSERT_TRUE(done && done->confirmed) << turns;
      EXPECT_FALSE(t.line_ended(0) || t.line_ended(1)) << turns;
      EXPECT_EQ(all.to[0].left.status().completed + all.to[1].left.status().completed, 1u) << turns;
      EXPECT_EQ(all.to[0].left.status().failed + all.to[1].left.status().failed, 0u) << turns;
    }
}

}  // namespace parallel_transfer_test
