// What must hold in each state of hosts' machines, and at the end. A number in a text is that of the rule in
// protocol/reference.md.
#pragma once

#include "explored/frames_in_words.hpp"
#include "explored/host_machines.hpp"

#include <algorithm>
#include <functional>

namespace test::hosts {

/// Looks at the machines after each step.
class host_rules : public host_machines {
 public:
  using host_machines::host_machines;

  void at_the_end() {
    for (unsigned i = 0; i < 2; ++i) {
      const one_recipient& r = at(i);
      for (unsigned ref = 0; ref < 2; ++ref) {
        const how_it_ended& d = r.done[ref];
        if (!d.over) wrong = "a recipient has not ended";
        const bool good = d.over && d.completed && d.confirmed;
        if (looks(i)) continue;
        if (good || r.lied || r.lied_to || (r.gave_up[ref] && d.code == errc::cancelled)) continue;
        const bool known = (d.code == errc::withdrawn && state.withdrawn[ref]) ||
                           (d.code == errc::stale_version && state.other[ref]) ||
                           (d.code == errc::ended && state.settled[ref]) ||
                           // an earlier one of its number had all, or its owner has given it up
                           (d.code == errc::already_final &&
                            (state.recorded[i][ref] != 0 || (d.completed && state.passed))) ||
                           (d.code == errc::unknown_reference && state.owners > 1 && !state.published[ref]) ||
                           (d.code == errc::unknown_reference && setting_.joins && ref == 1) ||
                           (d.completed && d.code == errc::bad_request && setting_.counts == counting::unknown);
        if (!known)
          wrong = d.completed ? "without another fault it is not confirmed (12, 30, 39)"
                              : "without another fault it does not complete (17, 20, 35, 38)";
      }
    }
    for (const one_transaction& t : state.transactions)
      if (t.there && !t.told) wrong = "a transaction has not settled (16)";
  }

 protected:
  void look_at_owner() {
    std::uint32_t ends = 0;
    for (const auto of : state.of) ends += of != none;
    if (ends == 0) {
      must(buffers().available() == setting_.buffers, "a connection is gone, and its buffer with it");
      for (const tp::recipient_record& r : tables().records)
        must(!counts(r) || r.connection == 0, "nobody is connected, and a record has a connection (33)");
    }
    for (const tp::publication& p : tables().slots) must(p.pins == 0, "nothing is sent, and an image is read (3)");
    for (const one_transaction& t : state.transactions) {
      if (!t.there || t.told || t.open || t.named == 0) continue;
      bool all = true;
      for (unsigned x = 0; x < 2; ++x)
        if ((t.named >> x & 1) != 0) all = all && has_ended(t, x);
      must(!all, "all have ended, and the transaction has not settled (16, 17)");
    }
  }
  /// `t`: what it pulls with.
  template <class Transfer>
  void look_at_recipient(unsigned i, const Transfer& t) noexcept {
    one_recipient& r = at(i);
    if (r.pulls == 2) return;
    must(t.landed_bytes() >= r.landed, "bytes that have landed are fetched again (27, 35)");
    r.landed = t.landed_bytes();
    must(t.answers() < t.next_id(), "more was answered than asked (14)");
    must(r.total == 0 || t.total_bytes() == r.total, "the image has another size than was described (1)");
    if (!setting_.by_name || landing(i).version != 0) r.total = t.total_bytes();
    const unsigned content = content_of(r.pulls, landing(i).version);
    if (const std::uint64_t finished = landing(i).finished; finished != 0) {
      const unsigned of = content_of(r.pulls, finished);
      must(finished == landing(i).version, "it finishes another version (11)");
      must(of != 0 && std::memcmp(r.data[r.pulls], source_[r.pulls][of == 2 ? 1 : 0][0], data_bytes) == 0,
           "it finishes with other bytes than those that were published (11, 13)");
      r.held[r.pulls] |= of;
    }
    if (setting_.pinned && landing(i).version != 0) must(content == 1, "it pulls another version than it was to (35)");
    if (r.lied_to) return;
    if (landing(i).version != 0) must(content != 0, "it pulls what nobody published (1)");
    const std::uint64_t here = r.landed - std::min<std::uint64_t>(r.landed, data_begins());
    for (std::size_t k = 0; k < data_bytes; ++k) {
      const std::byte is = r.data[r.pulls][k], should = source_[r.pulls][content == 2 ? 1 : 0][0][k];
      must(is == should || (k >= here && is == std::byte{0}), "bytes land that were not published there (1)");
    }
  }

