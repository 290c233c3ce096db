// The recipients that are expected, what counts as an end, and the outcome of a transaction. The clock is a number.
#include "transactions.hpp"

#include <functional>
#include <utility>

namespace transactions_test {

using namespace test;
using namespace test::transactions;

TEST_F(Transactions, A_name_that_comes_twice_is_refused) {
  const std::array twice{ada, bob, ada};
  tensorpull::transaction_options options;
  options.named = twice;
  const auto refused = o.open_transaction(options);
  EXPECT_EQ(code_of(refused), tensorpull::errc::invalid_argument);
  EXPECT_EQ(refused.error().at, 2u);
}

TEST_F(Transactions, C5_an_absent_member_and_an_unlisted_one_do_not_certify) {
  const std::array who{ada, bob};
  auto t = named(who);
  t.budgets.acquire = 1000ms;
  publish(t);
  owner::peer a, e;
  EXPECT_EQ(complete(a, ada), status::ok);
  EXPECT_EQ(complete(e, eve), status::ok) << "served all the same";
  EXPECT_FALSE(o.settled(id));
  at(1001);
  EXPECT_TRUE(settled_as(1, verdict::failed, {.completed = 1, .absent = 1, .unlisted = 1}));
  EXPECT_EQ(state(bob), recipient_state::absent);
}

TEST_F(Transactions, Counted_recipients_unverified_ones_and_a_quorum) {
  publish(counted(2));
  owner::peer a, b, c;
  EXPECT_EQ(complete(a, ada), status::ok);
  EXPECT_EQ(complete(a, ada), status::ok) << "the same again is no second";
  EXPECT_FALSE(o.settled(id));
  EXPECT_EQ(confirm(b, bob, take_all(b, bob), 0).status, status::ok);
  EXPECT_TRUE(settled_as(1, verdict::completed_unverified));

  publish(counted(3, 2));
  complete(a, ada), complete(b, bob);
  EXPECT_FALSE(o.settled(id));
  cancel(c, eve, take_all(c, eve), 42);
  EXPECT_TRUE(settled_as(2, verdict::quorum));
  EXPECT_EQ(o.recipient_of(id, eve)->reason, 42u);

  publish(counted(2, 2));
  complete(a, ada);
  cancel(b, bob, take_all(b, bob));
  EXPECT_TRUE(settled_as(3, verdict::failed));
}

TEST_F(Transactions, An_unknown_number_never_certifies) {
  publish(counted(0));
  owner::peer a;
  for (std::uint64_t i = 1; i < 9; ++i) complete(a, {100 + i});
  EXPECT_FALSE(o.settled(id));
  ASSERT_TRUE(o.withdraw(id));
  deliver();
  ASSERT_TRUE(settled_as(1, verdict::withdrawn, {.completed = 8}));
  auto t = counted(0, 2);
  t.budgets.transaction_idle = 500ms;
  publish(t);
  complete(a, ada), complete(a, bob);
  at(501);
  EXPECT_EQ(settled.back().verdict, verdict::quorum);
  t.least = 0;
  publish(t);
  complete(a, ada);
  at(1100);
  EXPECT_EQ(settled.back().verdict, verdict::uncertified);
}

TEST_F(Transactions, T1_a_recipient_that_vanishes_is_dropped_by_its_idle_budget_and_a_slow_one_is_not) {
  auto t = counted(2);
  t.budgets.recipient_idle = 2000ms;
  publish(t);
  owner::peer a, b;
  describe(a, ada), pull(a, 0, 100);
  describe(b, bob);
  o.forget(a);
  for (std::uint64_t now = 500; now <= 6000; now += 500) {  // bob takes 200 bytes a second
    const auto r = pull(b, 0, 100);
    ASSERT_NE(o.pin(r), nullptr);
    o.unpin(r, 100);
    at(now);
    EXPECT_EQ(state(ada), now <= 2000 ? recipient_state::acquired : recipient_state::vanished) << now;
    EXPECT_EQ(state(bob), recipient_state::acquired) << now;
  }
  EXPECT_EQ(complete(b, bob), status::ok);
  EXPECT_TRUE(settled_as(1, verdict::failed, {.completed = 1, .vanished = 1}));
}

TEST_F(Transactions, Several_references_settle_together_and_a_recipient_counts_as_its_worst) {
  const auto t = o.open_transaction(counted(2));
  ASSERT_TRUE(t);
  publish(*t);
  owner::peer a, b;
  EXPECT_EQ(complete(a, ada), status::ok) << "served before the transaction is sealed";
  EXPECT_EQ(complete(b, bob), status::ok);
  EXPECT_FALSE(o.settled(id));
  publish(*t, other);
  o.seal(*t);
  deliver();
  EXPECT_FALSE(o.settled(id));
  EXPECT_EQ(complete(a, ada, other), status::ok);
  EXPECT_EQ(confirm(b, bob, take_all(b, bob, other), version ^ 1, other).status, status::digest_mismatch);
  ASSERT_EQ(settled.size(), 1u);
  EXPECT_EQ(settled[0].references, 2u);
  EXPECT_EQ(settled[0].verdict, verdict::failed);
  EXPECT_EQ(settled[0].counts.completed, 1u);
  EXPECT_EQ(settled[0].counts.failed, 1u);
  EXPECT_TRUE(o.settled(id) && o.settled(other));
  EXPECT_FALSE(o.publish(m.source(), version, true, id, *t)) << "a settled transaction takes nothing more";
}

TEST_F(Transactions, A_reconnected_recipient_goes_on_with_its_serve) {
  publish(counted(1));
  owner::peer a;
  const auto first = describe(a, ada);
  pull(a, 0, 1000);
  o.forget(a);
  EXPECT_EQ(o.status_of(id)->lost, 1u);
  owner::peer b;
  const auto again = describe(b, ada);
  EXPECT_EQ(again.nonce, first.nonce);
  EXPECT_EQ(o.status_of(id)->acquired, 1u);
  owner::peer half_open;  // the old connection is still there when the new one comes
  EXPECT_EQ(describe(half_open, ada).nonce, first.nonce);
  o.forget(b);
  EXPECT_EQ(o.status_of(id)->lost, 1u) << "the recipient is not b's any more";
  EXPECT_EQ(confirm(half_open, ada, pull(half_open, 1000, 1u << 30).nonce, version).status, status::ok);
  EXPECT_EQ(settled.size(), 1u);
}

TEST_F(Transactions, R8_afterwards_only_those_who_completed_are_told_so) {
  publish(counted(2));
  owner::peer a, b, e;
  complete(a, ada);
  describe(e, eve);
  cancel(b, bob, take_all(b, bob));
  ASSERT_EQ(settled.size(), 1u);
  EXPECT_EQ(describe(a, ada).status, status::already_final);
  for (auto* const l : {&b, &e}) EXPECT_EQ(describe(*l, l == &b ? bob : eve).status, status::ended);
  EXPECT_EQ(state(eve), recipient_state::unfinished);
  EXPECT_EQ(confirm(e, eve, o.recipient_of(id, eve)->nonce, version).status, status::ended);
  EXPECT_EQ(settled[0].counts.completed, 1u) << "the outcome was a value";
}

TEST_F(Transactions, One_that_has_completed_is_told_so_even_if_it_asked_before_the_end) {
  publish(named(std::array{ada, bob}));
  owner::peer a, again, b, e;
  complete(a, ada);
  tp::pending_reply completed = describe(again, ada), other = describe(e, eve);
  complete(b, bob);
  ASSERT_EQ(settled.size(), 1u);
  for (tp::pending_reply* const r : {&completed, &other}) {
    ASSERT_EQ(o.pin(*r), nullptr);
    o.refuse_gone(*r);
  }
  EXPECT_EQ(completed.status, status::already_final);
  EXPECT_EQ(other.status, status::ended);
}

TEST_F(Transactions, A_completed_recipient_stays_so_whatever_its_other_connections_still_ask) {
  for (const bool verified : {false, true}) {
    publish(counted(2));
    owner::peer late, quick, third;
    describe(late, ada), pull(late, 0, 8);
    const auto nonce = take_all(quick, ada);
    EXPECT_EQ(confirm(quick, ada, nonce, verified ? version : 0).status, status::ok);
    const auto end = verified ? recipient_state::completed : recipient_state::completed_unverified;
    ASSERT_EQ(state(ada), end);
    EXPECT_EQ(pull(late, 8, 8).kind, kind::chunk) << "it is served all the same";
    EXPECT_EQ(state(ada), end);
    EXPECT_EQ(describe(third, ada).kind, kind::description);
    EXPECT_EQ(state(ada), end);
    cancel(late, ada, nonce);
    for (owner::peer* const l : {&late, &quick, &third}) o.forget(*l);
    EXPECT_EQ(state(ada), end);
    EXPECT_EQ(o.status_of(id)->final(), 1u);
    EXPECT_EQ(o.status_of(id)->lost, 0u);
    const std::size_t before = settled.size();
    owner::peer b;
    EXPECT_EQ(complete(b, bob), status::ok);
    EXPECT_TRUE(settled_as(before + 1, verified ? verdict::completed : verdict::completed_unverified, {.all = 2}));
  }
}

TEST_F(Transactions, A_recipient_that_completed_without_a_digest_may_pull_again_and_confirm_with_one) {
  publish(counted(2));
  owner::peer a;
  const auto first = take_all(a, ada);
  EXPECT_EQ(confirm(a, ada, first, 0).status, status::ok);
  EXPECT_EQ(confirm(a, ada, first, version).status, status::ok);
  EXPECT_EQ(state(ada), recipient_state::completed_unverified) << "it says so of the same serve again";
  const auto half = describe(a, ada).nonce;
  pull(a, 0, 8);
  EXPECT_EQ(confirm(a, ada, half, version).status, status::ok);
  EXPECT_EQ(state(ada), recipient_state::completed_unverified) << "it has not been sent everything again";
  EXPECT_EQ(confirm(a, ada, take_all(a, ada), version ^ 1).status, status::digest_mismatch);
  EXPECT_EQ(state(ada), recipient_state::completed_unverified);
  EXPECT_EQ(confirm(a, ada, take_all(a, ada), version).status, status::ok);
  EXPECT_EQ(state(ada), recipient_state::completed);
  EXPECT_EQ(o.status_of(id)->completed, 1u);
  EXPECT_EQ(o.status_of(id)->final(), 1u);
  owner::peer b;
  EXPECT_EQ(complete(b, bob), status::ok);
  EXPECT_TRUE(settled_as(1, verdict::completed));
}

TEST_F(Transactions, T9_an_end_and_a_time_out_in_the_same_tick_are_one_end) {
  for (const bool confirmed_first : {true, false}) {
    auto t = counted(1);
    t.budgets.recipient_idle = 1000ms;
    publish(t);
    owner::peer a;
    const auto nonce = take_all(a, ada);
    const std::size_t before = settled.size();
    const std::uint64_t now = confirmed_first ? 5000 : 9000;
    if (confirmed_first) confirm(a, ada, nonce, version);
    at(now);
    if (!confirmed_first) confirm(a, ada, nonce, version);
    at(now);
    EXPECT_TRUE(settled_as(before + 1, confirmed_first ? verdict::completed : verdict::failed, {.all = 1}));
  }
}

TEST_F(Transactions, Publishing_again_ends_the_old_transaction_once_and_its_recipients_are_stale) {
  publish(counted(2));
  owner::peer a;
  const auto nonce = take_all(a, ada);
  const auto old = version;
  m.fill(9);
  version = version_of(m);
  publish(counted(1));
  deliver();
  EXPECT_TRUE(settled_as(1, verdict::withdrawn, {.unfinished = 1}));
  auto q = ask(kind::pull, {});
  q.version = old;
  q.length = 8;
  EXPECT_EQ(say(a, q).status, status::stale);
  version = old;
  EXPECT_EQ(confirm(a, ada, nonce, old).status, status::stale);
  version = version_of(m);
  EXPECT_EQ(complete(a, ada), status::ok);
  EXPECT_TRUE(settled_as(2, verdict::completed));
}

TEST_F(Transactions, A_finished_recipient_is_remembered_within_bounds) {
  owner::peer a;
  publish(counted(0));
  for (std::uint64_t i = 1; i <= 1000; ++i) ASSERT_EQ(complete(a, {100 + i}), status::ok) << i;
  EXPECT_EQ(o.status_of(id)->completed, 1000u) << "counts outlive the records";
  std::array<tp::recipient_record, 64> all;
  EXPECT_LE(o.recipients_of(id, all), 16u);
}

TEST_F(Transactions, Invented_identities_push_out_no_connected_recipient) {
  publish(counted(0));
  owner::peer honest, attacker;
  const auto nonce = take_all(honest, ada);
  for (std::uint64_t i = 1; i <= 10'000; ++i) describe(attacker, {1'000 + i});
  EXPECT_EQ(confirm(honest, ada, nonce, version).status, status::ok);
  std::vector<owner::peer> many(40);
  std::size_t busy = 0;
  for (std::size_t i = 0; i < many.size(); ++i) busy += describe(many[i], {50'000 + i}).status == status::busy;
  EXPECT_GT(busy, 20u) << "more connections than records: the others are asked to wait";
  for (auto& l : many) o.forget(l);
  owner::peer late;
  EXPECT_EQ(complete(late, bob), status::ok);
}

TEST_F(Transactions, Tables_that_are_full_are_said_and_change_nothing) {
  auto crowd = numbered(17);
  EXPECT_EQ(code_of(o.publish(m.source(), version, true, id, named(crowd))), errc::table_full);
  EXPECT_EQ(settled.size(), 0u);
  crowd.pop_back();
  publish(named(crowd));
  owner::peer l;
  EXPECT_EQ(describe(l, eve).kind, kind::description) << "eve is number 13";
  EXPECT_EQ(describe(l, {99}).status, status::busy);
}

TEST_F(Transactions, More_recipients_than_the_table_remembers_are_refused_at_once) {
  const auto refused = [&](const tp::error& e) {
    EXPECT_EQ(e.code, errc::table_full);
    EXPECT_EQ(e.at, 16u);
    EXPECT_EQ(e.name.view(), "recipients");
  };
  auto crowd = numbered(17);
  for (const auto& too_many : {counted(17), counted(0, 17), counted(~0u), counted(~0u, ~0u), named(crowd)}) {
    refused(o.open_transaction(too_many).error());
    refused(o.publish(m.source(), version, true, id, too_many).error());
  }
  for (const bool quorum : {false, true}) {
    const auto six = quorum ? counted(0, 6) : counted(6);
    const auto t = o.open_transaction(six);
    ASSERT_TRUE(t);
    publish(*t);
    publish(*t, other);
    refused(o.publish(m.source(), version, true, {5, 6}, *t).error());
    ASSERT_TRUE(o.withdraw(other));
    EXPECT_TRUE(o.publish(m.source(), version, true, {5, 6}, *t)) << "two again";
    o.seal(*t);
    for (const tp::ref_id left : {id, tp::ref_id{5, 6}}) ASSERT_TRUE(o.withdraw(left));
    deliver();
    const auto whole = o.open_transaction(six);
    ASSERT_TRUE(whole);
    std::array<tp::transaction_image, 3> three;
    for (std::size_t i = 0; i < 3; ++i) three[i] = {m.source(), {{7, 1 + i}, version, 0}};
    refused(o.publish_all(three, true, *whole).error());
    EXPECT_TRUE(o.publish_all(std::span(three).first(2), true, *whole));
    o.seal(*whole);
    for (std::uint64_t i = 1; i <= 2; ++i) ASSERT_TRUE(o.withdraw({7, i}));
    deliver();
  }
  publish(counted(16));
  for (std::uint64_t i = 1; i <= 16; ++i) {
    owner::peer l;
    EXPECT_EQ(complete(l, {i}), status::ok) << i;
    o.forget(l);
  }
  EXPECT_EQ(settled.back().verdict, verdict::completed) << "exactly as many as there is room for";
}

TEST_F(Transactions, R8_the_end_of_an_earlier_publication_is_none_of_a_later_one_with_the_same_bytes) {
  for (const bool together : {false, true}) {
    const std::size_t before = settled.size();
    owner::peer a, b;
    const auto both = [&] {
      const auto t = o.open_transaction(counted(1));
      EXPECT_TRUE(t);
      EXPECT_TRUE(o.publish(m.source(), version, true, id, *t));
      if (together) {
        EXPECT_TRUE(o.publish(m.source(), version, true, other, *t));
      }
      o.seal(*t);
      deliver();
    };
    both();
    complete(a, ada);
    if (together) complete(a, ada, other);
    ASSERT_EQ(settled.size(), before + 1);
    both();
    cancel(b, bob, take_all(b, bob));
    EXPECT_TRUE(settled_as(before + 2, verdict::failed, {.completed = 0}));
    EXPECT_EQ(describe(a, ada).status, status::ended) << "ada has not completed this one";
  }
}

TEST_F(Transactions, C3_a_part_that_is_published_again_on_its_own_does_not_complete_the_rest) {
  const auto t = o.open_transaction(counted(1));
  publish(*t);
  publish(*t, other);
  o.seal(*t);
  owner::peer a;
  take_all(a, ada);
  publish(counted(1));
  deliver();
  EXPECT_EQ(complete(a, ada, other), status::ok);
  EXPECT_TRUE(settled_as(1, verdict::withdrawn, {.completed = 0}));
  EXPECT_EQ(complete(a, ada), status::ok);
  EXPECT_TRUE(settled_as(2, verdict::completed));
}

TEST_F(Transactions, A_transaction_of_nothing_and_one_whose_parts_were_withdrawn_end_when_sealed) {
  for (int i = 0; i < 10; ++i) {
    const auto t = o.open_transaction(counted(0));
    ASSERT_TRUE(t) << i;
    if (i % 2 != 0) {
      publish(*t);
      ASSERT_TRUE(o.withdraw(id));
      publish(*t, other);  // it is still open
      EXPECT_EQ(code_of(o.publish(m.source(), version, true, other, *t)), errc::invalid_argument)
          << "once in a transaction";
      ASSERT_TRUE(o.withdraw(other));
    }
    deliver();
    EXPECT_EQ(settled.size(), static_cast<std::size_t>(i));
    o.seal(*t);
    deliver();
    ASSERT_EQ(settled.size(), static_cast<std::size_t>(i) + 1);
  }
}

TEST_F(Transactions, A_recipient_forgotten_for_lack_of_room_is_not_waited_for) {
  auto t = counted(1);
  t.budgets.acquire = 1000ms;
  publish(t);
  publish(counted(0), other);
  owner::peer a;
  describe(a, ada);
  o.forget(a);
  std::vector<owner::peer> many(16);
  for (std::size_t i = 0; i < many.size(); ++i) EXPECT_EQ(describe(many[i], {500 + i}, other).kind, kind::description);
  at(1001);
  EXPECT_TRUE(settled_as(1, verdict::failed));
}

TEST_F(Transactions, T7_the_largest_budgets_end_nothing) {
  auto t = counted(2);
  constexpr auto never = std::chrono::milliseconds::max();
  t.budgets = {never, never, never, ~0ull};
  at(50'000);
  publish(t);
  owner::peer a;
  describe(a, ada);
  for (const std::uint64_t now : {60'000ull, 70'000ull, 1ull << 62}) at(now);
  EXPECT_EQ(state(ada), recipient_state::acquired);
  EXPECT_EQ(settled.size(), 0u);
}

TEST_F(Transactions, T6_a_clock_that_steps_back_ends_nothing_and_no_budget_is_longer_for_it) {
  auto t = counted(1);
  t.budgets.transaction_idle = 1000ms;
  at(3'600'000);
  publish(t);
  for (const std::uint64_t now : {3'600'500ull, 500ull, 0ull, 3'600'999ull}) at(now);
  EXPECT_EQ(settled.size(), 0u);
  at(3'601'001);
  EXPECT_EQ(settled.size(), 1u);
}

TEST_F(Transactions, Progress_events_come_in_order_and_are_not_masked_by_others) {
  std::vector<tp::progress_event> seen;
  auto watch = [&](const tp::progress_event& e) { seen.push_back(e); };
  auto t = counted(2);
  t.progress = watch;
  t.progress_interval = 100ms;
  publish(t);
  owner::peer a, b;
  describe(a, ada), describe(b, bob);
  for (std::uint64_t now = 0; now <= 500; now += 10) {
    const auto r = pull(a, now, 10);
    ASSERT_NE(o.pin(r), nullptr);
    o.unpin(r, 10);
    at(now);
    tell_progress();
  }
  complete(a, ada);
  tell_progress();
  cancel(b, bob, take_all(b, bob));
  tell_progress();
  std::uint64_t last_bytes = 0, last_sequence = 0;
  std::size_t active = 0;
  std::vector<tp::progress_phase> of_bob;
  for (const auto& e : seen) {
    EXPECT_GT(e.sequence, last_sequence);
    last_sequence = e.sequence;
    if (e.recipient == bob) of_bob.push_back(e.phase);
    if (e.recipient != ada) continue;
    EXPECT_GE(e.bytes_done, last_bytes);
    EXPECT_EQ(e.bytes_total, m.schema().image_bytes);
    last_bytes = e.bytes_done;
    active += e.phase == tp::progress_phase::active;
  }
  EXPECT_EQ(active, 5u) << "one each 100 ms";
  EXPECT_EQ(of_bob, (std::vector{tp::progress_phase::started, tp::progress_phase::aborted}));
  EXPECT_EQ(seen.back().phase, tp::progress_phase::aborted);
}

TEST_F(Transactions, Progress_says_why_a_recipient_has_failed) {
  const std::array who{ada, bob};
  const auto codes_after = [&](const std::function<void(owner::peer&)>& ends, std::uint32_t number = 0) {
    std::vector<tp::progress_event> seen;
    auto watch = [&](const tp::progress_event& e) { seen.push_back(e); };
    auto t = number == 0 ? named(who) : counted(number);
    t.progress = watch;
    t.budgets.acquire = t.budgets.recipient_idle = 1000ms;
    publish(t);
    owner::peer a;
    describe(a, ada), pull(a, 0, 100);  // bob never asks
    ends(a);
    tell_progress();
    deliver();
    std::pair<errc, errc> codes{};
    for (const auto& one : seen) (one.recipient == ada ? codes.first : codes.second) = one.code;
    return codes;
  };
  using codes = std::pair<errc, errc>;
  const auto unreadable = [&](owner::peer& a) {
    const auto r = pull(a, 100, 100);
    ASSERT_NE(o.pin(r), nullptr);
    o.unreadable(r);
    o.unpin(r, 0);
  };
  const auto other_ends = [&](owner::peer&) {
    owner::peer b;
    complete(b, bob);
  };
  EXPECT_EQ(codes_after([&](owner::peer&) { (void)o.withdraw(id); }), codes(errc::withdrawn, errc::withdrawn));
  EXPECT_EQ(codes_after(unreadable), codes(errc::unreadable, errc::unreadable));
  EXPECT_EQ(codes_after(other_ends, 1), codes(errc::ended, errc{})) << "one was enough";
  EXPECT_EQ(codes_after([&](owner::peer&) { at(2000); }), codes(errc::timed_out, errc::timed_out));
  EXPECT_EQ(codes_after([&](owner::peer& a) { confirm(a, ada, take_all(a, ada), version + 1); }, 1),
            codes(errc::digest_mismatch, errc{}));
}

namespace {
/// What there is to be told, and the settlements.
std::vector<tp::progress_event> told(owner& o) {
  std::vector<tp::progress_event> all;
  tp::progress_event e;
  tp::callback<const tp::progress_event&> tell;
  while (const tp::transaction_id of = o.next_event(e, tell)) {
    all.push_back(e);
    if (o.returned(of)) o.released(of);
  }
  return all;
}
}  // namespace

TEST_F(Transactions, Progress_says_of_a_reference_why_its_own_recipients_have_failed) {
  const auto nothing = [](const tp::progress_event&) {};
  const std::array who{ada, bob};
  auto how = named(who);
  how.progress = nothing;
  how.budgets.transaction_idle = 1000ms;
  how.budgets.recipient_idle = {};
  at(1);
  publish_both(how);
  owner::peer a;
  describe(a, ada);
  describe(a, ada, other);
  pull(a, 0, 8, other);
  (void)told(o);
  ASSERT_TRUE(o.withdraw(id));
  for (const auto& e : told(o)) EXPECT_EQ(e.code, errc::withdrawn);
  at(5000);  // nothing has moved
  const auto later = told(o);
  EXPECT_EQ(later.size(), 2u);
  for (const auto& e : later) EXPECT_EQ(e.code, errc::timed_out) << "nobody has withdrawn this one";
}

TEST_F(Transactions, Progress_tells_each_time_that_a_recipient_cancels) {
  const auto nothing = [](const tp::progress_event&) {};
  auto how = counted(2);
  how.progress = nothing;
  how.progress_interval = 30s;
  at(1);
  publish(how);
  for (int i = 0; i < 2; ++i) {
    owner::peer a;
    const auto nonce = describe(a, ada).nonce;
    pull(a, 0, 8);
    (void)told(o);
    cancel(a, ada, nonce);
    const auto events = told(o);
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].phase, tp::progress_phase::aborted);
  }
}

TEST_F(Transactions, An_image_that_has_ended_is_not_read_for_progress_that_is_told_later) {
  const std::uint64_t total = m.schema().image_bytes;
  tp::progress_event expected;
  tp::count_done(expected, m.schema(), total - 1);
  ASSERT_GT(expected.tensors_done, 0u);
  for (const std::string_view how : {"replaced", "replaced together", "withdrawn", "not readable"}) {
    std::vector<tp::progress_event> seen;
    auto watch = [&](const tp::progress_event& e) { seen.push_back(e); };
    auto t = counted(2);
    t.progress = watch;
    auto schema = m.schema();
    auto image = m.source();
    image.schema = &schema;
    const auto in = o.open_transaction(t);
    ASSERT_TRUE(in);
    ASSERT_TRUE(o.publish(image, version, true, id, *in));
    publish(*in, other);  // it goes on when the first has ended
    o.seal(*in);
    owner::peer a;
    describe(a, ada);
    const auto r = pull(a, 0, 1u << 30);
    ASSERT_NE(o.pin(r), nullptr);
    if (how == "not readable") o.unreadable(r);  // and some bytes leave after that
    o.unpin(r, total - 1);
    if (how == "replaced") publish(counted(1));
    if (how == "withdrawn") (void)o.withdraw(id);
    if (how == "replaced together") {
      const auto next = o.open_transaction(counted(1));
      ASSERT_TRUE(next);
      const std::array anew{tp::transaction_image{m.source(), {id, version, 0}}};
      ASSERT_TRUE(o.publish_all(anew, true, *next));
      o.seal(*next);
    }
    schema.image_bytes = schema.tensor_count = 0;  // as if its memory were used for something else
    tell_progress();
    ASSERT_EQ(seen.size(), 2u) << how;
    for (const auto& told : seen) {
      EXPECT_EQ(told.ref, id) << how;
      EXPECT_EQ(told.bytes_done, total - 1) << how;
      EXPECT_EQ(told.bytes_total, total) << how;
      EXPECT_EQ(told.tensors_done, expected.tensors_done) << how;
      EXPECT_EQ(told.tensors_total, m.size()) << how;
    }
    for (const tp::ref_id left : {id, other}) ASSERT_TRUE(o.withdraw(left));
    tell_progress();
    deliver();
  }
}

TEST_F(Transactions, A_recipient_that_vanished_goes_on_over_its_own_connection) {
  for (const bool only_confirms : {false, true}) {
    auto t = counted(2);
    t.budgets.recipient_idle = 1000ms;
    const std::uint64_t start = only_confirms ? 10'000 : 0;
    at(start);
    publish(t);
    owner::peer a;
    const auto nonce = describe(a, ada).nonce;
    EXPECT_EQ(pull(a, 0, only_confirms ? 1u << 30 : 100).nonce, nonce);
    at(start + 1001);
    EXPECT_EQ(state(ada), recipient_state::vanished);
    if (!only_confirms) {
      EXPECT_EQ(pull(a, 100, 100).nonce, nonce) << "its machine takes no other";
      EXPECT_EQ(state(ada), recipient_state::acquired);
      EXPECT_EQ(o.status_of(id)->vanished, 0u);
      EXPECT_EQ(confirm(a, ada, nonce, version).status, status::bad_request) << "it has not had everything";
      EXPECT_EQ(pull(a, 200, 1u << 30).nonce, nonce);
    }
    EXPECT_EQ(confirm(a, ada, nonce, version).status, status::ok) << only_confirms;
    EXPECT_EQ(state(ada), recipient_state::completed);
    EXPECT_EQ(o.status_of(id)->final(), 1u);
  }
}

TEST_F(Transactions, A_recipient_that_vanished_keeps_none_of_its_connections_transfers_from_others) {
  auto t = counted(0);
  t.budgets.recipient_idle = 1000ms;
  t.budgets.transaction_idle = {};
  owner::peer a;
  for (std::uint64_t i = 0; i < 4; ++i) {
    publish(t, {7, 1 + i});
    describe(a, ada, {7, 1 + i});
  }
  at(1001);
  ASSERT_TRUE(o.withdraw({7, 1}));
  deliver();
  publish(t);
  EXPECT_EQ(describe(a, ada).kind, kind::description);
}

TEST_F(Transactions, A_recipient_that_ended_and_was_pushed_out_counts_once_when_it_returns) {
  publish(counted(2));
  owner::peer a, b, s, again;
  const auto under_way = take_all(b, bob);
  cancel(a, ada, describe(a, ada).nonce);
  o.forget(a);
  for (std::uint64_t i = 0; i < 40; ++i) describe(s, {1000 + i});  // others look in and go
  o.forget(s);
  EXPECT_EQ(complete(again, ada), status::ok);
  EXPECT_EQ(settled.size(), 0u) << "one recipient is not two";
  EXPECT_EQ(o.status_of(id)->final(), 1u);
  EXPECT_EQ(confirm(b, bob, under_way, version).status, status::ok);
  EXPECT_TRUE(settled_as(1, verdict::completed));
}

TEST_F(Transactions, One_recipient_that_pulls_different_tensors_over_two_connections_is_judged_by_each) {
  for (const bool whole : {false, true}) {
    publish(counted(0));
    owner::peer a, b;
    struct part {
      tp::byte_range range;
      std::uint64_t nonce, digest;
    };
    const auto locate = [&](owner::peer& l, std::size_t tensor) -> part {
      describe(l, ada);
      const std::string_view name = m.schema().tensors[tensor].name;
      auto q = ask(kind::locate, {});
      q.names = std::span(&name, 1);
      tp::byte_range ranges[4];
      tp::frame answer;
      o.locate(l, q, ranges, answer);
      EXPECT_EQ(answer.kind, kind::located);
      return {ranges[0], answer.nonce, answer.digest};
    };
    const auto take = [&](owner::peer& l, const part& p) {
      const auto r = pull(l, p.range.begin, static_cast<std::uint32_t>(p.range.end - p.range.begin));
      EXPECT_EQ(r.nonce, p.nonce) << "its machine takes no other";
    };
    std::vector<std::size_t> with_bytes;
    for (std::size_t i = 0; i < m.size(); ++i)
      if (m.schema().tensors[i].size_bytes() != 0) with_bytes.push_back(i);
    const part x = locate(a, with_bytes.front());
    const part y = whole ? part{{0, m.schema().image_bytes}, describe(b, ada).nonce, version}
                         : locate(b, with_bytes.back());
    ASSERT_NE(x.digest, y.digest);
    take(b, y), take(a, x), take(b, y), take(a, x);
    EXPECT_EQ(confirm(a, ada, x.nonce, x.digest).status, status::ok);
    EXPECT_EQ(describe(a, ada).kind, kind::description) << "the next pull of the first connection";
    take(b, y);
    EXPECT_EQ(confirm(b, ada, y.nonce, y.digest).status, status::ok) << whole;
    EXPECT_EQ(confirm(b, ada, y.nonce, y.digest ^ 1).status, status::digest_mismatch) << whole;
    EXPECT_EQ(o.status_of(id)->completed, 1u);
    EXPECT_EQ(o.status_of(id)->final(), 1u);
    ASSERT_TRUE(o.withdraw(id));
    deliver();
  }
}

TEST_F(Transactions, Invented_identities_push_out_no_recipient_between_two_connections) {
  publish(counted(0));
  owner::peer honest, attacker, again;
  const auto nonce = take_all(honest, ada);
  const auto r = pull(honest, 0, 1000);
  ASSERT_NE(o.pin(r), nullptr);
  o.unpin(r, 1000);
  o.forget(honest);
  for (std::uint64_t i = 1; i <= 1000; ++i) describe(attacker, {1'000 + i});
  EXPECT_EQ(confirm(again, ada, nonce, version).status, status::ok);
}

TEST_F(Transactions, Recipients_are_told_why_an_owner_gives_up_in_every_answer) {
  for (const bool unreadable : {false, true}) {
    publish(counted(2));
    owner::peer a, fresh;
    std::vector<tp::pending_reply> in_flight{describe(a, ada), pull(a, 0, 8), say(a, ask(kind::schema, {}))};
    const auto last = pull(a, 0, 1u << 30);
    if (unreadable) o.unreadable(in_flight[1]);
    else ASSERT_TRUE(o.withdraw(id, 4'000'000'000));
    deliver();
    const auto expect = [&](const tp::frame& answer, int where) {
      EXPECT_EQ(answer.kind, kind::refused) << where;
      EXPECT_EQ(answer.status, unreadable ? status::unreadable : status::withdrawn) << where;
      EXPECT_EQ(answer.delay_ms, unreadable ? 0 : 4'000'000'000) << where;
    };
    int where = 0;
    for (tp::pending_reply& r : in_flight) {
      EXPECT_EQ(o.pin(r), nullptr);
      o.refuse_gone(r);
      expect(o.expand(r), where++);
    }
    for (owner::peer* const l : {&a, &fresh}) {
      expect(o.expand(describe(*l, ada)), where++);
      expect(o.expand(pull(*l, 0, 8)), where++);
      tp::frame located;
      tp::byte_range ranges[2];
      const std::string_view name = m.schema().tensors[0].name;
      auto q = ask(kind::locate, {});
      q.names = std::span(&name, 1);
      o.locate(*l, q, ranges, located);
      expect(located, where++);
      expect(o.expand(confirm(*l, ada, last.nonce, version)), where++);
    }
  }
}

TEST_F(Transactions, A_reference_that_cannot_be_read_any_more_leaves_its_siblings) {
  publish_both(counted(1));
  owner::peer a;
  describe(a, ada);
  o.unreadable(pull(a, 0, 8));
  deliver();
  EXPECT_EQ(settled.size(), 0u);
  EXPECT_EQ(pull(a, 0, 8).status, status::unreadable);
  EXPECT_EQ(complete(a, ada, other), status::ok);
  EXPECT_TRUE(settled_as(1, verdict::withdrawn, {.unfinished = 1}));
}

TEST_F(Transactions, A_reference_is_settled_only_when_nobody_reads_its_memory_any_more) {
  publish(counted(1));
  owner::peer a;
  const auto nonce = take_all(a, ada);
  const auto again = pull(a, 0, 10);
  ASSERT_NE(o.pin(again), nullptr);
  EXPECT_EQ(confirm(a, ada, nonce, version).status, status::ok);
  EXPECT_FALSE(o.settled(id));
  o.unpin(again, 10);
  EXPECT_TRUE(o.settled(id));
}

/// A table in which others have taken the room of those that are expected.
TEST(TransactionsInASmallTable, A_completed_recipient_is_not_forgotten_and_counted_twice) {
  model m = mixed_model().fill(1);
  tp::owner_storage<2, 4> storage;
  tp::owner_memory memory = storage.view();
  memory.records = memory.records.first(2);
  generator random{5};
  owner o{memory, [&random] { return random(); }};
  const std::uint64_t version = version_of(m);
  ASSERT_TRUE(o.publish(m.source(), version, true, id, 2));
  ASSERT_TRUE(o.publish(m.source(), version, true, other, 0u));
  owner::peer stays;
  tp::frame asks;
  tp::pending_reply described;
  asks.kind = kind::describe;
  asks.ref = other;
  o.handle(stays, asks, described);
  ASSERT_EQ(described.kind, kind::description);
  const auto pull = [&](tp::recipient_id who) {
    owner::peer l{};
    tp::frame q;
    tp::pending_reply r;
    q.kind = kind::describe;
    q.ref = id;
    q.recipient = who;
    o.handle(l, q, r);
    if (r.kind != kind::description) return r.status;
    q.kind = kind::pull;
    q.length = static_cast<std::uint32_t>(m.schema().image_bytes);
    o.handle(l, q, r);
    q.kind = kind::confirm;
    q.version = q.digest = version;
    q.nonce = r.nonce;
    q.flag = true;
    o.handle(l, q, r);
    o.forget(l);
    return r.status;
  };
  EXPECT_EQ(pull(ada), status::ok);
  EXPECT_EQ(pull(bob), status::busy) << "there is room for one beside the connected one, and it counts";
  EXPECT_EQ(pull(ada), status::ok);
  EXPECT_EQ(o.settlement_of(id)->verdict, verdict::open) << "one recipient twice is not two";
  EXPECT_EQ(o.status_of(id)->completed, 1u);
}

TEST(TransactionsInASmallTable, Records_of_what_stays_are_no_room_for_images_that_are_published_together) {
  const model first = mixed_model().fill(1), second = mixed_model().fill(2), third = mixed_model().fill(3);
  tp::owner_storage<4, 4> storage;
  tp::owner_memory memory = storage.view();
  memory.records = memory.records.first(2);
  generator random{5};
  owner o{memory, [&random] { return random(); }};
  ASSERT_TRUE(o.publish(first.source(), version_of(first), true, id, 0u));
  owner::peer begins;
  tp::frame asks;
  tp::pending_reply described;
  asks.kind = kind::describe;
  asks.ref = id;
  o.handle(begins, asks, described);
  ASSERT_EQ(described.kind, kind::description);
  const auto in = o.open_transaction({});
  ASSERT_TRUE(o.publish(second.source(), version_of(second), true, id, *in, tp::detail::tells_nobody{}, false, true));
  o.seal(*in);
  const tp::recipient_id both[] = {ada, bob};
  tp::transaction_options how;
  how.named = both;
  const auto together = o.open_transaction(how);
  ASSERT_TRUE(together);
  std::vector<tp::transaction_image> images{{third.source(), {id, version_of(third), 0}}};
  EXPECT_EQ(code_of(o.publish_all(images, true, *together)), errc::table_full);
  EXPECT_EQ(o.totals().references, 2u);
}
TEST(TransactionsInASmallTable, How_a_recipient_has_ended_is_told_before_its_record_is_used_again) {
  model m = mixed_model().fill(1);
  tp::owner_storage<2, 2> storage;
  generator random{5};
  owner o{storage, [&random] { return random(); }};
  const std::uint64_t version = version_of(m);
  int completed = 0, failed = 0;
  auto watch = [&](const tp::progress_event& e) {
    completed += e.phase == tp::progress_phase::completed;
    failed += e.phase == tp::progress_phase::failed;
  };
  const auto tell = [&] {
    tp::progress_event e;
    tp::callback<const tp::progress_event&> to;
    while (const tp::transaction_id of = o.next_event(e, to)) to(e), (void)o.returned(of);
  };
  tp::transaction_options how;
  how.progress = watch;
  ASSERT_TRUE(o.publish(m.source(), version, true, id, how));
  const auto pull = [&](std::uint64_t who, bool well) {
    owner::peer l{};
    tp::frame q;
    tp::pending_reply r;
    q.kind = kind::describe;
    q.ref = id;
    q.recipient = {who};
    o.handle(l, q, r);
    if (r.kind != kind::description) return r.status;
    q.kind = kind::pull;
    q.length = 1u << 30;
    o.handle(l, q, r);
    q.kind = kind::confirm;
    q.version = version;
    q.digest = version ^ (well ? 0u : 1u);
    q.nonce = r.nonce;
    q.flag = true;
    o.handle(l, q, r);
    o.forget(l);
    return r.status;
  };
  for (std::uint64_t who = 1; who <= 8; who += 2) {
    EXPECT_EQ(pull(who, true), status::ok);
    EXPECT_EQ(pull(who + 1, false), status::digest_mismatch);
    EXPECT_EQ(pull(99, true), status::busy) << "it comes back when the others have been told of";
    tell();
  }
  EXPECT_EQ(completed, 4);
  EXPECT_EQ(failed, 4);
  // so are those of a version that is over, although its recipient asks for the next one
  EXPECT_EQ(pull(9, true), status::ok);
  ASSERT_TRUE(o.publish(m.source(), version, true, id, how));
  EXPECT_EQ(pull(9, true), status::ok);
  EXPECT_EQ(pull(10, true), status::busy);
  tell();
  EXPECT_EQ(completed, 6);
  EXPECT_EQ(pull(10, true), status::ok);
}

TEST_F(Transactions, The_records_of_a_connection_that_is_gone_make_room_however_many_references_it_pulled) {
  tp::owner_storage<8, 12> store;
  owner big(store, [this] { return random(); });
  for (std::uint64_t i = 1; i <= 6; ++i) ASSERT_TRUE(big.publish(m.source(), version, true, {i, i}, 0u));
  const auto size = m.schema().image_bytes;
  for (std::uint64_t who = 1; who <= 4; ++who) {
    owner::peer link;
    for (std::uint64_t i = 1; i <= 6; ++i) {
      tp::pending_reply r;
      ASSERT_TRUE(big.handle(link, ask(kind::describe, {who}, {i, i}), r));
      ASSERT_EQ(r.kind, kind::description);
      auto q = ask(kind::pull, {}, {i, i});
      q.length = static_cast<std::uint32_t>(size);
      ASSERT_TRUE(big.handle(link, q, r));
      auto c = ask(kind::confirm, {who}, {i, i});
      c.version = version, c.nonce = r.nonce, c.digest = version, c.flag = true;
      ASSERT_TRUE(big.handle(link, c, r));
      ASSERT_EQ(r.kind, kind::confirmed);
    }
    big.forget(link);
  }
}

}  // namespace transactions_test
