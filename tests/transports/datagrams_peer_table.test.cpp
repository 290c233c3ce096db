// The table of peers: bounded, found by address, aged; strangers never push out a peer that makes progress.
#include <tensorpull/transports/peers/peer_table.hpp>

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace datagrams_peer_table_test {

using namespace tensorpull;
using namespace std::chrono_literals;

struct place {
  std::uint64_t number = 0;
  friend bool operator==(const place&, const place&) = default;
  std::uint64_t hash() const noexcept { return number % 4; }  // many in one bucket
};
struct kept {
  explicit kept(int v, int& alive) : value(v), living(alive) { ++living; }
  kept(kept&&) = delete;
  ~kept() { --living; }
  int value;
  int& living;
};
using table = peer_table<place, kept>;
constexpr table::time_point start{1h};
constexpr auto nobody = [](table::entry&) {};

/// A newcomer that has a place at once; nullptr: there is none.
template <class Gone = decltype(nobody)>
table::entry* placed(table& t, std::uint64_t who, table::time_point now, int value, int& alive, Gone gone = {}) {
  table::entry* const e = t.admit({who}, now, value, alive);
  if (e != nullptr) t.progressed(*e, now, gone);
  return e;
}

TEST(PeerTable, Finds_who_was_admitted) {
  int alive = 0;
  {
    table t(3, {});
    ASSERT_TRUE(t.has_memory());
    EXPECT_EQ(t.find({1}), nullptr);
    for (int i = 0; i < 3; ++i) ASSERT_NE(placed(t, std::uint64_t(4 * i), start, i, alive), nullptr);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(t.find({std::uint64_t(4 * i)})->peer.value, i);
    EXPECT_EQ(t.find({12}), nullptr);
    EXPECT_EQ(t.size(), 3u);
    t.remove(*t.find({4}));
    EXPECT_EQ(t.find({4}), nullptr);
    EXPECT_EQ(alive, 2);
    EXPECT_EQ(t.find({0})->peer.value, 0);
    EXPECT_EQ(t.find({8})->peer.value, 2);
  }
  EXPECT_EQ(alive, 0);
}

TEST(PeerTable, Without_room_nobody_is_admitted) {
  int alive = 0;
  table t(0, {});
  EXPECT_EQ(t.admit({1}, start, 1, alive), nullptr);
  EXPECT_EQ(t.find({1}), nullptr);
}

TEST(PeerTable, A_newcomer_without_progress_takes_no_place_and_pushes_nobody_out) {
  int alive = 0;
  table t(2, {});
  (void)placed(t, 1, start, 1, alive);
  (void)placed(t, 2, start, 2, alive);
  for (std::uint64_t i = 100; i < 1000; ++i) {
    table::entry* const e = t.admit({i}, start + 1h, 0, alive);
    ASSERT_NE(e, nullptr);
    EXPECT_EQ(t.find({i}), e);
    t.remove(*e);
  }
  EXPECT_EQ(t.size(), 2u);
  EXPECT_EQ(t.pushed_out(), 0u);
  EXPECT_EQ(alive, 2);
}

TEST(PeerTable, Strangers_never_push_out_who_makes_progress) {
  int alive = 0;
  table t(4, {});
  for (std::uint64_t i = 0; i < 3; ++i) (void)placed(t, i, start, int(i), alive);
  auto now = start;
  for (std::uint64_t i = 100; i < 10'000; ++i) {
    now += 100ms;
    for (std::uint64_t k = 0; k < 3; ++k) {
      ASSERT_NE(t.find({k}), nullptr) << "after " << i;
      t.progressed(*t.find({k}), now, nobody);
    }
    (void)placed(t, i, now, 0, alive);
    ASSERT_LE(t.size(), 4u);
  }
  EXPECT_GT(t.pushed_out(), 300u);
}

TEST(PeerTable, Who_was_silent_for_long_makes_room_if_the_table_is_full) {
  int alive = 0;
  table t(2, {});
  (void)placed(t, 1, start, 1, alive);
  (void)placed(t, 2, start + 1s, 2, alive);
  EXPECT_EQ(t.admit({3}, start + 2999ms, 3, alive), nullptr);
  std::vector<std::uint64_t> gone;
  ASSERT_NE(placed(t, 3, start + 3s, 3, alive, [&](table::entry& e) { gone.push_back(e.address().number); }), nullptr);
  EXPECT_EQ(gone, std::vector<std::uint64_t>{1});
  EXPECT_EQ(t.pushed_out(), 1u);
  EXPECT_EQ(alive, 2);
  EXPECT_EQ(t.find({1}), nullptr);
  EXPECT_NE(t.find({2}), nullptr);
}

TEST(PeerTable, Nobody_says_goodbye_so_peers_age) {
  int alive = 0;
  table t(8, {});
  for (std::uint64_t i = 1; i <= 3; ++i) (void)placed(t, i, start + (i - 1) * 1s, int(i), alive);
  std::vector<std::uint64_t> gone;
  const auto note = [&](table::entry& e) { gone.push_back(e.address().number); };
  t.age(start + 59s, 100, note);
  EXPECT_TRUE(gone.empty());
  t.age(start + 61s, 1, note);
  EXPECT_EQ(gone, (std::vector<std::uint64_t>{1})) << "no more than was asked for";
  t.age(start + 61s, 100, note);
  EXPECT_EQ(gone, (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(t.size(), 1u);
  EXPECT_EQ(alive, 1);
}

TEST(PeerTable, The_longest_budgets_do_not_overflow) {
  int alive = 0;
  constexpr auto never = std::chrono::milliseconds::max();
  table t(1, {never, never});
  (void)placed(t, 1, start, 1, alive);
  t.age(start + 100h, 10, nobody);
  EXPECT_EQ(t.admit({2}, start + 100h, 2, alive), nullptr);
  EXPECT_EQ(t.size(), 1u);
}

TEST(PeerTable, Agrees_with_a_map_over_random_calls) {
  int alive = 0;
  table t(16, {});
  std::map<std::uint64_t, int> expected;
  std::minstd_rand random(7);
  auto now = start;
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t who = random() % 40;
    now += std::chrono::milliseconds(random() % 200);
    const auto gone = [&](table::entry& e) { ASSERT_EQ(expected.erase(e.address().number), 1u); };
    if (auto* const e = t.find({who}); e != nullptr) {
      ASSERT_EQ(e->peer.value, expected.at(who));
      if (random() % 8 == 0) expected.erase(who), t.remove(*e);
      else t.progressed(*e, now, gone);
    } else {
      ASSERT_FALSE(expected.contains(who));
      if (placed(t, who, now, i, alive, gone) != nullptr) expected[who] = i;
    }
    t.age(now, 2, gone);
    ASSERT_EQ(t.size(), expected.size());
    ASSERT_EQ(std::size_t(alive), expected.size());
  }
}

}  // namespace datagrams_peer_table_test