  bool looks(unsigned x) const noexcept { return x == 1 && setting_.second_looks; }
  static bool is_given_up(recipient_state s) noexcept {
    return s == recipient_state::failed || s == recipient_state::cancelled || s == recipient_state::vanished;
  }
  /// How a recipient stands over all references (17); `acquired`: it is awaited.
  static recipient_state standing(const one_transaction& t, unsigned x, bool over = false) noexcept {
    recipient_state worst = recipient_state::unfinished, best = recipient_state::completed;
    bool all = true, any = false, open = false;
    for (unsigned ref = 0; ref < 2; ++ref) {
      if ((t.of >> ref & 1) == 0) continue;
      const recipient_state s = t.state[x][ref];
      all = all && has_completed(s);
      if (has_completed(s)) best = std::max(best, s);
      any = any || (s != recipient_state::unseen && s != recipient_state::absent);
      open = open || (!is_final(s) && !over);
      if (is_given_up(s)) worst = std::min(worst, s);
    }
    if (worst != recipient_state::unfinished) return worst;
    if (all) return best;
    if (open) return recipient_state::acquired;
    return any ? recipient_state::unfinished : recipient_state::absent;
  }
  static bool has_ended(const one_transaction& t, unsigned x) noexcept {
    const recipient_state s = standing(t, x);
    return s != recipient_state::acquired && s != recipient_state::unfinished;
  }
  /// Whether a transaction is over that did not wait for this recipient.
  bool is_not_awaited(const tp::recipient_record& r, unsigned x) noexcept {
    const unsigned n = r.transaction.number;
    const bool over = r.state == recipient_state::unfinished || r.state == recipient_state::absent;
    if (n == 0 || n > most_transactions || !over) return false;
    const one_transaction& t = state.transactions[n - 1];
    return (t.named >> x & 1) == 0 || has_ended(t, x);
  }
  static bool may_become(recipient_state from, recipient_state to) noexcept {
    using enum tp::recipient_state;
    switch (from) {
      case unseen: return to == acquired || to == provisional || to == absent || to == vanished;
      case acquired: return to != unseen && to != absent;
      case provisional: return is_final(to) && to != absent;
      case failed:
      case cancelled: return to == acquired || to == provisional;
      case vanished: return to == acquired || to == provisional || to == completed || to == unseen;
      case absent: return to == acquired || to == provisional || to == unseen;
      default: return false;
    }
  }
  /// Looks how far the owner takes its recipients to be.
  void scan() noexcept {
    for (const tp::recipient_record& r : tables().records) {
      const unsigned x = r.who ? index_of(r.who) : none, n = r.transaction.number;
      if (x == none || n == 0 || n > most_transactions) continue;
      one_transaction& t = state.transactions[n - 1];
      const unsigned ref = index_of(r.ref);
      const recipient_state was = std::exchange(t.state[x][ref], r.state);
      if (was == r.state) continue;
      if (r.state == recipient_state::acquired || has_completed(r.state)) t.moved_at = state.now;
      if (r.state == recipient_state::completed) {
        const auto& said = state.said[x][ref];
        must(std::find(std::begin(said), std::end(said), r.nonce) != std::end(said),
             "the owner counts one that has not confirmed its serve and its digest (10)");
        must(r.at_end && r.bytes > 0, "the owner counts one that it has not served the end (10, 39)");
      }
      if (x == 2 || at(x).lied) {
        must(!has_completed(was) || has_completed(r.state), "a recipient that has completed does not stay so (20)");
        continue;
      }
      if (looks(x))
        must(r.state != recipient_state::failed && r.state != recipient_state::cancelled && !has_completed(r.state),
             "one that only looked has ended (21)");
      const bool declined = (at(x).lied_to || looks(x)) && r.state == recipient_state::unseen && !is_final(was);
      must(declined || may_become(was, r.state), "a recipient's state changes as it cannot (19, 20)");
      if (r.state == recipient_state::acquired) state.payload_at[x] = state.now;
      if (r.state == recipient_state::completed) {
        const unsigned content = content_of(ref, r.version);
        must((at(x).held[ref] & content) != 0, "the owner counts a recipient that never held the bytes (10)");
        state.recorded[x][ref] |= static_cast<std::uint8_t>(content);
      }
      const how_it_ended& d = at(x).done[ref];
      if (r.state == recipient_state::failed) must(at(x).lied_to, "the owner believes of wrong bytes (19)");
      if (r.state == recipient_state::cancelled)
        must(at(x).gave_up[ref] || at(x).lied_to || (d.over && !d.completed),
             "the owner believes that one gave up (22)");
      if (r.state == recipient_state::cancelled && d.over)
        must(d.code != errc::digest_mismatch, "wrong bytes count as given up (19)");
      if (r.state == recipient_state::vanished)
        must(state.now - state.payload_at[x] > idle_ms, "one vanishes before its time (18)");
      if (r.state == recipient_state::absent && counts(r)) {
        must(state.now - t.opened_at > acquire_ms, "one is absent before its time (18)");
        for (unsigned k = 0; k < 2; ++k)
          if ((t.of >> k & 1) != 0 && k != ref)
            must(t.state[x][k] == recipient_state::unseen || t.state[x][k] == recipient_state::absent,
                 "one that has asked for another reference is absent (18)");
      }
    }
  }
  void deliver() noexcept {
    scrub();
    scan();
    tp::settlement s;
    tp::callback<const tp::settlement&> tell;
    while (const tp::transaction_id id = own().next_settled(s, tell)) {
      look_at_settlement(s);
      if (own().returned(id)) own().released(id);
    }
  }
  void look_at_settlement(const tp::settlement& s) noexcept {
    const unsigned n = s.id.number;
    if (n == 0 || n > most_transactions || !state.transactions[n - 1].there)
      return must(false, "a transaction settles that nobody opened (31)");
    one_transaction& t = state.transactions[n - 1];
    must(!std::exchange(t.told, true), "a settlement is told twice (31)");
    must(!t.open || t.by_hand, "a transaction settles that references may still join (26)");
    for (const tp::publication& p : tables().slots)
      must(p.transaction != s.id || p.pins == 0, "a settlement is told while an image is read (31)");
    for (unsigned ref = 0; ref < 2; ++ref)
      if ((t.of >> ref & 1) != 0) {
        state.settled[ref] = true;
        if (own().transaction_of(refs[ref]) == s.id) state.published[ref] = false;
      }
    if (setting_.counts != counting::named) {
      must(s.verdict != tp::verdict::completed || (setting_.counts == counting::by_number && s.counts.completed >= 2),
           "a verdict that its counts do not bear (16)");
      return;
    } else if (t.named == 0) {
      return must(s.verdict != tp::verdict::completed, "an unknown number has completed (16)");
    }
    tp::publication_status c;
    unsigned expected = 0;
    bool all_ended = true;
    for (unsigned x = 0; x < 2; ++x) {
      if ((t.named >> x & 1) == 0) continue;
      ++expected, ++c.of(standing(t, x, true));
      all_ended = all_ended && has_ended(t, x);
    }
    must(s.expected == expected && s.counts.final() == expected, "a recipient is not counted once (17)");
    must(s.counts.completed == c.completed && s.counts.completed_unverified == c.completed_unverified &&
             s.counts.failed == c.failed && s.counts.cancelled == c.cancelled && s.counts.vanished == c.vanished &&
             s.counts.absent == c.absent && s.counts.unfinished == c.unfinished,
         "the counts are not those of the recipients (16, 17, 22)");
    tp::verdict should = t.by_hand ? tp::verdict::withdrawn : tp::verdict::failed;
    if (c.completed + c.completed_unverified == expected) should = tp::verdict::completed_unverified;
    if (c.completed == expected) should = tp::verdict::completed;
    must(s.verdict == should, "the verdict is not that of the counts (16)");
    must(all_ended || t.by_hand || state.now - t.moved_at > transaction_idle_ms,
         "a transaction settles too early (16)");
  }
  void look_at_the_end(unsigned i, unsigned ref, const how_it_ended& d) noexcept {
    const one_recipient& r = at(i);
    if (d.completed) {
      const unsigned content = content_of(ref, d.version);
      must(content != 0 || r.lied_to, "it has completed what nobody published (11)");
      must((r.held[ref] & content) != 0 || r.lied_to, "it has completed, and its consumer has not finished (12)");
      if (d.confirmed && !r.lied && !r.lied_to)
        must((state.recorded[i][ref] & content) != 0, "it is confirmed, and the owner has no record of it (11)");
    }
    if (d.code == errc::withdrawn && !r.lied_to) {
      must(state.withdrawn[ref], "it hears of a withdrawal that was none (28)");
      must(d.completed || d.system == static_cast<int>(withdrawn_because) || state.ended, "the reason is lost (28)");
    }
    if (d.code != errc::ended || r.lied_to || r.lied) return;
    must(state.settled[ref], "it has ended, and nothing has settled (32)");
    const auto known = own().recipient_of(refs[ref], names[i]);
    must(landing(i).version != 0 || !known || known->state != recipient_state::completed,
         "one that has completed asks, and hears that it is over (32)");
  }
  /// Payload is read where it is published now.
  template <class Plan>
  void look_at_spans(const Plan& plan) noexcept {
    const std::byte* const all = source_[0][0][0];
    for (std::size_t k = 0; k < plan.span_count; ++k) {
      const std::byte* const p = plan.spans[k].data();
      if (std::less<>()(p, all) || !std::less<>()(p, all + sizeof source_)) continue;
      const auto at = static_cast<std::size_t>(p - all) / data_bytes;
      const unsigned ref = static_cast<unsigned>(at / 4);
      must(state.published[ref] && at % 4 == 2u * state.content[ref] + state.copy[ref],
           "an image is read that is not published any more (3, 28)");
    }
  }
};

}  // namespace test::hosts
