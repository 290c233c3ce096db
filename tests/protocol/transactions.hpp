// An owner whose clock is a number, and what recipients say to it, for tests of transactions.
#pragma once

#include "support/models.hpp"

#include <tensorpull/integrity/xxhash/policies.hpp>
#include <tensorpull/protocol/owner/owner.hpp>

#include <optional>
#include <vector>

namespace test::transactions {

using kind = tp::frame_kind;
using tp::recipient_state;
using tp::status;
using tp::verdict;
using owner = tp::owner<tp::xxhash_digest>;

constexpr tp::ref_id id{1, 2}, other{3, 4};
constexpr tp::recipient_id ada{11}, bob{12}, eve{13};

inline std::vector<tp::recipient_id> numbered(std::uint64_t n) {
  std::vector<tp::recipient_id> all;
  for (std::uint64_t i = 1; i <= n; ++i) all.push_back({i});
  return all;
}

/// How many are expected to have ended in which way; those that are not named may be any number.
struct recipients_that {
  std::optional<std::uint32_t> acquired{}, completed{}, completed_unverified{}, failed{}, cancelled{}, vanished{},
      absent{}, unfinished{}, unlisted{}, all{};
};

struct Transactions : testing::Test {
  model m = mixed_model().fill(1);
  tp::owner_storage<5, 16> storage;
  generator random{5};
  owner o{storage, [this] { return random(); }};
  std::uint64_t version = version_of(m);
  std::vector<tp::settlement> settled;

  tp::transaction_options counted(std::uint32_t n, std::uint32_t least = 0) {
    tp::transaction_options t;
    t.recipients = n;
    t.least = least;
    return t;
  }
  tp::transaction_options named(std::span<const tp::recipient_id> who) {
    tp::transaction_options t;
    t.named = who;
    return t;
  }
  /// In a transaction of its own, or in one that is open.
  template <class Options>
  void publish(const Options& t, tp::ref_id as = id) {
    ASSERT_TRUE(o.publish(m.source(), version, true, as, t));
  }
  /// Both references, in one transaction.
  void publish_both(const tp::transaction_options& how) {
    const auto t = o.open_transaction(how);
    ASSERT_TRUE(t);
    publish(*t);
    publish(*t, other);
    o.seal(*t);
    deliver();
  }
  /// What drivers do after each step.
  void deliver() {
    tp::settlement s;
    for (tp::callback<const tp::settlement&> tell; o.next_settled(s, tell);) {
      settled.push_back(s);
      if (tell) tell(s);
      if (o.returned(s.id)) o.released(s.id);
    }
  }
  void tell_progress() {
    tp::progress_event e;
    tp::callback<const tp::progress_event&> tell;
    while (const tp::transaction_id of = o.next_event(e, tell)) tell(e), (void)o.returned(of);
  }
  /// So many transactions have settled: the last one in this way, and so many of its recipients in these.
  testing::AssertionResult settled_as(std::size_t n, verdict how, const recipients_that& expected = {}) const {
    if (settled.size() != n) return testing::AssertionFailure() << settled.size() << " have settled ";
    const auto& last = settled.back();
    if (last.verdict != how) return testing::AssertionFailure() << to_string(last.verdict) << ' ';
    const auto& c = last.counts;
    auto result = testing::AssertionSuccess();
    const auto compare = [&](const char* what, std::optional<std::uint32_t> wanted, std::uint32_t is) {
      if (wanted && *wanted != is) result = testing::AssertionFailure() << what << " is " << is << ' ';
    };
    compare("acquired", expected.acquired, c.acquired);
    compare("completed", expected.completed, c.completed);
    compare("completed_unverified", expected.completed_unverified, c.completed_unverified);
    compare("failed", expected.failed, c.failed);
    compare("cancelled", expected.cancelled, c.cancelled);
    compare("vanished", expected.vanished, c.vanished);
    compare("absent", expected.absent, c.absent);
    compare("unfinished", expected.unfinished, c.unfinished);
    compare("unlisted", expected.unlisted, c.unlisted);
    compare("all", expected.all, c.final());
    return result;
  }
  void at(std::uint64_t ms) {
    o.advance(std::chrono::milliseconds(ms));
    deliver();
  }
  tp::frame ask(kind k, tp::recipient_id who, tp::ref_id ref = id) const {
    tp::frame q;
    q.kind = k;
    q.id = 7;
    q.ref = ref;
    q.recipient = who;
    return q;
  }
  tp::pending_reply say(owner::peer& l, const tp::frame& q) {
    tp::pending_reply r;
    r.kind = kind::nothing;
    o.handle(l, q, r);
    deliver();
    return r;
  }
  tp::pending_reply describe(owner::peer& l, tp::recipient_id who, tp::ref_id ref = id) {
    return say(l, ask(kind::describe, who, ref));
  }
  tp::pending_reply pull(owner::peer& l, std::uint64_t offset, std::uint32_t length, tp::ref_id ref = id) {
    auto q = ask(kind::pull, {}, ref);
    q.offset = offset;
    q.length = length;
    return say(l, q);
  }
  tp::pending_reply confirm(owner::peer& l, tp::recipient_id who, std::uint64_t nonce, std::uint64_t digest,
                            tp::ref_id ref = id) {
    auto q = ask(kind::confirm, who, ref);
    q.version = version;
    q.nonce = nonce;
    q.digest = digest;
    q.flag = digest != 0;
    return say(l, q);
  }
  /// Everything up to the confirmation; its nonce.
  std::uint64_t take_all(owner::peer& l, tp::recipient_id who, tp::ref_id ref = id) {
    EXPECT_EQ(describe(l, who, ref).kind, kind::description);
    return pull(l, 0, 1u << 30, ref).nonce;
  }
  status complete(owner::peer& l, tp::recipient_id who, tp::ref_id ref = id) {
    return confirm(l, who, take_all(l, who, ref), version, ref).status;
  }
  void cancel(owner::peer& l, tp::recipient_id who, std::uint64_t nonce, std::uint32_t reason = 0,
              tp::ref_id ref = id) {
    auto q = ask(kind::cancel, who, ref);
    q.nonce = nonce;
    q.reason = reason;
    say(l, q);
  }
  recipient_state state(tp::recipient_id who, tp::ref_id ref = id) {
    const auto r = o.recipient_of(ref, who);
    return r ? r->state : recipient_state::unseen;
  }
};

}  // namespace test::transactions
