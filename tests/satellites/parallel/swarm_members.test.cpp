// The table of a swarm's members: the seats that they have, and the lists that they are given, against a model of it.
#include "support/random.hpp"
#include "transports/sample_models.hpp"

#include <tensorpull/satellites/parallel/swarm/members.hpp>

#include <map>
#include <set>

namespace swarm_members_test {

using namespace test;
namespace swarm = tp::detail::swarm;
using swarm::member_state;
using tp::swarm_origin, tp::swarm_reach;

swarm::address_text at(std::string_view text) { return *swarm::address_text::of(text); }
swarm::address_text numbered(std::uint64_t n) { return at("192.0.2.1:" + std::to_string(n)); }
constexpr tp::reference model_of(std::uint64_t n, std::uint64_t version = 7) { return {{1, n}, version, 0}; }

/// The same table in the plainest way: groups that are lists of members.
struct plain_member {
  std::uint64_t who, neighbourhood;
  swarm_reach reach;
  std::string address;
  member_state state;
  std::chrono::milliseconds asked;
};
struct plain_table {
  std::vector<std::vector<plain_member>> groups;
  std::vector<tp::reference> models;
  std::vector<std::uint64_t> changes;  // of each group

  explicit plain_table(std::size_t n) : groups(n), models(n), changes(n) {}

  std::pair<std::size_t, plain_member*> find(std::uint64_t who) {
    for (std::size_t g = 0; g < groups.size(); ++g)
      for (auto& m : groups[g])
        if (m.who == who) return {g, &m};
    return {0, nullptr};
  }
  void expire(std::size_t g, std::chrono::milliseconds now) {
    if (std::erase_if(groups[g], [&](const auto& m) { return now - m.asked > 60s; }) > 0) ++changes[g];
  }
  void leave(std::uint64_t who) {
    const auto [g, m] = find(who);
    if (m == nullptr) return;
    std::erase_if(groups[g], [&](const auto& x) { return x.who == who; });
    ++changes[g];
  }
  static std::map<std::pair<swarm_reach, std::uint64_t>, std::size_t> by_origin(const std::vector<plain_member>& g) {
    std::map<std::pair<swarm_reach, std::uint64_t>, std::size_t> n;
    for (const auto& m : g) ++n[{m.reach, m.neighbourhood}];
    return n;
  }
  /// The members that may be in one group.
  static bool is_fair(const std::vector<plain_member>& g) {
    if (g.size() > 16) return false;
    const auto n = by_origin(g);
    if (n.size() <= 1) return true;
    std::set<swarm_reach> reaches;
    for (const auto& [from, many] : n) {
      if (many > 4) return false;
      reaches.insert(from.first);
    }
    return reaches.size() == 1;
  }
  bool join(const tp::reference& model, const plain_member& m) {
    if (const auto [g, old] = find(m.who); old != nullptr) {
      if (models[g] == model) {
        if (old->address != m.address || old->state != m.state) ++changes[g];
        const std::uint64_t from = old->neighbourhood;
        const swarm_reach reach = old->reach;
        *old = m;
        old->neighbourhood = from, old->reach = reach;
        return true;
      }
      leave(m.who);
    }
    std::size_t same = 0;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      expire(g, m.asked);
      for (const auto& x : groups[g]) same += x.neighbourhood == m.neighbourhood && x.reach == m.reach;
    }
    if (same >= std::max<std::size_t>(16, groups.size() * 2)) return false;
    for (const bool empty : {false, true})
      for (std::size_t g = 0; g < groups.size(); ++g) {
        if (groups[g].empty() != empty || (!empty && !(models[g] == model))) continue;
        auto with = groups[g];
        with.push_back(m);
        if (!is_fair(with)) continue;
        groups[g] = std::move(with);
        models[g] = model;
        ++changes[g];
        return true;
      }
    return false;
  }
};

/// A table, its model, and what each member was told last.
template <std::size_t Groups>
struct twin {
  using table = tp::swarm_members<Groups>;
  struct told_of {
    std::uint64_t self = 0;
    std::uint32_t number = 0;
    std::size_t group = 0;
    std::uint64_t changes = 0;
  };
  explicit twin(std::uint64_t seed) : random(seed) {}

