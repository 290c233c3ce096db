// A reference of a transaction is replaced or withdrawn while the transaction goes on with others: what its recipients
// have done counts, whoever asks for the next version meanwhile, and what does not fit changes nothing.
#include "protocol/transactions.hpp"

#include <vector>

namespace replaced_references_test {

using namespace test;
using namespace test::transactions;

struct Replaced : Transactions {
  /// Of the transaction of both references.
  const tp::settlement* both() const {
    for (const auto& s : settled)
      if (s.references == 2) return &s;
    return nullptr;
  }
  void expect_both_completed(std::uint32_t n) {
    ASSERT_NE(both(), nullptr) << "it has not settled";
    EXPECT_EQ(both()->verdict, verdict::completed) << to_string(both()->verdict);
    EXPECT_EQ(both()->counts.completed, n);
    EXPECT_EQ(both()->counts.final(), n);
  }
};
constexpr tp::recipient_id only_ada[] = {ada};

TEST_F(Replaced, A_completion_of_the_version_before_counts_in_its_transaction) {
  for (const bool by_name : {false, true})
    for (const bool next_by_name : {false, true})
      for (const bool asks : {false, true}) {
        settled.clear();
        publish_both(by_name ? named(only_ada) : counted(1));
        owner::peer first, second;
        EXPECT_EQ(complete(first, ada), status::ok);
        publish(next_by_name ? named(only_ada) : counted(1));
        if (asks) describe(second, ada);
        EXPECT_EQ(complete(first, ada, other), status::ok);
        expect_both_completed(1);
        EXPECT_EQ(complete(second, ada), status::ok);
        EXPECT_TRUE(settled_as(2, verdict::completed, {.completed = 1}));
        o.forget(first), o.forget(second);
      }
}
TEST_F(Replaced, A_recipient_that_asks_for_the_next_version_too_counts_once_in_the_transaction_of_the_one_before) {
  auto how = counted(2);
  how.budgets.acquire = 1000ms;
  at(1);
  publish_both(how);
  owner::peer first, second;
  describe(first, ada);
  publish(counted(1));
  describe(second, ada);
  EXPECT_EQ(complete(first, ada, other), status::ok);
  at(1500);
  ASSERT_NE(both(), nullptr) << "nobody else has asked in time";
  EXPECT_EQ(both()->counts.acquired, 1u);
}
TEST_F(Replaced, A_named_recipients_share_of_the_version_before_is_not_forgotten) {
  at(1);
  publish_both(named(only_ada));
  owner::peer a;
  describe(a, ada);
  pull(a, 0, 8);
  publish(named(only_ada));
  ASSERT_TRUE(o.withdraw(other));
  deliver();
  ASSERT_NE(both(), nullptr);
  EXPECT_EQ(both()->counts.unfinished, 1u);
  EXPECT_EQ(both()->counts.absent, 0u);
}
TEST_F(Replaced, Each_version_before_counts_in_its_own_transaction) {
  const tp::ref_id third{5, 6};
  publish_both(counted(2));
  owner::peer a, b, c;
  EXPECT_EQ(complete(a, ada), status::ok);
  const auto t = o.open_transaction(counted(2));
  ASSERT_TRUE(o.publish(m.source(), version, true, id, *t) && o.publish(m.source(), version, true, third, *t));
  o.seal(*t);
  EXPECT_EQ(complete(a, ada), status::ok);
  EXPECT_EQ(complete(b, bob), status::ok);
  publish(counted(1));
  EXPECT_EQ(complete(c, bob), status::ok);
  EXPECT_EQ(complete(a, ada, third), status::ok);
  EXPECT_EQ(complete(b, bob, third), status::ok);
  EXPECT_TRUE(settled_as(2, verdict::completed, {.completed = 2}))
      << "the last version, and the transaction of the second";
  EXPECT_EQ(complete(a, ada, other), status::ok);
  EXPECT_EQ(complete(b, bob, other), status::ok);
  EXPECT_TRUE(settled_as(3, verdict::withdrawn, {.completed = 1, .unfinished = 1}))
      << "bob never had the first version";
}
TEST_F(Replaced, A_confirmation_that_comes_again_gets_its_answer_again) {
  publish_both(counted(1));
  owner::peer a, b;
  const auto nonce = take_all(a, ada);
  EXPECT_EQ(confirm(a, ada, nonce, version).status, status::ok);
  publish(counted(2));
  describe(b, ada);
  EXPECT_EQ(confirm(a, ada, nonce, version).status, status::ok);
  EXPECT_EQ(confirm(b, ada, nonce, version).status, status::ok);
  EXPECT_EQ(o.status_of(id)->completed, 0u);
  const auto first = take_all(b, ada);
  EXPECT_NE(first, nonce);
  EXPECT_EQ(confirm(b, ada, first, version).status, status::ok);
  EXPECT_EQ(o.status_of(id)->completed, 1u);
  tp::recipient_record all[8];
  EXPECT_EQ(o.recipients_of(id, all), 1u) << "one recipient";
}
TEST_F(Replaced, One_that_had_not_asked_for_a_withdrawn_reference_may_ask_for_the_others) {
  for (const bool replaced : {false, true}) {
    settled.clear();
    publish_both(named(only_ada));
    if (replaced) publish(counted(1));
    else EXPECT_TRUE(o.withdraw(id));
    deliver();
    EXPECT_TRUE(settled.empty());
    owner::peer a;
    EXPECT_EQ(complete(a, ada, other), status::ok);
    EXPECT_TRUE(settled_as(1, verdict::withdrawn, {.absent = 0, .unfinished = 1}));
    if (replaced) {
      EXPECT_TRUE(o.withdraw(id));
    }
    deliver();
  }
}

/// An owner with four records, all of which are of the first of two references.
struct Full : Transactions {
  tp::owner_storage<4, 4> small;
  generator dice{5};
  owner full{small, [this] { return dice(); }};
  owner::peer lines[4];
  static constexpr tp::recipient_id who[] = {ada, bob, eve, {14}};

