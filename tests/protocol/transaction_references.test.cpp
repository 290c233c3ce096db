// Transactions of several references: budgets, ends and quorums are those of a recipient, not of one of its references.
#include "transactions.hpp"

namespace transaction_references_test {

using namespace test;
using namespace test::transactions;
using std::chrono::milliseconds;

using TransactionReferences = Transactions;

TEST_F(TransactionReferences, A_recipient_that_is_busy_with_one_is_not_absent_for_another) {
  const std::array who{ada};
  auto t = named(who);
  t.budgets.acquire = 1000ms;
  publish_both(t);
  owner::peer a;
  describe(a, ada);
  for (std::uint64_t now = 100; now <= 2000; now += 100) {
    const auto r = pull(a, 0, 8);
    ASSERT_NE(o.pin(r), nullptr);
    o.unpin(r, 8);
    at(now);
  }
  EXPECT_EQ(state(ada, other), recipient_state::unseen);
  EXPECT_EQ(complete(a, ada), status::ok);
  EXPECT_EQ(settled.size(), 0u) << "it is about to ask for the other one";
  EXPECT_EQ(complete(a, ada, other), status::ok);
  EXPECT_TRUE(settled_as(1, verdict::completed));
}

TEST_F(TransactionReferences, A_recipient_that_asks_for_nothing_is_absent_once) {
  const std::array who{ada, bob};
  auto t = named(who);
  t.budgets.acquire = 1000ms;
  publish_both(t);
  owner::peer a;
  EXPECT_EQ(complete(a, ada), status::ok);
  at(1001);
  EXPECT_EQ(state(bob), recipient_state::absent);
  EXPECT_EQ(state(bob, other), recipient_state::absent);
  EXPECT_EQ(complete(a, ada, other), status::ok);
  EXPECT_TRUE(settled_as(1, verdict::failed, {.completed = 1, .absent = 1, .all = 2}));
}

TEST_F(TransactionReferences, A_recipient_that_was_absent_and_asks_late_is_waited_for_again_in_all_of_them) {
  const std::array who{ada, bob};
  auto t = named(who);
  t.budgets.acquire = 1000ms;
  publish_both(t);
  owner::peer a, b;
  describe(a, ada);
  at(1001);
  EXPECT_EQ(complete(b, bob), status::ok);
  complete(a, ada), complete(a, ada, other);
  EXPECT_EQ(settled.size(), 0u) << "bob has the other one before it";
  EXPECT_EQ(complete(b, bob, other), status::ok);
  EXPECT_TRUE(settled_as(1, verdict::completed));
}

TEST_F(TransactionReferences, A_cancelled_one_ends_its_recipient_in_all_of_them) {
  const std::array who{ada};
  for (const bool by_name : {false, true}) {
    publish_both(by_name ? named(who) : counted(1));
    owner::peer a;
    const std::size_t before = settled.size();
    cancel(a, ada, describe(a, ada).nonce, 42);
    EXPECT_TRUE(settled_as(before + 1, verdict::failed, {.cancelled = 1, .all = 1})) << by_name;
    EXPECT_EQ(o.recipient_of(id, ada)->reason, 42u);
  }
}

TEST_F(TransactionReferences, Siblings_go_on_while_others_are_awaited_when_one_has_failed) {
  publish_both(counted(2));
  owner::peer a, b;
  EXPECT_EQ(confirm(b, bob, take_all(b, bob), version ^ 1).status, status::digest_mismatch);
  const auto nonce = describe(b, bob, other).nonce;
  EXPECT_EQ(complete(a, ada), status::ok);
  EXPECT_EQ(describe(b, bob, other).nonce, nonce) << "bob is served on";
  EXPECT_EQ(complete(b, bob, other), status::ok);
  EXPECT_EQ(settled.size(), 0u);
  EXPECT_EQ(complete(a, ada, other), status::ok);
  EXPECT_TRUE(settled_as(1, verdict::failed, {.completed = 1, .failed = 1, .all = 2}))
      << "a recipient counts once, as its worst";
}

TEST_F(TransactionReferences, Siblings_of_the_last_one_are_ended_with_it) {
  publish_both(counted(1));
  owner::peer a, elsewhere;
  const auto under_way = describe(elsewhere, ada, other).nonce;
  EXPECT_NE(under_way, 0u);
  cancel(a, ada, describe(a, ada).nonce);
  ASSERT_EQ(settled.size(), 1u);
  EXPECT_EQ(settled[0].counts.cancelled, 1u);
  EXPECT_EQ(pull(elsewhere, 0, 8, other).status, status::ended);
}

TEST_F(TransactionReferences, A_recipient_that_cancelled_may_return_and_completes_with_both) {
  publish_both(counted(2));
  owner::peer a, b;
  cancel(a, ada, describe(a, ada).nonce);
  EXPECT_EQ(complete(a, ada, other), status::ok);
  EXPECT_EQ(complete(a, ada), status::ok);
  EXPECT_EQ(settled.size(), 0u);
  EXPECT_EQ(complete(b, bob), status::ok);
  EXPECT_EQ(complete(b, bob, other), status::ok);
  EXPECT_TRUE(settled_as(1, verdict::completed));
}

TEST_F(TransactionReferences, A_recipient_that_vanishes_does_so_for_all_of_them_and_returns_to_all_of_them) {
  const std::array who{ada, bob};
  for (const bool by_name : {false, true}) {
    auto t = by_name ? named(who) : counted(2);
    t.budgets.recipient_idle = 1000ms;
    t.budgets.transaction_idle = {};
    const std::uint64_t start = by_name ? 100'000 : 0;
    at(start);
    publish_both(t);
    const std::size_t before = settled.size();
    owner::peer a, a2, b;
    describe(a, ada), describe(a2, ada, other);
    complete(b, bob), complete(b, bob, other);
    at(start + 500);
    const auto r = pull(a2, 0, 1000, other);
    ASSERT_NE(o.pin(r), nullptr);
    o.unpin(r, 1000);
    at(start + 600);
    at(start + 1400);
    EXPECT_EQ(state(ada), recipient_state::acquired) << "it was busy with the other one";
    if (!by_name) {
      at(start + 1700);
      ASSERT_EQ(settled.size(), before + 1);
      EXPECT_EQ(settled.back().counts.vanished, 1u);
      EXPECT_EQ(settled.back().counts.completed, 1u);
      continue;
    }
    owner::peer late;
    EXPECT_EQ(complete(late, ada), status::ok);
    EXPECT_EQ(settled.size(), before);
    EXPECT_EQ(complete(late, ada, other), status::ok);
    EXPECT_EQ(settled.back().verdict, verdict::completed);
  }
}

TEST_F(TransactionReferences, A_recipient_that_takes_what_stands_beside_is_not_late) {
  const std::array who{ada};
  std::uint64_t start = 0;
  for (const bool by_name : {false, true})
    for (const bool returns : {true, false})
      for (const bool asked : {false, true}) {
        at(start += 1'000'000);
        auto t = by_name ? named(who) : counted(1);
        t.budgets = {
            .acquire = 1000ms, .recipient_idle = 1000ms, .transaction_idle = 1000ms, .least_bytes_per_second = 0};
        publish(t);
        ASSERT_TRUE(
            o.publish(m.source(), version, true, other, o.transaction_of(id), tp::detail::tells_nobody{}, true));
        const std::size_t before = settled.size();
        owner::peer first, a;
        if (asked) describe(first, ada);
        std::uint64_t now = start;
        for (const std::uint32_t offset : {0U, 8U, 16U}) {
          at(now += 900);
          const auto r = offset == 0 ? describe(a, ada, other) : pull(a, offset, 8, other);
          if (offset != 0) {
            ASSERT_NE(o.pin(r), nullptr);
            o.unpin(r, 8);
          }
          at(now);
        }
        at(now += 900);
        ASSERT_EQ(settled.size(), before) << "it was taking the difference";
        if (returns) complete(first, ada);
        else at(now + 200);
        ASSERT_EQ(settled.size(), before + 1);
        EXPECT_EQ(settled.back().verdict, returns ? verdict::completed : verdict::failed);
        ASSERT_TRUE(o.withdraw(other));
        deliver();
      }
}

TEST_F(TransactionReferences, A_recipient_that_returns_to_one_is_waited_for_in_the_other) {
  auto t = counted(2);
  t.budgets.recipient_idle = 1000ms;
  publish_both(t);
  owner::peer a, a2, b;
  describe(a, ada), describe(a2, ada, other);
  at(1001);
  EXPECT_EQ(state(ada), recipient_state::vanished);
  EXPECT_EQ(state(ada, other), recipient_state::vanished);
  complete(b, bob), complete(a, ada);
  complete(b, bob, other);
  EXPECT_EQ(settled.size(), 0u);
  EXPECT_EQ(complete(a2, ada, other), status::ok);
  EXPECT_TRUE(settled_as(1, verdict::completed));
}

TEST_F(TransactionReferences, A_recipient_that_was_late_for_one_and_asks_for_a_later_one_is_waited_for_in_both) {
  const std::array who{ada};
  std::uint64_t start = 0;
  for (const bool had_asked : {false, true}) {
    at(start += 1'000'000);
    auto t = named(who);
    t.budgets = {.acquire = 1000ms, .recipient_idle = 1000ms, .transaction_idle = {}, .least_bytes_per_second = 0};
    const auto both = o.open_transaction(t);
    ASSERT_TRUE(both);
    publish(*both);
    owner::peer a, later;
    if (had_asked) describe(a, ada);
    at(start + 1001);
    EXPECT_EQ(state(ada), had_asked ? recipient_state::vanished : recipient_state::absent);
    publish(*both, other);
    const std::size_t before = settled.size();
    describe(later, ada, other);
    o.seal(*both);
    deliver();
    EXPECT_EQ(settled.size(), before) << "it is under way";
    EXPECT_EQ(complete(later, ada, other), status::ok);
    EXPECT_EQ(complete(a, ada), status::ok);
    EXPECT_TRUE(settled_as(before + 1, verdict::completed, {.acquired = 1, .completed = 1, .all = 1}));
  }
}

TEST_F(TransactionReferences, A_recipient_that_has_one_and_never_asks_for_the_other_vanishes) {
  const std::array who{ada, bob};
  for (const bool by_name : {false, true}) {
    const std::uint64_t start = by_name ? 1'000'000 : 0;
    at(start);
    auto t = by_name ? named(who) : counted(2);
    t.budgets.recipient_idle = 1000ms;
    t.budgets.transaction_idle = {};
    publish_both(t);
    const std::size_t before = settled.size();
    owner::peer a, b;
    complete(b, bob), complete(b, bob, other);
    complete(a, ada);
    at(start + 1000);
    EXPECT_EQ(settled.size(), before);
    at(start + 1001);
    ASSERT_EQ(settled.size(), before + 1) << by_name;
    EXPECT_EQ(settled.back().counts.completed, 1u);
    EXPECT_EQ(settled.back().counts.vanished, 1u);
  }
}

TEST_F(TransactionReferences, The_default_budgets_end_every_transaction) {
  const std::array who{ada};
  publish(counted(1));
  at(600'000);
  EXPECT_EQ(settled.size(), 0u);
  at(600'001);
  ASSERT_TRUE(settled_as(1, verdict::failed, {.absent = 1})) << "nobody asked";
  publish(counted(0));
  at(1'300'000);
  ASSERT_TRUE(settled_as(2, verdict::uncertified));
  for (const bool by_name : {false, true}) {
    const std::uint64_t start = by_name ? 4'000'000 : 2'000'000;
    const std::size_t before = settled.size();
    at(start);
    publish_both(by_name ? named(who) : counted(1));
    owner::peer a;
    describe(a, ada);
    o.forget(a);
    at(start + 600'001);
    ASSERT_EQ(settled.size(), before + 1);
    EXPECT_EQ(settled.back().counts.vanished, 1u);
  }
  auto for_ever = counted(1);
  for_ever.budgets.transaction_idle = {};
  publish(for_ever);
  at(std::uint64_t{1} << 40);
  EXPECT_EQ(settled.size(), 4u) << "0 switches it off";
}

TEST_F(TransactionReferences, An_identity_and_a_number_that_disagree_are_refused) {
  EXPECT_EQ(code_of(o.open_transaction(counted(2, 3))), errc::invalid_argument);
  EXPECT_EQ(code_of(o.publish(m.source(), version, true, id, counted(2, 3))), errc::invalid_argument);
  EXPECT_TRUE(o.open_transaction(counted(0, 3))) << "of an unknown number any number may be enough";
  const std::array who{ada, bob};
  auto t = named(who);
  t.recipients = 3;
  const auto other_number = o.open_transaction(t);
  EXPECT_EQ(code_of(other_number), errc::invalid_argument);
  EXPECT_EQ(other_number.error().name.view(), "recipients");
  t.recipients = 2;
  t.least = 3;
  const auto too_many = o.open_transaction(t);
  ASSERT_FALSE(too_many);
  EXPECT_EQ(too_many.error().name.view(), "least");
  t.least = 2;
  EXPECT_TRUE(o.open_transaction(t)) << "the same number again says nothing new";
}

TEST_F(TransactionReferences, More_recipients_than_the_number_are_served_until_as_many_have_ended) {
  publish_both(counted(1));
  owner::peer a, b;
  describe(a, ada);
  complete(b, bob);
  EXPECT_EQ(settled.size(), 0u);
  complete(b, bob, other);
  EXPECT_TRUE(settled_as(1, verdict::completed, {.acquired = 2, .completed = 1, .unfinished = 1}))
      << "ada came too late";
  EXPECT_EQ(pull(a, 0, 8).status, status::ended);
}

TEST_F(TransactionReferences, One_recipient_under_two_numbers_is_two_and_of_those_named_only_one) {
  publish_both(counted(2));
  owner::peer a, b;
  complete(a, ada), complete(b, eve, other);
  EXPECT_EQ(settled.size(), 0u) << "each has one of them";
  complete(b, eve), complete(a, ada, other);
  ASSERT_EQ(settled.size(), 1u);
  EXPECT_EQ(settled[0].counts.completed, 2u) << "an owner cannot know that they are one";
  const std::array who{ada};
  publish_both(named(who));
  complete(b, eve), complete(b, eve, other);
  EXPECT_EQ(settled.size(), 1u);
  complete(a, ada), complete(a, ada, other);
  ASSERT_EQ(settled.size(), 2u);
  EXPECT_EQ(settled[1].counts.completed, 1u);
  EXPECT_EQ(settled[1].counts.unlisted, 1u);
  EXPECT_EQ(settled[1].counts.acquired, 2u);
}

TEST_F(TransactionReferences, Those_who_asked_are_counted_in_each_transaction_anew) {
  for (int i = 0; i < 3; ++i) {
    publish_both(counted(1));
    owner::peer a;
    EXPECT_EQ(complete(a, ada), status::ok);
    EXPECT_EQ(complete(a, ada, other), status::ok);
    ASSERT_EQ(settled.size(), static_cast<std::size_t>(i) + 1);
    EXPECT_EQ(settled.back().counts.acquired, 1u);
    EXPECT_EQ(o.status_of(other)->acquired, 1u);
  }
}

TEST_F(TransactionReferences, A_published_transaction_is_not_cancelled) {
  const auto t = o.open_transaction(counted(1));
  publish(*t);
  o.cancel(*t);
  o.seal(*t);
  owner::peer a;
  complete(a, ada);
  EXPECT_TRUE(settled_as(1, verdict::completed));
}

TEST_F(TransactionReferences, One_after_the_other_may_join_as_long_as_it_is_open) {
  const auto t = o.open_transaction(counted(2));
  owner::peer a, b;
  for (const tp::ref_id ref : {id, other, tp::ref_id{5, 6}}) {
    publish(*t, ref);
    EXPECT_EQ(complete(a, ada, ref), status::ok);
    EXPECT_EQ(complete(b, bob, ref), status::ok);
    at(o.settled(id) ? 0 : 700'000 + ref.high * 700'000);
    EXPECT_EQ(settled.size(), 0u) << "an open one is in the program's hands";
  }
  o.seal(*t);
  deliver();
  ASSERT_EQ(settled.size(), 1u);
  EXPECT_EQ(settled[0].references, 3u);
  EXPECT_EQ(settled[0].verdict, verdict::completed);
  EXPECT_EQ(settled[0].counts.completed, 2u);
}

TEST_F(TransactionReferences, Idle_time_begins_when_it_is_sealed) {
  const auto t = o.open_transaction(counted(1));
  publish(*t);
  at(1'000'000);
  o.seal(*t);
  at(1'600'000);
  EXPECT_EQ(settled.size(), 0u);
  at(1'600'001);
  EXPECT_EQ(settled.size(), 1u);
}

TEST_F(TransactionReferences, One_that_joins_later_undoes_no_cancellation_and_every_completion) {
  const auto t = o.open_transaction(counted(2));
  publish(*t);
  owner::peer a, b;
  complete(a, ada);
  cancel(b, bob, describe(b, bob).nonce);
  publish(*t, other);
  o.seal(*t);
  deliver();
  EXPECT_EQ(settled.size(), 0u) << "ada has not taken the other one";
  complete(a, ada, other);
  ASSERT_EQ(settled.size(), 1u);
  EXPECT_EQ(settled[0].counts.completed, 1u);
  EXPECT_EQ(settled[0].counts.cancelled, 1u);
}

TEST_F(TransactionReferences, A_quorum_is_of_recipients_that_have_all_of_them) {
  for (const bool same : {false, true}) {
    auto t = counted(2, 1);
    t.budgets.transaction_idle = 1000ms;
    publish_both(t);
    owner::peer a, b;
    complete(a, ada);
    complete(b, same ? ada : bob, other);
    at(same ? 4000 : 2000);
    ASSERT_EQ(settled.size(), same ? 2u : 1u);
    EXPECT_EQ(settled.back().verdict, same ? verdict::quorum : verdict::failed);
    EXPECT_EQ(settled.back().counts.completed, same ? 1u : 0u);
    EXPECT_EQ(settled.back().counts.final(), 2u);
  }
  auto unknown = counted(0, 1);
  unknown.budgets.transaction_idle = 1000ms;
  publish_both(unknown);
  owner::peer a, b;
  complete(b, bob, other), complete(a, ada), complete(a, ada, other);
  at(10'000);
  EXPECT_EQ(settled.back().verdict, verdict::quorum);
  EXPECT_EQ(settled.back().counts.completed, 1u);
  EXPECT_EQ(settled.back().counts.acquired, 2u) << "bob, who asked for the second one alone, too";
  EXPECT_EQ(settled.back().counts.unfinished, 1u);
}

TEST_F(TransactionReferences, A_withdrawn_one_ends_nobody_who_has_another_to_go_and_settles_with_the_last) {
  publish_both(counted(2));
  owner::peer a, b;
  complete(a, ada, other);
  describe(b, bob, other);
  ASSERT_TRUE(o.withdraw(id));
  deliver();
  EXPECT_EQ(settled.size(), 0u) << "bob is under way";
  EXPECT_EQ(complete(b, bob, other), status::ok);
  EXPECT_TRUE(settled_as(1, verdict::withdrawn, {.completed = 0, .unfinished = 2}))
      << "nothing is left that anybody could wait for";
}

TEST_F(TransactionReferences, When_a_reference_is_withdrawn_after_all_have_the_other_it_settles_at_once) {
  publish_both(counted(1));
  owner::peer a;
  complete(a, ada, other);
  ASSERT_TRUE(o.withdraw(id));
  deliver();
  EXPECT_TRUE(settled_as(1, verdict::withdrawn));
}

TEST_F(TransactionReferences, A_recipient_that_confirms_over_two_connections_counts_once) {
  publish_both(counted(2));
  owner::peer a, again;
  const auto nonce = take_all(a, ada);
  EXPECT_EQ(take_all(again, ada), nonce);
  EXPECT_EQ(confirm(a, ada, nonce, version).status, status::ok);
  EXPECT_EQ(confirm(again, ada, nonce, version).status, status::ok);
  EXPECT_EQ(confirm(a, ada, nonce, version).status, status::ok);
  complete(again, ada, other), complete(a, ada, other);
  EXPECT_EQ(settled.size(), 0u);
  EXPECT_EQ(o.status_of(id)->completed, 1u);
}

TEST_F(TransactionReferences, A_confirmation_and_a_withdrawal_are_one_end_whichever_comes_first) {
  for (const bool confirmed_first : {false, true}) {
    publish(counted(1));
    owner::peer a;
    const std::size_t before = settled.size();
    const auto nonce = take_all(a, ada);
    if (confirmed_first) {
      EXPECT_EQ(confirm(a, ada, nonce, version).status, status::ok);
    }
    EXPECT_TRUE(o.withdraw(id));
    deliver();
    if (!confirmed_first) {
      EXPECT_EQ(confirm(a, ada, nonce, version).status, status::withdrawn);
    }
    deliver();
    EXPECT_TRUE(settled_as(before + 1, confirmed_first ? verdict::completed : verdict::withdrawn, {.all = 1}));
  }
}

TEST_F(TransactionReferences, The_end_of_the_owner_settles_each_transaction_once_with_what_there_was) {
  publish_both(counted(2, 1));
  const auto open = o.open_transaction(counted(1));
  ASSERT_TRUE(o.publish(m.source(), version, true, {5, 6}, *open));
  owner::peer a, b;
  complete(a, ada), complete(a, ada, other);
  describe(b, bob);
  o.withdraw_all();
  deliver();
  ASSERT_EQ(settled.size(), 2u);
  EXPECT_EQ(settled[0].verdict, verdict::quorum);
  EXPECT_EQ(settled[0].counts.unfinished, 1u);
  EXPECT_EQ(settled[1].verdict, verdict::withdrawn);
  EXPECT_EQ(settled[1].counts.absent, 1u);
  EXPECT_EQ(pull(b, 0, 8).status, status::withdrawn);
  o.withdraw_all();
  deliver();
  EXPECT_EQ(settled.size(), 2u);
}

}  // namespace transaction_references_test
