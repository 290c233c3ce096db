// The totals of an owner: how its recipients have ended, each end once, and how long those took that completed.
#include "transactions.hpp"

namespace totals_test {

using namespace test;
using namespace test::transactions;

struct Totals : Transactions {
  std::uint64_t ended(recipient_state how) { return o.totals().transfers.ended[static_cast<std::size_t>(how)]; }
};

TEST_F(Totals, Each_end_counts_once_and_a_transfer_lasts_from_asking_to_completing) {
  at(4'294'967'000);  // the record of when one asked wraps around soon
  publish(counted(0));
  owner::peer a, b, c;
  say(a, ask(kind::describe, ada));
  at(4'294'968'500);
  EXPECT_EQ(complete(a, ada), status::ok);
  EXPECT_EQ(complete(a, ada), status::ok);
  EXPECT_EQ(ended(recipient_state::completed), 1u);
  EXPECT_EQ(o.totals().transfers.completed_ms, 1500u);
  EXPECT_EQ(confirm(b, bob, take_all(b, bob), 0).status, status::ok);
  EXPECT_EQ(complete(b, bob), status::ok);  // and now with a digest
  EXPECT_EQ(ended(recipient_state::completed_unverified), 1u);
  EXPECT_EQ(ended(recipient_state::completed), 1u);
  EXPECT_EQ(o.totals().transfers.completed(), 2u);
  for (std::size_t i = 0; i < tp::transfer_bounds_ms.size(); ++i) {
    const std::uint32_t bound = tp::transfer_bounds_ms[i];
    EXPECT_EQ(o.totals().transfers.within[i], bound == 2000 || bound == 100 ? 1u : 0u) << bound;  // 1500 ms and none
  }
  say(c, ask(kind::describe, eve));
  EXPECT_EQ(o.totals().active, 1u);
  ASSERT_TRUE(o.withdraw(id));
  EXPECT_EQ(o.totals().active, 0u);
  EXPECT_EQ(ended(recipient_state::unfinished), 1u);
  EXPECT_EQ(o.totals().transfers.completed(), 2u);
  const std::array expected{ada, bob};
  publish(named(expected), other);
  ASSERT_TRUE(o.withdraw(other));
  EXPECT_EQ(ended(recipient_state::absent), 2u);
}

TEST_F(Totals, One_that_vanishes_and_returns_has_asked_when_it_did_first) {
  auto t = counted(2);
  t.budgets.recipient_idle = 1000ms;
  publish(t);
  owner::peer a;
  say(a, ask(kind::describe, ada));
  at(1001);
  EXPECT_EQ(ended(recipient_state::vanished), 1u);
  at(3000);
  EXPECT_EQ(complete(a, ada), status::ok);
  EXPECT_EQ(o.totals().transfers.completed_ms, 3000u);
}

TEST_F(Totals, Whoever_takes_what_is_beside_a_reference_is_one_recipient) {
  publish(counted(1));
  ASSERT_TRUE(o.publish(m.source(), version, true, other, o.transaction_of(id), tp::detail::tells_nobody{}, true));
  owner::peer a, b;
  const auto recipients = [&] {
    const tp::owner_totals totals = o.totals();
    std::uint64_t all = 0;
    for (const std::uint64_t n : totals.recipients) all += n;
    return all;
  };
  say(a, ask(kind::describe, ada, other));
  EXPECT_EQ(recipients(), 0U);
  EXPECT_EQ(o.totals().active, 1U);
  say(b, ask(kind::describe, ada));
  EXPECT_EQ(recipients(), 1U);
  EXPECT_EQ(complete(b, ada), status::ok);
  EXPECT_EQ(recipients(), 1U);
}

TEST_F(Totals, A_look_over_the_tables_sees_every_row) {
  publish(counted(0));
  owner::peer a;
  say(a, ask(kind::describe, ada));
  const auto seen = o.look_over([](const auto& all) {
    std::size_t publications = 0, recipients = 0;
    for (const auto& p : all.publications.all()) publications += p.now == tp::publication::state::published;
    for (const auto& r : all.records.all()) recipients += bool(r.who) && all.is_of(r, all.publications.at(r.slot));
    return std::pair(publications, recipients);
  });
  EXPECT_EQ(seen, std::pair(std::size_t{1}, std::size_t{1}));
}

}  // namespace totals_test
