// Access to references: when the program is asked, and that a refusal looks like a reference that nobody knows.
#include "transactions.hpp"

#include <cstring>
#include <string>
#include <tuple>

namespace authorise_test {

using namespace test;
using namespace test::transactions;

/// Somebody whom the transport knows.
struct known {
  std::uint32_t user = 0;
  tp::peer_identity peer() const noexcept { return {.kind = tp::identity_kind::user, .user = user}; }
};

struct Authorise : Transactions {
  owner::peer line, stranger;
  known her{1000}, him{1001};
  std::vector<tp::access_request> asked;

  /// Only user 1000 may have `id`, and only as ada or without a name.
  void guard() {
    o.authorise([this](const tp::access_request& r) {
      asked.push_back(r);
      return r.peer.kind == tp::identity_kind::user && r.peer.user == 1000 && r.ref == id &&
             (!r.recipient || r.recipient == ada);
    });
  }
  tp::pending_reply say_as(owner::peer& l, const known& who, const tp::frame& q) {
    tp::pending_reply r;
    r.kind = kind::nothing;
    o.handle(l, q, r, tp::identity_source(who));
    deliver();
    return r;
  }
  tp::frame locate_as(owner::peer& l, const known& who, tp::ref_id ref) {
    const std::string_view names[] = {m.schema().tensors[0].name};
    tp::frame q = ask(kind::locate, {}, ref), answer;
    q.names = names;
    tp::byte_range ranges[4];
    while (o.locate(l, q, ranges, answer, tp::identity_source(who)) == tp::digest_state::working) {
    }
    return answer;
  }
};

TEST_F(Authorise, A_peer_that_may_not_hears_the_answer_to_an_unknown_reference) {
  publish(counted(2));
  guard();
  for (const kind k : {kind::describe, kind::pull, kind::schema, kind::confirm, kind::cancel}) {
    tp::frame q = ask(k, {});
    q.length = 100;
    q.nonce = 5;
    q.version = version;
    const auto refused = say_as(line, him, q);
    q.ref = other;
    const auto unknown = say_as(line, him, q);
    EXPECT_EQ(refused.kind, unknown.kind);
    EXPECT_EQ(refused.status, unknown.status) << static_cast<int>(k);
    EXPECT_TRUE(k == kind::cancel || refused.status == status::unknown_reference);
    const auto said = [](const tp::pending_reply& r) {
      return std::tuple(r.id, r.nonce, r.version, r.offset, r.length, r.slot, r.generation, r.record);
    };
    EXPECT_EQ(said(refused), said(unknown)) << static_cast<int>(k);
  }
  const auto refused = locate_as(line, him, id), unknown = locate_as(line, him, other);
  EXPECT_EQ(refused.status, status::unknown_reference);
  EXPECT_EQ(std::tuple(refused.kind, refused.status, refused.version, refused.nonce, refused.delay_ms, refused.offset),
            std::tuple(unknown.kind, unknown.status, unknown.version, unknown.nonce, unknown.delay_ms, unknown.offset));
  EXPECT_EQ(o.status_of(id)->acquired, 0u) << "nobody was counted";
}
TEST_F(Authorise, It_is_asked_for_unknown_references_too) {
  guard();
  (void)say_as(line, her, ask(kind::describe, {}, other));
  ASSERT_EQ(asked.size(), 1u) << "otherwise a refusal would take longer than an unknown reference";
  EXPECT_EQ(asked[0].ref, other);
}
TEST_F(Authorise, A_withdrawn_reference_is_not_told_either) {
  publish(counted(2));
  guard();
  ASSERT_TRUE(o.withdraw(id, 77));
  EXPECT_EQ(say_as(stranger, him, ask(kind::describe, {})).status, status::unknown_reference);
  EXPECT_EQ(say_as(line, her, ask(kind::describe, {})).status, status::withdrawn);
}
TEST_F(Authorise, One_that_completed_is_told_so_only_if_it_may) {
  publish(counted(1));
  ASSERT_EQ(complete(line, bob), status::ok);
  ASSERT_TRUE(o.withdraw(id));
  guard();
  EXPECT_EQ(say_as(stranger, her, ask(kind::describe, bob)).status, status::unknown_reference);
}
TEST_F(Authorise, A_named_recipient_is_claimed_only_by_its_identity) {
  const tp::recipient_id both[] = {ada, bob};
  publish(named(both));
  guard();
  EXPECT_EQ(say_as(line, her, ask(kind::describe, bob)).status, status::unknown_reference)
      << "bob's number is not hers";
  EXPECT_EQ(state(bob), recipient_state::unseen);
  EXPECT_EQ(say_as(line, her, ask(kind::describe, ada)).kind, kind::description);
  EXPECT_EQ(asked.back().recipient, ada);
  EXPECT_EQ(say_as(line, her, ask(kind::describe, bob)).status, status::unknown_reference)
      << "nor does it become hers later";
  tp::frame q = ask(kind::confirm, bob);
  q.nonce = 1;
  EXPECT_EQ(say_as(line, her, q).status, status::unknown_reference) << "nor by a confirmation";
}
TEST_F(Authorise, It_hears_whether_a_number_is_expected_by_name) {
  const tp::recipient_id one[] = {ada};
  publish(named(one));
  guard();
  for (const auto who : {ada, bob}) {
    (void)say_as(line, her, ask(kind::describe, who));
    EXPECT_EQ(asked.back().expected, who == ada);
  }
  ASSERT_TRUE(o.publish(m.source(), version, true, other, o.transaction_of(id), tp::detail::tells_nobody{}, true));
  (void)say_as(stranger, her, ask(kind::describe, ada, other));
  EXPECT_TRUE(asked.back().expected) << "beside it, too";
}
TEST_F(Authorise, A_certificate_has_its_common_name_and_its_alternative_ones) {
  const std::string_view others[] = {"DNS:site-4", "site-5", "URI:"};
  tp::peer_identity peer{.kind = tp::identity_kind::certificate, .name = "site-3", .alternatives = others};
  for (const auto name : {"site-3", "site-4", "site-5"})
    EXPECT_TRUE(tp::is_certified_as(peer, tp::recipient_named(name))) << name;
  for (const auto name : {"site-6", "DNS:site-4", ""})
    EXPECT_FALSE(tp::is_certified_as(peer, tp::recipient_named(name))) << name;
  peer.kind = tp::identity_kind::account;
  EXPECT_FALSE(tp::is_certified_as(peer, tp::recipient_named("site-3")));
}
TEST_F(Authorise, A_permission_is_remembered_for_the_connection) {
  publish(counted(2));
  guard();
  EXPECT_EQ(say_as(line, her, ask(kind::describe, ada)).kind, kind::description);
  for (int i = 0; i < 100; ++i) {
    tp::frame q = ask(kind::pull, {});
    q.length = 8;
    EXPECT_EQ(say_as(line, her, q).kind, kind::chunk);
  }
  EXPECT_EQ(locate_as(line, her, id).kind, kind::located);
  EXPECT_EQ(asked.size(), 1u);
  owner::peer another;
  EXPECT_EQ(say_as(another, her, ask(kind::describe, {})).kind, kind::description);
  EXPECT_EQ(asked.size(), 2u) << "another connection";
  publish(counted(2));  // another version takes its place
  EXPECT_EQ(say_as(line, her, ask(kind::describe, ada)).kind, kind::description);
  EXPECT_EQ(asked.size(), 3u) << "another publication";
  // a refusal is not remembered: the program may change its mind
  EXPECT_EQ(say_as(stranger, him, ask(kind::describe, {})).status, status::unknown_reference);
  o.authorise([](const tp::access_request&) { return true; });
  EXPECT_EQ(say_as(stranger, him, ask(kind::describe, {})).kind, kind::description);
}
TEST_F(Authorise, A_transfer_goes_through_as_before) {
  publish(counted(1));
  guard();
  owner::peer l;
  EXPECT_EQ(say_as(l, her, ask(kind::describe, ada)).kind, kind::description);
  tp::frame q = ask(kind::pull, {});
  q.length = 1u << 30;
  const auto nonce = say_as(l, her, q).nonce;
  q = ask(kind::confirm, ada);
  q.version = q.digest = version;
  q.nonce = nonce;
  q.flag = true;
  EXPECT_EQ(say_as(l, her, q).status, status::ok);
  EXPECT_TRUE(settled_as(1, verdict::completed));
}

}  // namespace authorise_test