  tp::pending_reply ask_it(owner::peer& from, kind k, tp::recipient_id as, tp::ref_id ref, std::uint64_t nonce = 0) {
    tp::frame q;
    q.kind = k, q.id = 7, q.ref = ref, q.recipient = as, q.length = 1u << 30, q.nonce = nonce;
    q.digest = version, q.flag = k == kind::confirm;
    tp::pending_reply r;
    full.handle(from, q, r);
    return r;
  }
  /// `done` recipients complete the first reference, the others have begun.
  void fill_with(std::size_t done) {
    const auto t = full.open_transaction(counted(2));
    ASSERT_TRUE(full.publish(m.source(), version, true, id, *t) && full.publish(m.source(), version, true, other, *t));
    full.seal(*t);
    for (std::size_t i = 0; i < 4; ++i) {
      ask_it(lines[i], kind::describe, who[i], id);
      const auto nonce = ask_it(lines[i], kind::pull, {}, id).nonce;
      if (i >= done) continue;
      ASSERT_EQ(ask_it(lines[i], kind::confirm, who[i], id, nonce).status, status::ok);
    }
  }
};
TEST_F(Full, A_publication_for_which_there_is_no_room_leaves_what_was_published_as_it_was) {
  const tp::recipient_id next[] = {{21}, {22}, {23}};
  fill_with(2);
  const auto refused = full.publish(m.source(), version, true, id, named(next));
  EXPECT_EQ(code_of(refused), errc::table_full);
  for (std::size_t i = 2; i < 4; ++i)
    EXPECT_EQ(ask_it(lines[i], kind::pull, {}, id).kind, kind::chunk) << "it is served on";
  EXPECT_TRUE(full.publish(m.source(), version, true, id, named(std::span(next).first(2)))) << "there is room for two";
  EXPECT_EQ(ask_it(lines[3], kind::describe, {23}, id).status, status::busy);
}
TEST_F(Full, A_publication_that_is_replaced_as_a_whole_makes_room) {
  const tp::recipient_id next[] = {{21}, {22}, {23}, {24}};
  fill_with(2);
  std::vector<tp::transaction_image> one(1), two(2);
  one[0] = {m.source(), {id, version, 0}};
  two[0] = one[0], two[1] = {m.source(), {other, version, 0}};
  const auto t = full.open_transaction(named(std::span(next).first(3)));
  EXPECT_EQ(code_of(full.publish_all(one, true, *t)), errc::table_full) << "two have completed the first";
  EXPECT_EQ(ask_it(lines[3], kind::pull, {}, id).kind, kind::chunk);
  full.cancel(*t);
  const auto both = full.open_transaction(named(std::span(next).first(2)));
  EXPECT_TRUE(full.publish_all(two, true, *both));
  EXPECT_EQ(ask_it(lines[0], kind::describe, {21}, other).kind, kind::description);
}

}  // namespace replaced_references_test