  generator random;
  std::unique_ptr<table> real = std::make_unique<table>(0xffff'fff0u);
  plain_table plain{Groups};
  std::chrono::milliseconds now{1000};
  std::map<std::uint64_t, typename table::seat> seats;  // whoever has ever had one
  std::map<std::uint64_t, told_of> told;
  std::uint64_t next = 1;

  void join(std::uint64_t who, const tp::reference& model, const swarm_origin& from, member_state state,
            std::uint64_t port) {
    const auto address = "192.0.2.1:" + std::to_string(port);
    const auto got = real->join(seats[who], model, from, at(address), state, now, random);
    const bool expected = plain.join(model, {who, from.neighbourhood, from.reach, address, state, now});
    ASSERT_EQ(bool(got), expected);
    if (got) seats[who] = got;
  }
  /// Asks for the list with the number that it had last, or with another.
  void ask(std::uint64_t who, bool knows) {
    const auto [g, me] = plain.find(who);
    std::optional<plain_member> mine;
    if (me != nullptr && now - me->asked <= 60s) mine = *me;
    if (me != nullptr) plain.expire(g, now);
    const auto before = told.find(who);
    const std::uint32_t known = knows && before != told.end() ? before->second.number : 0;
    swarm::list list;
    list.count = 9;
    real->list(seats[who], known, now, list);
    if (!mine) {
      EXPECT_TRUE(list.refused());
      EXPECT_EQ(list.self, 0u);
      EXPECT_EQ(list.count, 0u);
      told.erase(who);
      return;
    }
    ASSERT_FALSE(list.refused());
    ASSERT_NE(list.self, 0u);
    const bool same = known != 0 && before->second.self == list.self && before->second.changes == plain.changes[g];
    if (before != told.end() && before->second.self == list.self) {
      EXPECT_EQ(before->second.number == list.number, before->second.changes == plain.changes[g])
          << "a list has another number when something has changed, and only then";
    } else if (before != told.end()) {
      EXPECT_NE(before->second.number, list.number);
    }
    told[who] = {list.self, list.number, g, plain.changes[g]};
    if (same) {
      EXPECT_EQ(list.count, 0u) << "nothing is new";
      return;
    }
    std::multiset<std::pair<std::string, member_state>> has, wants;
    std::set<std::uint64_t> numbers{list.self};
    for (const auto& m : list.members()) {
      has.emplace(m.address.view(), m.state);
      EXPECT_TRUE(m.number != 0 && numbers.insert(m.number).second);
    }
    for (const auto& m : plain.groups[g])
      if (m.who != who) wants.emplace(m.address, m.state);
    EXPECT_EQ(has, wants);
    std::byte body[swarm::list::most_bytes];
    EXPECT_TRUE(swarm::decode_list({body, swarm::encode(list, body)}));
  }
  void leave(std::uint64_t who) {
    real->leave(seats[who]);
    plain.leave(who);
  }
  void withdraw(const tp::reference& model) {
    real->leave_all([&](const tp::reference& m) { return m == model; });
    for (std::size_t g = 0; g < Groups; ++g)
      if (plain.models[g] == model && !plain.groups[g].empty()) plain.groups[g].clear(), ++plain.changes[g];
  }
  void compare() {
    std::size_t members = 0, groups = 0;
    for (const auto& g : plain.groups) {
      members += g.size(), groups += !g.empty();
      EXPECT_TRUE(plain_table::is_fair(g));
    }
    EXPECT_EQ(real->members(), members);
    EXPECT_EQ(real->groups(), groups);
  }
};

/// A whole life of a table, from a seed.
template <std::size_t Groups>
void live(std::uint64_t seed, std::size_t steps) {
  twin<Groups> t(seed);
  generator& r = t.random;
  const std::uint64_t origins = 1 + r() % 24, models = 1 + r() % 4;
  for (std::size_t i = 0; i < steps && !testing::Test::HasFailure(); ++i) {
    const bool fresh = t.next == 1 || r() % 3 == 0;
    const std::uint64_t who = fresh ? t.next++ : 1 + r() % (t.next - 1);
    const auto [g, me] = t.plain.find(who);
    const std::uint64_t o = r() % origins;
    const swarm_origin from{o, static_cast<swarm_reach>(o % 7 == 0 ? o % 3 : 2)};
    const auto model = me != nullptr && r() % 8 != 0 ? t.plain.models[g] : model_of(r() % models, 1 + r() % 2);
    switch (r() % 16) {
      case 0: t.leave(who); break;
      case 1: t.now += std::chrono::milliseconds(r() % 20'000); break;
      case 2:
        if (r() % 8 == 0) t.withdraw(model);
        break;
      case 3:
      case 4:
      case 5: t.ask(who, r() % 2 == 0); break;
      default: t.join(who, model, from, static_cast<member_state>(r() % 2), r() % 3);
    }
    t.compare();
  }
  for (std::uint64_t who = 1; who < t.next; ++who) t.ask(who, true), t.leave(who);
  t.compare();
  EXPECT_EQ(t.real->members(), 0u);
  EXPECT_EQ(t.real->groups(), 0u);
}

TEST(SwarmMembers, Random_members_are_told_what_a_plain_table_says) {
  for (std::uint64_t seed = 1; seed <= 40 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    live<1>(seed, 300);
    live<3>(seed, 600);
    live<9>(seed, 1500);
  }
}

struct SwarmSeats : testing::Test {
  generator random{5};
  std::unique_ptr<tp::swarm_members<>> all = std::make_unique<tp::swarm_members<>>();
  std::chrono::milliseconds now{1};
  std::uint64_t port = 1;

  auto join(std::uint64_t neighbourhood, swarm_reach reach = swarm_reach::internet,
            const tp::reference& model = model_of(1)) {
    return all->join({}, model, {neighbourhood, reach}, numbered(port++ % 60'000), member_state::pulls, now, random);
  }
  swarm::list list(tp::swarm_members<>::seat s, std::uint32_t known = 0) {
    swarm::list out;
    all->list(s, known, now, out);
    return out;
  }
};

TEST_F(SwarmSeats, One_address_has_a_quarter_of_a_group_with_others_and_all_of_one_without) {
  const auto honest = join(1);
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(join(66));
  EXPECT_EQ(list(honest).count, 4u);
  EXPECT_EQ(all->groups(), 4u) << "4 here, then 16, 16 and 4 by themselves";
  const auto second = join(2);
  EXPECT_EQ(list(second).count, 5u) << "with the first";
}
TEST_F(SwarmSeats, A_group_that_one_address_has_filled_beyond_its_share_takes_nobody_else) {
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(join(66));
  EXPECT_EQ(list(join(1)).count, 0u);
}
TEST_F(SwarmSeats, Whoever_joins_from_one_address_leaves_seven_eighths_of_the_table_to_others) {
  std::size_t got = 0;
  for (int i = 0; i < 5000; ++i) got += bool(join(66));
  EXPECT_FALSE(all->full());
  EXPECT_EQ(got, 128u);
  for (std::uint64_t n = 0; n < 700; ++n) EXPECT_TRUE(join(1000 + n)) << n;
}
TEST_F(SwarmSeats, A_table_that_is_full_has_no_seat_until_one_is_free) {
  std::vector<tp::swarm_members<>::seat> seats;
  for (std::uint64_t n = 0; n < 64 * 16; ++n) seats.push_back(join(n));
  EXPECT_TRUE(std::all_of(seats.begin(), seats.end(), [](auto s) { return bool(s); }));
  EXPECT_FALSE(join(5000));
  EXPECT_FALSE(join(5000, swarm_reach::internet, model_of(2)));
  EXPECT_TRUE(all->full());
  all->leave(seats[333]);
  EXPECT_FALSE(join(5000, swarm_reach::internet, model_of(2))) << "no group is empty";
  const auto next = join(5000);
  EXPECT_EQ(next.place, seats[333].place);
  EXPECT_EQ(list(next).count, 15u);
  EXPECT_TRUE(list(seats[333]).refused()) << "its seat is another's";
  all->leave(seats[333]);
  EXPECT_FALSE(list(next).refused());
}
TEST_F(SwarmSeats, Models_and_versions_and_reaches_are_apart) {
  const auto a = join(1);
  join(2, swarm_reach::internet, model_of(2));
  join(2, swarm_reach::internet, model_of(1, 8));
  join(2, swarm_reach::machine);
  join(1, swarm_reach::site);
  EXPECT_EQ(list(a).count, 0u);
  EXPECT_EQ(all->groups(), 5u);
}
TEST_F(SwarmSeats, One_that_does_not_ask_for_a_minute_is_gone_and_one_that_asks_stays) {
  const auto silent = join(1);
  auto asks = join(2);
  now += 60s;
  asks = all->join(asks, model_of(1), {2, swarm_reach::internet}, numbered(7), member_state::pulls, now, random);
  const auto before = list(asks);
  EXPECT_EQ(before.count, 1u);
  now += 1ms;
  const auto after = list(asks, before.number);
  EXPECT_NE(after.number, before.number);
  EXPECT_EQ(after.count, 0u);
  EXPECT_EQ(after.self, before.self);
  EXPECT_TRUE(list(silent).refused());
}
TEST_F(SwarmSeats, Numbers_are_never_zero_and_those_of_a_group_differ_whatever_is_drawn) {
  std::uint64_t calls = 0;
  const auto poor = [&] { return calls++ / 3 % 20; };
  std::set<std::uint64_t> numbers;
  for (std::uint64_t n = 0; n < 16; ++n) {
    const auto s = all->join({}, model_of(1), {n, swarm_reach::internet}, numbered(n), member_state::pulls, now, poor);
    EXPECT_TRUE(numbers.insert(list(s).self).second);
  }
  EXPECT_EQ(numbers.count(0), 0u);
}
TEST_F(SwarmSeats, No_list_has_the_number_zero) {
  auto table = std::make_unique<tp::swarm_members<2>>(0xffff'fffdu);
  tp::swarm_members<2>::seat s;
  swarm::list out;
  for (int i = 0; i < 6; ++i) {
    s = table->join(s, model_of(1), {}, numbered(static_cast<std::uint64_t>(i)), member_state::pulls, now, random);
    table->list(s, 0, now, out);
    EXPECT_FALSE(out.refused());
  }
  EXPECT_EQ(out.number, 4u);
}
TEST_F(SwarmSeats, Values_that_are_no_seat_are_none) {
  for (const std::uint32_t place : {0u, 1u, 1024u, 1025u, ~0u}) {
    all->leave({place, 0});
    EXPECT_TRUE(list({place, 0}).refused()) << place;
    EXPECT_FALSE(all->holds({place, 0}, model_of(1)));
  }
  EXPECT_EQ(all->members(), 0u);
}

}  // namespace swarm_members_test
