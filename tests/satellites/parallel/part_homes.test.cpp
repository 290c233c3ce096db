// The member that asks the owner for each part of a swarm's image, in random groups that change, with a clock of the
// test's own.
#include "support/random.hpp"

#include <tensorpull/satellites/parallel/detail/claimed_parts.hpp>
#include <tensorpull/satellites/parallel/swarm/detail/part_homes.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <vector>

namespace part_homes_test {

using namespace std::chrono_literals;
using namespace test;
namespace tp = tensorpull;
namespace swarm = tp::detail::swarm;
using homes = tp::detail::part_homes;
constexpr homes::time_point start{1000s};
constexpr std::uint8_t no_source = 0xff;

/// A group of members that know each other.
struct group {
  std::vector<std::uint64_t> numbers;
  std::vector<homes> members;
  std::size_t parts;

  group(generator& r, std::size_t size, std::size_t of_parts) : members(size), parts(of_parts) {
    for (std::size_t i = 0; i < size; ++i) numbers.push_back(r() | 1);
    for (std::size_t i = 0; i < size; ++i) {
      members[i].begin(start);
      members[i].cut(parts, 16, start);
      members[i].numbered(numbers[i]);
      for (std::size_t j = 0; j < size; ++j)
        if (i != j) members[i].seat(seat_of(i, j), numbers[j]);
    }
  }
  /// The seat that member i has for member j.
  static std::uint8_t seat_of(std::size_t i, std::size_t j) {
    return static_cast<std::uint8_t>(1 + (j < i ? j : j - 1));
  }
  std::vector<std::size_t> homes_of(std::size_t part) const {
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < members.size(); ++i)
      if (members[i].gives(homes::owner, part, false)) all.push_back(i);
    return all;
  }
  void tick(std::chrono::nanoseconds later) {
    for (homes& m : members) m.tick(start + later);
  }
};

