// A publication beside another, such as a difference that leads there: its recipients are those of the other.
#include "transactions.hpp"

namespace beside_test {

using namespace test;
using namespace test::transactions;

struct Beside : Transactions {
  owner::peer a, b;

  /// `id` as told, with three budgets of a second, and `other` beside it.
  void publish_with(tp::transaction_options how) {
    how.budgets.acquire = how.budgets.recipient_idle = how.budgets.transaction_idle = 1000ms;
    publish(how);
    ASSERT_TRUE(put_beside());
  }
  tp::result<tp::ref_id> put_beside() {
    return o.publish(m.source(), version, true, other, o.transaction_of(id), tp::detail::tells_nobody{}, true);
  }
  /// 100 bytes each 200 ms, until then.
  void take_slowly(owner::peer& l, std::uint64_t from, std::uint64_t until) {
    for (std::uint64_t now = from; now <= until; now += 200) {
      at(now);
      const auto r = pull(l, 0, 100, other);
      ASSERT_NE(o.pin(r), nullptr) << now;
      o.unpin(r, 100);
    }
  }
};

TEST_F(Beside, A_recipient_that_takes_it_has_asked_for_the_reference_and_is_not_idle_there) {
  const std::array who{ada};
  std::uint64_t now = 0;
  for (const auto& how : {counted(1), named(who)}) {
    at(now += 10'000);
    publish_with(how);
    at(now += 900);
    owner::peer l;
    describe(l, ada, other);
    take_slowly(l, now, now + 5000);
    at(now += 5000);
    EXPECT_EQ(state(ada), recipient_state::unseen);
    EXPECT_EQ(complete(l, ada, other), status::ok);
    EXPECT_FALSE(o.settled(id)) << "nobody has the reference yet";
    EXPECT_EQ(complete(l, ada), status::ok);
    EXPECT_TRUE(settled_as(1, verdict::completed, {.acquired = 1, .completed = 1, .unlisted = 0, .all = 1}));
    EXPECT_EQ(describe(l, eve, other).status, status::ended) << "it ends with the reference";
    settled.clear();
  }
}
TEST_F(Beside, A_recipient_that_vanishes_from_it_has_vanished) {
  const std::array who{ada, bob};
  std::uint64_t now = 0;
  for (const auto& how : {counted(2), named(who)}) {
    for (const bool took_it : {false, true}) {
      at(now += 10'000);
      publish_with(how);
      owner::peer l, k;
      if (took_it) complete(l, ada, other);
      else describe(l, ada, other);
      o.forget(l);
      EXPECT_EQ(complete(k, bob), status::ok);
      at(now += 900);
      EXPECT_EQ(settled.size(), 0u);
      at(now += 1000);
      EXPECT_TRUE(settled_as(1, verdict::failed, {.acquired = 2, .completed = 1, .vanished = 1, .all = 2}));
      settled.clear();
    }
  }
}
TEST_F(Beside, One_that_has_vanished_may_return_to_the_reference) {
  publish_with(counted(2));
  describe(a, ada, other);
  for (std::uint64_t now = 500; now <= 1500; now += 500) at(now), describe(b, bob);
  EXPECT_EQ(state(ada), recipient_state::vanished);
  EXPECT_EQ(complete(a, ada), status::ok);
  EXPECT_EQ(complete(b, bob), status::ok);
  EXPECT_TRUE(settled_as(1, verdict::completed, {.completed = 2, .vanished = 0}));
}
TEST_F(Beside, Nobody_has_to_take_it) {
  publish_with(counted(1));
  EXPECT_EQ(complete(a, ada), status::ok);
  EXPECT_TRUE(settled_as(1, verdict::completed, {.acquired = 1, .all = 1}));
  EXPECT_EQ(settled.back().references, 1u);
  EXPECT_EQ(put_beside().error(), tp::errc::unknown_reference) << "the reference has ended";
}
TEST_F(Beside, Its_end_is_not_that_of_the_reference) {
  publish_with(counted(1));
  confirm(a, ada, take_all(a, ada, other), version + 1, other);
  cancel(b, ada, take_all(b, ada, other), 0, other);
  ASSERT_TRUE(put_beside()) << "it is replaced";
  ASSERT_TRUE(o.withdraw(other));
  deliver();
  EXPECT_EQ(settled.size(), 0u);
  EXPECT_EQ(complete(a, ada), status::ok);
  EXPECT_TRUE(settled_as(1, verdict::completed));
}
TEST_F(Beside, It_ends_when_the_reference_is_withdrawn) {
  publish_with(counted(1));
  ASSERT_TRUE(o.withdraw(id));
  deliver();
  EXPECT_TRUE(settled_as(1, verdict::withdrawn));
  EXPECT_TRUE(o.settled(other));
}
TEST_F(Beside, Its_progress_is_not_told_and_its_recipients_take_no_room_from_the_references) {
  auto t = counted(16);  // there are as many records
  std::vector<tp::ref_id> told;
  const auto tell = [&](const tp::progress_event& e) { told.push_back(e.ref); };
  t.progress = tell;
  publish_with(t);
  for (const auto who : numbered(16)) {
    owner::peer l;
    EXPECT_EQ(complete(l, who, other), status::ok);
    EXPECT_EQ(complete(l, who), status::ok);
    tell_progress();
  }
  deliver();
  EXPECT_TRUE(settled_as(1, verdict::completed, {.acquired = 16, .completed = 16}));
  EXPECT_EQ(std::count(told.begin(), told.end(), id), 32);
  EXPECT_EQ(told.size(), 32u);
}

}  // namespace beside_test
