// The owner's state machine: every status, and what confirmations may and may not change.
#include "support/models.hpp"

#include <tensorpull/integrity/xxhash/policies.hpp>
#include <tensorpull/protocol/owner/owner.hpp>

namespace owner_test {

using namespace test;
using kind = tp::frame_kind;
using tp::status;
using owner = tp::owner<tp::xxhash_digest>;

constexpr tp::ref_id id{1, 2};

struct small_cap : tp::default_limits {
  static constexpr std::uint64_t chunk_cap_bytes = 100;
};

struct Owner : testing::Test {
  model m = mixed_model().fill(1);
  tp::owner_storage<4, 32> storage;
  generator random{5};
  owner o{storage, [this] { return random(); }};
  owner::peer alice, bob;
  std::uint64_t version = version_of(m), size = m.schema().image_bytes;

  void publish(std::uint32_t recipients = 1, tp::ref_id as = id) {
    ASSERT_TRUE(o.publish(m.source(), version, true, as, recipients));
    deliver();
  }
  /// What drivers do after each step; the settlements that were due.
  std::vector<tp::settlement> deliver() {
    std::vector<tp::settlement> all;
    tp::settlement s;
    for (tp::callback<const tp::settlement&> tell; o.next_settled(s, tell);) {
      all.push_back(s);
      if (o.returned(s.id)) o.released(s.id);
    }
    return all;
  }
  tp::frame ask(kind k, tp::ref_id ref = id, std::uint64_t v = 0) const {
    tp::frame q;
    q.kind = k;
    q.id = 42;
    q.ref = ref;
    q.version = v;
    return q;
  }
  tp::frame pull_of(std::uint64_t offset, std::uint32_t length, std::uint64_t v = 0) const {
    tp::frame q = ask(kind::pull, id, v);
    q.offset = offset;
    q.length = length;
    return q;
  }
  tp::pending_reply reply(owner::peer& who, const tp::frame& q) {
    tp::pending_reply r;
    EXPECT_TRUE(o.handle(who, q, r));
    EXPECT_EQ(r.id, q.id);
    return r;
  }
  status refusal(owner::peer& who, const tp::frame& q) {
    const auto r = reply(who, q);
    EXPECT_EQ(r.kind, kind::refused);
    return r.status;
  }
  tp::frame confirmation(std::uint64_t nonce, std::uint64_t digest, bool verified) const {
    tp::frame q = ask(kind::confirm, id, version);
    q.nonce = nonce;
    q.digest = digest;
    q.flag = verified;
    return q;
  }
  /// Pulls all and gives the nonce.
  std::uint64_t pull_all(owner::peer& who) {
    const auto r = reply(who, pull_of(0, static_cast<std::uint32_t>(size)));
    EXPECT_EQ(r.kind, kind::chunk);
    return r.nonce;
  }
  tp::publication_status counts() const { return *o.status_of(id); }
};

TEST_F(Owner, Unknown_withdrawn_stale_and_out_of_range_have_their_statuses) {
  EXPECT_EQ(refusal(alice, ask(kind::describe)), status::unknown_reference);
  publish();
  EXPECT_EQ(refusal(alice, pull_of(0, 8, version + 1)), status::stale);
  EXPECT_EQ(refusal(alice, pull_of(size + 1, 8)), status::out_of_range);
  EXPECT_EQ(refusal(alice, pull_of(0, 0)), status::bad_request);
  auto wrong_schema = pull_of(0, 8);
  wrong_schema.fingerprint = m.schema().fingerprint + 1;
  EXPECT_EQ(refusal(alice, wrong_schema), status::schema_mismatch);
  ASSERT_TRUE(o.withdraw(id));
  EXPECT_EQ(refusal(alice, ask(kind::describe)), status::withdrawn);
  EXPECT_TRUE(o.withdraw(id)) << "once more changes nothing";
  EXPECT_EQ(code_of(o.withdraw({7, 7})), errc::unknown_reference);
}

TEST_F(Owner, R1_a_pull_at_the_end_is_answered_end_whatever_its_length) {
  publish();
  for (const std::uint32_t n : {0u, 1u, 0xffffffffu}) {
    const auto r = reply(alice, pull_of(size, n));
    EXPECT_EQ(r.kind, kind::end);
    const tp::frame e = o.expand(r);
    EXPECT_EQ(e.image_bytes, size);
    EXPECT_EQ(e.nonce, r.nonce);
  }
}

TEST_F(Owner, R2_offsets_that_would_wrap_are_out_of_range) {
  publish();
  for (const std::uint64_t at : {size + 1, ~std::uint64_t{0}, ~std::uint64_t{0} - 7, std::uint64_t{1} << 63})
    for (const std::uint32_t n : {0u, 8u, 0xffffffffu}) EXPECT_EQ(refusal(alice, pull_of(at, n)), status::out_of_range);
}

TEST_F(Owner, R3_a_length_above_the_rest_is_shortened) {
  publish();
  EXPECT_EQ(reply(alice, pull_of(size - 5, 0xffffffff)).length, 5u);
  EXPECT_EQ(reply(alice, pull_of(0, 0xffffffff)).length, size);
  tp::owner_storage<1, 4> other;
  tp::owner<tp::xxhash_digest, small_cap> capped(other, [] { return 3ull; });
  ASSERT_TRUE(capped.publish(m.source(), version, true, id, 1));
  tp::owner<tp::xxhash_digest, small_cap>::peer link;
  tp::pending_reply r;
  ASSERT_TRUE(capped.handle(link, pull_of(0, tp::all_in_one_chunk), r));
  EXPECT_EQ(r.length, 100u) << "a cap that the owner has made lower";
  ASSERT_TRUE(capped.handle(link, ask(kind::describe), r));
  EXPECT_EQ(capped.expand(r).length, 100u);
}

TEST_F(Owner, R4_any_offset_is_served_exactly) {
  publish();
  const auto all = m.image_bytes();
  generator g(1);
  for (int i = 0; i < 200; ++i) {
    auto q = pull_of(g.below(size), static_cast<std::uint32_t>(1 + g.below(700)));
    q.chunk_digest = tp::digest_kind::xxh3_64;
    auto r = reply(alice, q);
    ASSERT_EQ(r.offset, q.offset);
    std::uint64_t allowance = 1000;
    std::byte memory[64];
    ASSERT_EQ(o.digest(r, allowance, memory), tp::digest_state::ready);
    tp::xxhash_digest h;
    h.update(std::span(all).subspan(r.offset, r.length));
    ASSERT_EQ(r.digest, h.digest());
  }
  EXPECT_EQ(reply(alice, pull_of(3, 5)).digest, 0u) << "no digest that nobody asked for";
}

TEST_F(Owner, R5_a_page_from_behind_the_last_tensor_is_empty) {
  publish();
  for (const std::uint64_t first : {std::uint64_t{9}, std::uint64_t{1} << 32, ~std::uint64_t{0}}) {
    auto q = ask(kind::schema);
    q.offset = first;
    const tp::frame page = o.expand(reply(alice, q));
    EXPECT_EQ(page.kind, kind::schema_page);
    EXPECT_TRUE(page.rows.empty());
    EXPECT_EQ(page.tensors, 9u);
  }
}

TEST_F(Owner, R6_reference_zero_and_near_misses_are_unknown_and_look_the_same) {
  publish();
  ASSERT_FALSE(o.publish(m.source(), version, true, {}, 1)) << "zero is no reference";
  ASSERT_FALSE(o.publish(m.source(), 0, true, {5, 5}, 1)) << "zero is no version";
  for (const tp::ref_id guess :
       {tp::ref_id{}, tp::ref_id{1, 3}, tp::ref_id{2, 1}, tp::ref_id{0, 2}, tp::ref_id{~0ull, ~0ull}})
    for (const kind k : {kind::describe, kind::pull, kind::schema, kind::confirm}) {
      const auto r = reply(alice, ask(k, guess, 7));
      EXPECT_EQ(r.kind, kind::refused);
      EXPECT_EQ(r.status, status::unknown_reference);
      EXPECT_EQ(r.version, 7u) << "only what the request said";
      EXPECT_EQ(r.nonce, 0u);
    }
  EXPECT_EQ(counts().acquired, 0u);
}

TEST_F(Owner, R7_ten_thousand_guesses_find_nothing_and_change_nothing) {
  publish();
  generator g(77);
  for (int i = 0; i < 10'000; ++i) {
    const auto r = reply(alice, ask(static_cast<kind>(g.below(2) == 0 ? 1 : 2), {g(), g()}));
    ASSERT_EQ(r.status, status::unknown_reference);
  }
  EXPECT_EQ(counts().acquired, 0u);
  EXPECT_EQ(reply(alice, ask(kind::describe)).kind, kind::description);
}

TEST_F(Owner, R8_after_withdrawal_confirmations_and_pulls_are_refused) {
  publish();
  const auto nonce = pull_all(alice);
  ASSERT_TRUE(o.withdraw(id));
  EXPECT_EQ(refusal(alice, pull_of(0, 8)), status::withdrawn);
  EXPECT_EQ(refusal(alice, confirmation(nonce, version, true)), status::withdrawn);
  EXPECT_EQ(counts().completed, 0u);
}

TEST_F(Owner, R9_the_same_request_gets_the_same_answer) {
  publish();
  auto q = pull_of(10, 500);
  q.chunk_digest = tp::digest_kind::xxh3_64;
  const auto a = reply(alice, q), b = reply(alice, q);
  EXPECT_EQ(std::tie(a.nonce, a.digest, a.offset, a.length), std::tie(b.nonce, b.digest, b.offset, b.length));
  EXPECT_EQ(counts().acquired, 1u);
}

TEST_F(Owner, R10_confirmations_without_a_fetch_of_anothers_fetch_and_twice_change_nothing) {
  publish(2);
  EXPECT_EQ(refusal(alice, confirmation(0, version, true)), status::bad_request);
  EXPECT_EQ(refusal(alice, confirmation(99, version, true)), status::bad_request);
  const auto described = reply(alice, ask(kind::describe));
  EXPECT_EQ(refusal(alice, confirmation(described.nonce, version, true)), status::bad_request)
      << "described, but nothing pulled";
  reply(alice, pull_of(0, 8));
  EXPECT_EQ(refusal(alice, confirmation(described.nonce, version, true)), status::bad_request)
      << "pulled, but not to the end";
  const auto nonce = pull_all(alice);
  EXPECT_EQ(refusal(bob, confirmation(nonce, version, true)), status::bad_request) << "another connection's";
  tp::recipient_record hers;
  ASSERT_EQ(o.recipients_of(id, {&hers, 1}), 1u);
  auto under_her_number = confirmation(nonce, version, true);
  under_her_number.recipient = hers.who;
  EXPECT_EQ(refusal(bob, under_her_number), status::bad_request) << "also under the number that she has at the owner";
  pull_all(bob);
  EXPECT_EQ(refusal(bob, confirmation(nonce, version, true)), status::bad_request);
  EXPECT_EQ(counts().final(), 0u);

  EXPECT_EQ(reply(alice, confirmation(nonce, version, true)).status, status::ok);
  EXPECT_EQ(reply(alice, confirmation(nonce, version, true)).status, status::ok) << "its answer may have been lost";
  EXPECT_EQ(reply(alice, confirmation(nonce, version + 1, true)).status, status::digest_mismatch);
  EXPECT_EQ(counts().completed, 1u);
  EXPECT_FALSE(o.settled(id));

  const auto again = pull_all(alice);
  EXPECT_NE(again, nonce) << "a new use has a new nonce";
  EXPECT_EQ(refusal(alice, confirmation(nonce, version, true)), status::bad_request) << "an old nonce";
  EXPECT_EQ(counts().completed, 1u);
}

TEST_F(Owner, R12_an_id_that_is_used_twice_gets_two_answers_each_to_its_own_request) {
  publish();
  const auto a = reply(alice, pull_of(0, 100)), b = reply(alice, pull_of(300, 50));  // both have the id 42
  EXPECT_EQ(std::tuple(a.offset, a.length), std::tuple(0u, 100u));
  EXPECT_EQ(std::tuple(b.offset, b.length), std::tuple(300u, 50u));
  auto other = ask(kind::describe, {8, 8});
  EXPECT_EQ(reply(alice, other).ref, other.ref);
}

TEST_F(Owner, R11_cancellations) {
  publish(2);
  tp::pending_reply r;
  auto cancel = ask(kind::cancel);
  cancel.nonce = 5;
  EXPECT_FALSE(o.handle(alice, cancel, r)) << "of an unknown transfer: no answer";
  EXPECT_EQ(counts().cancelled, 0u);
  const auto nonce = cancel.nonce = pull_all(alice);
  EXPECT_FALSE(o.handle(alice, cancel, r));
  EXPECT_FALSE(o.handle(alice, cancel, r)) << "twice";
  EXPECT_EQ(counts().cancelled, 1u);
  EXPECT_EQ(reply(alice, confirmation(nonce, version, true)).status, status::already_final)
      << "cancelled stays cancelled";
  EXPECT_EQ(counts().completed, 0u);
}

TEST_F(Owner, A_wrong_digest_is_counted_as_failed) {
  publish();
  const auto r = reply(alice, confirmation(pull_all(alice), version ^ 1, true));
  EXPECT_EQ(r.kind, kind::confirmed);
  EXPECT_EQ(r.status, status::digest_mismatch);
  EXPECT_EQ(counts().failed, 1u);
  EXPECT_EQ(counts().completed, 0u);
  EXPECT_TRUE(o.settled(id));
}

TEST_F(Owner, Without_a_digest_nobody_is_counted_as_completed) {
  publish();
  EXPECT_EQ(reply(alice, confirmation(pull_all(alice), version, false)).status, status::ok);
  EXPECT_EQ(counts().completed_unverified, 1u);
  EXPECT_EQ(counts().completed, 0u);
  ASSERT_TRUE(o.publish(m.source(), 77, false, id, 1));
  tp::frame q = confirmation(pull_all(bob), 77, true);
  EXPECT_EQ(reply(bob, q).status, status::ok);
  EXPECT_EQ(counts().completed, 0u) << "there is no published digest to compare with";
  EXPECT_EQ(counts().completed_unverified, 1u);
}

TEST_F(Owner, Publishing_again_makes_a_new_version_and_old_nonces_void) {
  publish();
  const auto nonce = pull_all(alice);
  const auto old = version;
  m.fill(2);
  version = version_of(m);
  publish();
  EXPECT_EQ(counts().acquired, 0u);
  EXPECT_EQ(refusal(alice, pull_of(0, 8, old)), status::stale);
  EXPECT_EQ(reply(alice, pull_of(0, 8, old)).version, version) << "the refusal says which is published now";
  EXPECT_EQ(refusal(alice, confirmation(nonce, old, true)), status::stale);
  EXPECT_EQ(counts().final(), 0u);
  EXPECT_EQ(reply(alice, confirmation(pull_all(alice), version, true)).status, status::ok);
}

TEST_F(Owner, Settlement_is_by_count_and_never_for_an_unknown_count) {
  EXPECT_TRUE(o.settled(id)) << "nothing is left of what nobody knows";
  publish(3);
  std::vector<owner::peer> links(3);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_FALSE(o.settled(id));
    reply(links[i], confirmation(pull_all(links[i]), version, true));
  }
  EXPECT_TRUE(o.settled(id));
  publish(0, {9, 9});
  owner::peer l;
  auto q = pull_of(0, static_cast<std::uint32_t>(size));
  q.ref = {9, 9};
  auto c = confirmation(reply(l, q).nonce, version, true);
  c.ref = {9, 9};
  EXPECT_EQ(reply(l, c).status, status::ok);
  EXPECT_FALSE(o.settled({9, 9}));
}