TEST(PartHomes, Each_part_has_one_and_all_have_as_many) {
  generator r(1);
  for (std::size_t size = 1; size <= homes::seats; ++size)
    for (const std::size_t parts : {std::size_t{1}, std::size_t{40}, std::size_t{257}, homes::most_parts}) {
      const group g(r, size, parts);
      std::map<std::size_t, std::size_t> share;
      for (std::size_t part = 0; part < parts; ++part) {
        const auto at = g.homes_of(part);
        ASSERT_EQ(at.size(), 1u) << part << " of " << size;
        ++share[at[0]];
      }
      for (const auto& [i, n] : share) EXPECT_LE(n, (parts + size - 1) / size) << i;
    }
}
TEST(PartHomes, If_some_are_gone_each_part_has_one_again_and_they_share_it) {
  generator r(2);
  for (int round = 0; round < 30; ++round) {
    const std::size_t size = 2 + r.below(homes::seats - 1), gone = r.below(size);
    group g(r, size, homes::most_parts);
    for (std::size_t j = 0; j < gone; ++j)  // the first ones, of which each hears in some way
      for (std::size_t i = gone; i < size; ++i)
        if (r.below(2) == 0) g.members[i].drop(group::seat_of(i, j));
        else g.members[i].drop(group::seat_of(i, j)), g.members[i].drop(group::seat_of(i, j));
    std::map<std::size_t, std::size_t> share;
    for (std::size_t part = 0; part < g.parts; ++part) {
      std::size_t all = 0;
      for (std::size_t i = gone; i < size; ++i)
        if (g.members[i].gives(homes::owner, part, false)) ++all, ++share[i];
      ASSERT_EQ(all, 1u) << part;
    }
    for (const auto& [i, n] : share) EXPECT_LE(n, 2 * g.parts / (size - gone) + 16) << i;
  }
}
TEST(PartHomes, Whoever_knows_whom_somebody_asks_the_owner_for_each_part_that_nobody_has) {
  generator r(3);
  for (int round = 0; round < 30; ++round) {
    const std::size_t size = 1 + r.below(homes::seats);
    group g(r, size, 1 + r.below(homes::most_parts));
    // any of them may think that any other is gone, or not know it
    for (std::size_t i = 0; i < size; ++i)
      for (std::size_t j = 0; j < size; ++j)
        if (i != j && r.below(3) == 0) {
          if (r.below(2) == 0) g.members[i].drop(group::seat_of(i, j));
          else g.members[i].leave(group::seat_of(i, j));
        }
    g.tick(100s);  // nobody has told anything for long
    for (std::size_t part = 0; part < g.parts; ++part) EXPECT_GE(g.homes_of(part).size(), 1u) << part;
  }
}
TEST(PartHomes, One_that_tells_nothing_loses_its_parts_to_one_after_the_other) {
  generator r(4);
  group g(r, 8, homes::most_parts);
  std::size_t silent = 0;  // parts of member 0
  const auto asked = [&](std::size_t part) {
    std::size_t n = 0;
    for (std::size_t i = 1; i < 8; ++i) n += g.members[i].gives(homes::owner, part, false);
    return n;
  };
  std::vector<std::size_t> its;
  for (std::size_t part = 0; part < g.parts; ++part)
    if (asked(part) == 0) its.push_back(part), ++silent;
  EXPECT_EQ(silent, g.parts / 8);
  g.tick(400ms);
  for (const std::size_t part : its) EXPECT_EQ(asked(part), 0u) << "not yet";
  g.tick(600ms);
  for (const std::size_t part : its) EXPECT_EQ(asked(part), 1u) << "one of the others";
  g.tick(1100ms);
  for (const std::size_t part : its) EXPECT_EQ(asked(part), 2u) << "that one was silent, too";
}
TEST(PartHomes, One_that_tells_what_it_has_keeps_its_parts) {
  generator r(5);
  group g(r, 4, 64);
  for (int step = 1; step < 20; ++step) {
    g.tick(step * 300ms);
    swarm::parts of{.shift = 16};
    for (int p = 0; p < step; ++p) of.add(static_cast<std::size_t>(p));
    for (std::size_t i = 0; i < 4; ++i)
      for (std::size_t j = 0; j < 4; ++j)
        if (i != j) g.members[i].heard(group::seat_of(i, j), of);
    g.tick(step * 300ms + 60ms);
    for (std::size_t part = 0; part < 64; ++part) ASSERT_EQ(g.homes_of(part).size(), 1u) << step;
  }
}
TEST(PartHomes, One_that_tells_something_new_for_ever_loses_its_parts_too) {
  generator r(8);
  group g(r, 2, 64);
  homes& me = g.members[0];
  g.tick(400ms);
  std::vector<std::size_t> its;
  for (std::size_t part = 0; part < 64; ++part)
    if (me.gives(homes::owner, part, false)) me.right(homes::owner, part);
    else its.push_back(part);
  EXPECT_EQ(its.size(), 32u);
  swarm::parts of{.shift = 16};
  for (int step = 1; step < 30; ++step) {
    of.add(static_cast<std::size_t>(100 + step));
    me.heard(1, of);
    me.tick(start + 500ms + step * 100ms);
  }
  for (const std::size_t part : its) EXPECT_TRUE(me.gives(homes::owner, part, false)) << part;
}
TEST(PartHomes, Nobody_takes_back_that_it_has_a_part) {
  generator r(9);
  group g(r, 2, 64);
  homes& me = g.members[0];
  for (const std::size_t part : {3u, 4u, 3u}) {
    swarm::parts of{.shift = 16};
    of.add(part);
    me.heard(1, of);
  }
  EXPECT_TRUE(me.gives(1, 3, false));
  EXPECT_TRUE(me.gives(1, 4, false));
}
TEST(PartHomes, Members_are_asked_for_what_they_have_told_in_parts_of_the_same_length) {
  generator r(6);
  group g(r, 3, 20);
  homes& me = g.members[0];
  swarm::parts of{.shift = 16};
  of.add(3);
  me.heard(1, of);
  EXPECT_TRUE(me.gives(1, 3, false));
  EXPECT_FALSE(me.gives(1, 4, false));
  EXPECT_FALSE(me.gives(2, 3, false));
  of.shift = 17;
  me.heard(2, of);
  EXPECT_FALSE(me.gives(2, 3, false)) << "of another length";
  of.shift = 16;
  of.add(20), of.add(511);
  me.heard(2, of);
  EXPECT_TRUE(me.gives(2, 3, false));
  EXPECT_FALSE(me.gives(2, 20, false)) << "behind the image";
  me.refused(2), me.refused(2);
  EXPECT_TRUE(me.gives(2, 3, false));
  me.refused(2);
  EXPECT_FALSE(me.gives(2, 3, false)) << "it does not give what it tells";
  me.drop(1);
  EXPECT_FALSE(me.gives(1, 3, false)) << "it has lied";
}
TEST(PartHomes, What_it_has_counts_once_whoever_gave_it) {
  generator r(7);
  group g(r, 2, 3);
  homes& me = g.members[0];
  EXPECT_FALSE(me.has_all());
  for (const std::size_t part : {0u, 0u, 1u, 7u}) me.right(no_source, part);
  EXPECT_FALSE(me.has_all());
  me.right(homes::owner, 2);
  EXPECT_TRUE(me.has_all());
  for (std::size_t part = 0; part < 5; ++part) EXPECT_EQ(me.own().has(part), part < 3);
  me.begin(start + 5s);
  EXPECT_EQ(me.parts(), 0u);
  EXPECT_FALSE(me.has_all());
  EXPECT_EQ(me.number_of(1), 0u);
}
TEST(PartHomes, Nothing_is_asked_of_the_owner_before_the_first_list_or_its_time) {
  homes me;
  me.begin(start);
  me.cut(4, 16, start);
  EXPECT_FALSE(me.gives(homes::owner, 0, false));
  me.tick(start + 499ms);
  EXPECT_FALSE(me.gives(homes::owner, 0, false));
  me.tick(start + 500ms);
  EXPECT_TRUE(me.gives(homes::owner, 0, false)) << "there is no door";
}
TEST(PartHomes, A_member_is_asked_for_what_the_fewest_have) {
  homes me;
  me.begin(start);
  me.cut(40, 16, start);
  me.numbered(9);
  swarm::parts both{.shift = 16}, one{.shift = 16};
  both.add(3), both.add(4), one.add(3);
  me.seat(1, 5);
  me.seat(2, 6);
  me.heard(1, both);
  me.heard(2, one);
  EXPECT_GT(me.gives(1, 4, false), me.gives(1, 3, false));
  tp::detail::claimed_parts<homes::most_parts> parts;
  parts.begin(40 << 16, 1 << 16, 0, false);
  const auto next = [&](std::uint8_t source) {
    return parts.index_of(*parts.next_for(
        source, source, parts.size(), 1, [](std::uint8_t) { return true; },
        [&](const tp::detail::claimed_part& p) { return me.gives(source, parts.index_of(p), false); }));
  };
  EXPECT_EQ(next(1), 4u) << "others have part 3";
  EXPECT_EQ(next(2), 3u);
  me.drop(1);
  EXPECT_EQ(me.gives(2, 3, false), homes::seats - 1u) << "the other has gone";
  for (int i = 0; i < 3; ++i) me.refused(2);
  EXPECT_EQ(me.gives(2, 3, false), 0u);
}
TEST(PartHomes, The_fewer_lines_the_more_is_asked_for_ahead) {
  homes me;
  me.begin(start);
  me.cut(40, 16, start);
  EXPECT_EQ(me.most_claimed(1), 1u) << "others arrive";
  me.tick(start + 300ms);
  EXPECT_EQ(me.most_claimed(0), 16u);
  EXPECT_EQ(me.most_claimed(1), 16u);
  EXPECT_EQ(me.most_claimed(8), 2u);
  EXPECT_EQ(me.most_claimed(16), 1u);
}
TEST(ClaimedParts, It_is_known_how_often_a_part_was_taken_from_a_line) {
  tp::detail::claimed_parts<> parts;
  parts.begin(1 << 16, 1 << 16, 0, false);
  for (unsigned times = 0; times < 20; ++times) {
    const auto line = static_cast<std::uint8_t>(times % 2);
    ASSERT_NE(
        parts.next_for(line, line, 1, 1, [](std::uint8_t) { return true; }, [](const auto&) { return 1U; }), nullptr);
    EXPECT_FALSE(parts.free_slowest(7, [](const auto&) { return false; })) << "it has not had its time";
    EXPECT_TRUE(parts.free_slowest(7, [&](const tp::detail::claimed_part& p) {
      return p.freed == std::min(times, 16u) && p.line == line;
    })) << times;
  }
}

}  // namespace part_homes_test
