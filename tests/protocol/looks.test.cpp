// Recipients that only look at what is there, and take back that they asked: over one connection or two, late and more
// than once. What they take back is what that connection asked, and nothing else.
#include "transactions.hpp"

namespace looks_test {

using namespace test;
using namespace test::transactions;

struct Looks : Transactions {
  void looked(owner::peer& l, std::uint64_t nonce, tp::recipient_id who = ada, tp::ref_id ref = id) {
    auto q = ask(kind::cancel, who, ref);
    q.nonce = nonce;
    q.status = status::looked;
    tp::pending_reply r;
    EXPECT_FALSE(o.handle(l, q, r)) << "a cancellation has no answer";
    deliver();
  }
  /// One recipient, expected by its name or by a number, and another that keeps the transaction open.
  void publish_for(bool by_name, tp::ref_id as = id) {
    static constexpr std::array both{ada, bob};
    publish(by_name ? named(both) : counted(2), as);
  }
  tp::publication_status counts(tp::ref_id ref = id) { return *o.status_of(ref); }
  /// It has completed, once, and nothing else was counted.
  void expect_completed_once() {
    EXPECT_EQ(state(ada), recipient_state::completed);
    EXPECT_EQ(counts().acquired, 1u);
    EXPECT_EQ(counts().completed, 1u);
    EXPECT_EQ(counts().final(), 1u);
    EXPECT_EQ(counts().unlisted, 0u);
    EXPECT_EQ(settled.size(), 0u) << "another is waited for";
  }
  /// Ends what a round has published.
  void next() {
    ASSERT_TRUE(o.withdraw(id));
    deliver();
    settled.clear();
  }
};

constexpr std::uint32_t all = 1u << 30;

TEST_F(Looks, A_late_word_of_an_older_connection_takes_nothing_from_the_newer_one) {
  for (const bool by_name : {true, false})
    for (const int taken : {0, 1, 2}) {
      SCOPED_TRACE(testing::Message() << "by name " << by_name << ", taken " << taken);
      publish_for(by_name);
      owner::peer older, newer;
      const auto nonce = describe(older, ada).nonce;
      pull(older, 0, 64);
      EXPECT_EQ(describe(newer, ada).nonce, nonce);
      if (taken > 0) pull(newer, 0, taken == 1 ? 100 : all);
      for (int copies = 0; copies < 3; ++copies) looked(older, nonce);  // over datagrams it is said three times
      EXPECT_EQ(state(ada), taken == 2 ? recipient_state::provisional : recipient_state::acquired);
      EXPECT_EQ(counts().acquired, 1u);
      if (taken < 2) {
        EXPECT_EQ(pull(newer, 0, all).nonce, nonce) << "it is served on as it was";
      }
      EXPECT_EQ(confirm(newer, ada, nonce, version).status, status::ok);
      looked(older, nonce);
      o.forget(older), o.forget(newer);
      EXPECT_EQ(counts().lost, 0u);
      expect_completed_once();
      next();
    }
}

TEST_F(Looks, A_late_word_of_an_older_connection_takes_nothing_back_when_the_newer_one_has_gone) {
  for (const bool by_name : {true, false}) {
    SCOPED_TRACE(by_name);
    publish_for(by_name);
    owner::peer older, newer, again;
    const auto nonce = describe(older, ada).nonce;
    describe(newer, ada), pull(newer, 0, all);
    o.forget(newer);
    looked(older, nonce);
    EXPECT_EQ(counts().lost, 1u);
    EXPECT_EQ(counts().acquired, 1u);
    EXPECT_EQ(confirm(again, ada, nonce, version).status, status::ok) << "it has everything, and only confirms";
    expect_completed_once();
    next();
  }
}

TEST_F(Looks, One_that_cannot_take_what_is_published_may_come_again_and_progress_tells_why) {
  static constexpr std::array who{ada};
  for (const bool by_name : {true, false})
    for (const status why : {status::schema_mismatch, status::unsupported}) {
      SCOPED_TRACE(testing::Message() << "by name " << by_name << ", status " << static_cast<int>(why));
      std::vector<tp::progress_event> told;
      const auto tell = [&](const tp::progress_event& e) { told.push_back(e); };
      auto how = by_name ? named(who) : counted(1);
      how.progress = tell;
      publish(how);
      owner::peer first, again;
      const tp::recipient_id as = by_name ? ada : tp::recipient_id{};
      auto q = ask(kind::cancel, as);
      q.nonce = describe(first, as).nonce;
      q.status = why;
      for (int copies = 0; copies < 3; ++copies) say(first, q);
      EXPECT_EQ(settled.size(), 0u);
      EXPECT_EQ(counts().acquired, 0u);
      tell_progress();
      ASSERT_EQ(told.size(), 1u);
      EXPECT_EQ(told[0].phase, tp::progress_phase::failed);
      EXPECT_EQ(told[0].code, to_errc(why));
      EXPECT_EQ(told[0].recipient, as);
      EXPECT_EQ(complete(again, as), status::ok);
      tell_progress();
      deliver();
      EXPECT_TRUE(settled_as(1, verdict::completed, {.completed = 1, .all = 1}));
      settled.clear();
    }
}

TEST_F(Looks, Why_one_cannot_take_what_is_published_is_not_left_untold_at_the_end) {
  std::vector<tp::progress_event> told;
  const auto tell = [&](const tp::progress_event& e) { told.push_back(e); };
  auto how = counted(1);
  how.progress = tell;
  publish(how);
  owner::peer first;
  auto q = ask(kind::cancel, {});
  q.nonce = describe(first, {}).nonce;
  q.status = status::schema_mismatch;
  say(first, q);
  ASSERT_TRUE(o.withdraw(id));
  deliver();
  EXPECT_EQ(settled.size(), 0u);
  tell_progress();
  EXPECT_EQ(told.size(), 1u);
  deliver();
  EXPECT_EQ(settled.size(), 1u);
}

TEST_F(Looks, One_that_cannot_take_what_is_published_has_ended_if_there_is_no_other_peer) {
  o.has_one_peer();
  publish(counted(1));
  owner::peer only;
  auto q = ask(kind::cancel, {});
  q.nonce = describe(only, {}).nonce;
  q.status = status::schema_mismatch;
  say(only, q);
  EXPECT_TRUE(settled_as(1, verdict::failed, {.cancelled = 1}));
}

TEST_F(Looks, The_newer_connection_looks_while_the_older_one_is_open) {
  for (const bool by_name : {true, false})
    for (const bool goes_on : {true, false}) {
      SCOPED_TRACE(testing::Message() << "by name " << by_name << ", goes on " << goes_on);
      publish_for(by_name);
      owner::peer older, newer;
      const auto nonce = describe(older, ada).nonce;
      pull(older, 0, 64);
      EXPECT_EQ(describe(newer, ada).nonce, nonce);
      looked(newer, nonce);
      EXPECT_EQ(counts().acquired, 0u) << "the older one may be gone, and nobody has noticed";
      EXPECT_EQ(state(ada), recipient_state::unseen);
      if (goes_on) {
        EXPECT_EQ(pull(older, 64, all).nonce, nonce) << "its machine takes no other";
        EXPECT_EQ(counts().acquired, 1u);
        looked(newer, nonce);  // another copy
        EXPECT_EQ(counts().acquired, 1u);
        EXPECT_EQ(confirm(older, ada, nonce, version).status, status::ok);
        expect_completed_once();
      } else {
        o.forget(older), o.forget(newer);
        EXPECT_EQ(counts().lost, 0u);
        EXPECT_EQ(counts().final(), 0u);
        EXPECT_EQ(settled.size(), 0u);
      }
      next();
    }
}

TEST_F(Looks, The_newer_connection_looks_while_the_older_one_has_everything_and_has_not_confirmed) {
  for (const bool by_name : {true, false}) {
    SCOPED_TRACE(by_name);
    publish_for(by_name);
    owner::peer older, newer;
    auto nonce = take_all(older, ada);
    describe(newer, ada);
    looked(newer, nonce);
    EXPECT_EQ(counts().acquired, 0u);
    if (!by_name) {  // its record is gone: it takes the last byte under another nonce, and nothing else again
      EXPECT_EQ(confirm(older, ada, nonce, version).status, status::bad_request);
      describe(older, ada);
      nonce = pull(older, m.schema().image_bytes - 1, 1).nonce;
    }
    EXPECT_EQ(confirm(older, ada, nonce, version).status, status::ok);
    expect_completed_once();
    next();
  }
}

TEST_F(Looks, Two_lines_that_were_not_needed_say_so_in_any_order) {
  for (const bool by_name : {true, false})
    for (const bool last_first : {true, false}) {
      SCOPED_TRACE(testing::Message() << "by name " << by_name << ", last first " << last_first);
      publish_for(by_name);
      owner::peer one, two;
      const auto nonce = describe(one, ada).nonce;
      describe(two, ada);
      pull(one, 0, 64), pull(two, 64, 64);
      looked(last_first ? two : one, nonce), looked(last_first ? one : two, nonce);
      EXPECT_EQ(counts().acquired, 0u);
      EXPECT_EQ(counts().cancelled, 0u);
      EXPECT_EQ(state(ada), recipient_state::unseen);
      EXPECT_EQ(complete(one, ada), status::ok);
      expect_completed_once();
      next();
    }
}

TEST_F(Looks, Copies_of_what_was_said_count_for_nothing_before_and_after_the_pull_that_follows) {
  for (const bool by_name : {true, false}) {
    SCOPED_TRACE(by_name);
    publish_for(by_name);
    owner::peer a;
    const auto nonce = describe(a, ada).nonce;
    pull(a, 0, 64);
    for (int copies = 0; copies < 3; ++copies) looked(a, nonce);
    EXPECT_EQ(state(ada), recipient_state::unseen) << "it has not given up";
    EXPECT_EQ(counts().cancelled, 0u);
    EXPECT_EQ(counts().acquired, 0u);
    const auto pulls = describe(a, ada).nonce;
    EXPECT_NE(pulls, nonce) << "what is said of the look is not of this";
    looked(a, nonce);
    EXPECT_EQ(pull(a, 0, all).nonce, pulls);
    looked(a, nonce);
    EXPECT_EQ(counts().acquired, 1u);
    EXPECT_EQ(confirm(a, ada, pulls, version).status, status::ok);
    looked(a, nonce), looked(a, pulls);
    expect_completed_once();
    next();
  }
}

TEST_F(Looks, A_connection_that_has_looked_in_vain_asks_anew_beside_the_one_that_pulls) {
  for (const bool by_name : {true, false}) {
    SCOPED_TRACE(by_name);
    publish_for(by_name);
    owner::peer older, newer;
    const auto nonce = describe(older, ada).nonce;
    describe(newer, ada), pull(newer, 0, 100);
    looked(older, nonce);
    const auto second = describe(older, ada).nonce;
    EXPECT_NE(second, nonce);
    looked(older, nonce);  // a copy
    EXPECT_EQ(counts().acquired, 1u);
    EXPECT_EQ(pull(newer, 100, all).nonce, nonce) << "its machine takes no other";
    looked(older, second);
    EXPECT_EQ(confirm(newer, ada, nonce, version).status, status::ok);
    expect_completed_once();
    next();
  }
}

TEST_F(Looks, A_recipient_that_has_not_asked_over_a_connection_takes_nothing_back_over_it) {
  for (const bool by_name : {true, false}) {
    SCOPED_TRACE(by_name);
    publish_for(by_name);
    owner::peer a, never, of_bob;
    const auto nonce = take_all(a, ada);
    describe(of_bob, bob);
    for (owner::peer* const l : {&never, &of_bob}) looked(*l, nonce);
    EXPECT_EQ(state(ada), recipient_state::provisional);
    EXPECT_EQ(confirm(a, ada, nonce, version).status, status::ok);
    EXPECT_EQ(state(ada), recipient_state::completed);
    EXPECT_EQ(counts().acquired, 2u);
    next();
  }
}

TEST_F(Looks, The_second_reference_of_a_transaction_is_taken_back_alone) {
  static constexpr std::array both{ada, bob};
  for (const bool by_name : {true, false}) {
    SCOPED_TRACE(by_name);
    publish_both(by_name ? named(both) : counted(2));
    owner::peer older, newer;
    const auto first = take_all(older, ada);
    const auto second = describe(older, ada, other).nonce;
    EXPECT_EQ(describe(newer, ada, other).nonce, second);
    looked(older, second, ada, other);
    EXPECT_EQ(counts(other).acquired, 1u);
    looked(newer, second, ada, other);
    EXPECT_EQ(counts(other).acquired, 0u);
    EXPECT_EQ(confirm(older, ada, first, version).status, status::ok);
    EXPECT_EQ(counts().completed, 1u);
    EXPECT_EQ(settled.size(), 0u);
    EXPECT_EQ(complete(newer, ada, other), status::ok);
    EXPECT_EQ(counts(other).completed, 1u);
    ASSERT_TRUE(o.withdraw(id) && o.withdraw(other));
    deliver();
    ASSERT_EQ(settled.size(), 1u);
    EXPECT_EQ(settled[0].counts.completed, 1u);
    EXPECT_EQ(settled[0].counts.acquired, 1u);
    settled.clear();
  }
}

}  // namespace looks_test