TEST_F(Owner, A_lost_connection_is_counted_and_what_was_final_is_not) {
  publish(2);
  const auto nonce = pull_all(alice);
  pull_all(bob);
  reply(alice, confirmation(nonce, version, true));
  o.forget(alice);
  EXPECT_EQ(counts().lost, 0u);
  o.forget(bob);
  o.forget(bob);
  EXPECT_EQ(counts().lost, 1u);
}

TEST_F(Owner, Too_many_transfers_of_one_connection_are_busy_and_finished_ones_make_room) {
  tp::owner_storage<8, 32> room;
  owner many(room, [this] { return random(); });
  for (std::uint64_t i = 1; i <= 6; ++i) ASSERT_TRUE(many.publish(m.source(), version, true, {i, i}, 1));
  tp::pending_reply r;
  for (std::uint64_t i = 1; i <= 5; ++i) {
    ASSERT_TRUE(many.handle(alice, ask(kind::describe, {i, i}), r));
    EXPECT_EQ(r.kind, i <= 4 ? kind::description : kind::refused) << i;
  }
  EXPECT_EQ(r.status, status::busy);
  auto cancel = ask(kind::cancel, {2, 2});
  ASSERT_TRUE(many.handle(alice, ask(kind::describe, {2, 2}), r));
  cancel.nonce = r.nonce;
  many.handle(alice, cancel, r);
  ASSERT_TRUE(many.handle(alice, ask(kind::describe, {5, 5}), r));
  EXPECT_EQ(r.kind, kind::description);
}

TEST_F(Owner, A_withdrawn_or_replaced_reference_does_not_keep_a_connection_busy) {
  for (int round = 0; round < 50; ++round) {  // a connection that lives through many rounds, and misses the end of each
    publish();
    EXPECT_EQ(reply(alice, ask(kind::describe)).kind, kind::description) << round;
    if (round % 2 == 0) {
      ASSERT_TRUE(o.withdraw(id));
    }
  }
}

TEST_F(Owner, A_full_table_is_said_and_withdrawn_slots_are_used_again) {
  for (std::uint64_t i = 1; i <= 4; ++i) publish(1, {i, 0});
  EXPECT_EQ(code_of(o.publish(m.source(), version, true, {5, 0}, 1)), errc::table_full);
  ASSERT_TRUE(o.withdraw({2, 0}));
  EXPECT_EQ(deliver().size(), 1u);
  EXPECT_TRUE(o.publish(m.source(), version, true, {5, 0}, 1));
  EXPECT_EQ(refusal(alice, ask(kind::describe, {2, 0})), status::unknown_reference);
  EXPECT_EQ(code_of(o.publish(m.source(), version, true, {2, 0}, 1)), errc::table_full);
}

}  // namespace owner_test
