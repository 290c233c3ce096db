// Which recipient is served over which connection, and how its confirmation or cancellation ends that.
#pragma once

#include <tensorpull/core/splitmix64.hpp>
#include <tensorpull/protocol/owner/detail/transaction_table.hpp>
#include <tensorpull/protocol/pending_reply.hpp>

#include <cstddef>
#include <cstdint>

namespace tensorpull::detail {

/// How long a peer is to wait that is told `busy`; limits_policy has bounded it.
template <class Limits>
inline constexpr auto busy_delay_ms = static_cast<std::uint32_t>(Limits::busy_delay.count());
/// Answers `busy`, which is always an answer.
template <class Limits>
void put_off(frame& answer) noexcept {
  answer.status = status::busy;
  answer.delay_ms = busy_delay_ms<Limits>;
}

/// The answer for what was published and is not any more. `p`: where it was; nullptr: nobody knows. True, as refuse().
inline bool refuse_over(pending_reply& out, const publication* p) noexcept {
  const bool known = p != nullptr && p->id == out.ref;
  out.length = known ? p->reason : 0;
  return refuse(out, known ? status_over(*p) : status::withdrawn);
}
/// The answer about a serve that is not known. `there`: what is under the reference now.
inline void refuse_serve(pending_reply& out, const publication* there) noexcept {
  if (there == nullptr) refuse(out, status::unknown_reference);
  else if (there->now == publication::state::withdrawn) refuse_over(out, there);
  else refuse(out, status::bad_request);
}
/// The answer about a serve that was over before its recipient had ended. If the same content was published again, it
/// is a serve that nobody knows: its recipient begins another.
inline void refuse_late(pending_reply& out, const publication* there) noexcept {
  if (there == nullptr || there->now != publication::state::published) refuse_over(out, there);
  else refuse(out, there->version == out.version ? status::bad_request : status::stale);
}
/// The answer to a confirmation from a recipient that has ended before.
inline status verdict_on(const recipient_record& r, const frame& m) noexcept {
  const std::uint64_t digest = r.subset ? r.subset_digest : r.version;
  switch (r.state) {
    case recipient_state::completed: return !m.flag || m.digest == digest ? status::ok : status::digest_mismatch;
    case recipient_state::completed_unverified: return status::ok;
    case recipient_state::failed: return status::digest_mismatch;
    default: return status::already_final;
  }
}

/// The use of one publication by one connection. The recipient's record has what is known about the recipient, and the
/// state of the serve if no other connection has used the record since.
struct serve : serve_state {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;  ///< 0: this entry is free
  std::uint32_t record = 0;
};
/// The serve that a connection has, or had last, under a record, which another may have used since. `entry`: its own.
inline serve_state served(const serve* entry, const recipient_record& r, std::uint32_t connection) noexcept {
  if (entry != nullptr && r.connection != connection) return *entry;
  return r;
}

/// The memory of an owner about one connection: the identity of its other end, and at most `Most` references that it is
/// pulling.
template <std::size_t Most>
class served_peer {
 public:
  /// As the last description was asked for; none: anonymous.
  recipient_id who() const noexcept { return who_; }
  /// Of this connection at its owner; 0: not used yet.
  std::uint32_t number() const noexcept { return number_; }
  /// Its use of a publication; nullptr: it does not use it.
  serve* find(std::uint32_t slot, std::uint32_t generation) noexcept {
    for (serve& s : serves_)
      if (s.generation == generation && s.slot == slot) return &s;
    return nullptr;
  }

 private:
  template <std::size_t>
  friend class serve_book;

  /// A free entry, or one that is `over(entry)`. nullptr: too many transfers are open.
  template <class Over>
  serve* place(Over over) noexcept {
    for (serve& s : serves_)
      if (s.generation == 0 || over(s)) return &s;
    return nullptr;
  }

  recipient_id who_{};
  recipient_id anonymous_{};  // the owner's name for it then
  std::uint32_t number_ = 0;
  serve serves_[Most]{};
};

/// Numbers for what is served.
class serve_numbers {
 public:
  /// `random()` gives unguessable 64-bit numbers; it is called twice.
  template <class Random>
  explicit serve_numbers(Random& random) noexcept : nonces_{random()}, step_(random() | 1) {}

  /// Names a serve; never 0, which is no nonce. It tells serves apart; it does not authenticate.
  std::uint64_t fresh_nonce() noexcept {
    const std::uint64_t n = nonces_(step_);
    return n != 0 ? n : 1;
  }
  /// Names a connection; never 0.
  std::uint32_t fresh_connection() noexcept { return ++connections_; }

 private:
  splitmix64 nonces_;
  std::uint64_t step_;
  std::uint32_t connections_ = 0;
};

/// The serves of an owner: each has a nonce of its own, belongs to one recipient of one publication, and ends once. Not
/// thread-safe: the owner has the lock.
template <std::size_t Most>
class serve_book {
 public:
  using peer = served_peer<Most>;

  /// Borrows both.
  serve_book(transaction_table& all, serve_numbers& numbers) noexcept : transactions(all), numbers_(numbers) {}

  /// The transactions that the recipients take part in.
  transaction_table& transactions;

  /// Takes note of the recipient at the other end.
  void greet(peer& from, recipient_id who) noexcept {
    if (from.who_ == who) return;
    for (serve& s : from.serves_) leave(from, s);
    from.who_ = who;
  }
  /// The connection is gone: each transfer that it had not finished counts as `lost`.
  void forget(peer& from) noexcept {
    for (serve& s : from.serves_) leave(from, s);
    from = {};
  }

  /// The peer's record for a publication. nullptr: it has too many transfers open, or the table is full of others.
  recipient_record* use(peer& from, publication& slot) noexcept {
    const std::uint32_t number = transactions.publications.index(slot);
    serve* entry = from.find(number, slot.generation);
    recipient_record* r = entry != nullptr ? record_of(from, *entry) : nullptr;
    if (r != nullptr && r->serving && !is_final(r->state)) return r;
    const bool goes_on = entry != nullptr;
    if (entry == nullptr)
      entry = from.place([&](const serve& e) {
        const recipient_record* const old = record_of(from, e);
        return old == nullptr || !old->serving || is_final(old->state);
      });
    if (entry == nullptr) return nullptr;
    if (!goes_on)
      leave(from, *entry);  // the record that it was for is not this connection's any more, so it may make room
    if (from.number_ == 0) {
      from.number_ = numbers_.fresh_connection();
      from.anonymous_ = {numbers_.fresh_nonce()};
    }
    r = transactions.acquire(slot, from.who_ ? from.who_ : from.anonymous_, !from.who_);
    if (r == nullptr) return nullptr;
    if (goes_on && r->connection != from.number_)
      state_of(*r) = state_of(*entry);  // another connection was served under its name meanwhile
    r->connection = from.number_;
    if (!r->serving) {  // one that returns before the end continues the serve that was begun
      r->serving = true;
      r->nonce = numbers_.fresh_nonce();
      r->at_end = false;
    }
    *entry = {state_of(*r), number, slot.generation, transactions.records.index(*r)};
    return r;
  }
  /// The serve of the connection that uses the record.
  void keep(peer& from, recipient_record& r) noexcept {
    if (serve* const entry = entry_of(from, r)) state_of(*entry) = state_of(r);
  }
  /// The record of the recipient that a confirmation or a cancellation is from, if it has asked: for `m.version`, or if
  /// that is 0 for any, the last one. Without a name it is the connection's own. nullptr: there is none.
  const recipient_record* record_for(const peer& from, const frame& m) noexcept {
    const recipient_id who = m.recipient ? m.recipient : from.anonymous_;
    const recipient_record* r = who ? transactions.records.find(m.ref, who) : nullptr;
    const auto other = [&] { return r->nonce == 0 || (m.version != 0 && r->version != m.version); };
    while (r != nullptr && other()) r = transactions.records.before(*r);
    return r;
  }

  /// The answer for a reference that is not published. A recipient that completed it is told so.
  bool over(pending_reply& out, const publication* slot, const frame& m) noexcept {
    const recipient_record* r = nullptr;
    if (m.kind == frame_kind::describe && m.recipient)
      r = slot == nullptr ? transactions.records.find(m.ref, m.recipient) : transactions.record_of(*slot, m.recipient);
    if (r != nullptr && has_completed(r->state)) return refuse(out, status::already_final);
    return slot == nullptr ? refuse(out, status::unknown_reference) : refuse_over(out, slot);
  }
  /// A confirmation counts once, for the serve whose nonce it repeats, after that serve reached the end. A repeated one
  /// gets the same answer. Anything else changes nothing. False: nothing is sent, since a cancellation has no answer.
  bool settle(peer& from, const frame& m, pending_reply& out) noexcept {
    recipient_id who = m.recipient;
    if (!who) who = from.who_ ? from.who_ : from.anonymous_;
    recipient_record* r = transactions.records.find(m.ref, who);
    while (r != nullptr && served(entry_of(from, *r), *r, from.number_).nonce != m.nonce)
      r = transactions.records.before(*r);  // of an earlier version
    if (r == nullptr || m.nonce == 0) {
      refuse_serve(out, transactions.publications.find(m.ref));
    } else if (m.kind == frame_kind::cancel && m.status == status::looked) {
      take_back(from, *r);
    } else if (m.kind == frame_kind::cancel && declines(m.status) && !transactions.one_peer) {
      transactions.declined(*r, to_errc(m.status));
      take_back(from, *r);
    } else {
      state_of(*r) = served(entry_of(from, *r), *r, from.number_);
      out.record = transactions.records.index(*r);
      if (entry_of(from, *r) != nullptr) r->connection = from.number_;
      conclude(from, r, m, out);
      keep(from, *r);
    }
    return m.kind == frame_kind::confirm;
  }

 private:
  void leave(peer& from, serve& s) noexcept {
    if (recipient_record* const r = record_of(from, s)) {
      r->connection = 0;
      // one that only looked has not asked
      const bool asked = r->state == recipient_state::acquired || r->state == recipient_state::provisional;
      transactions.publications.at(s.slot).counts.lost += asked;
    }
    s = {};
  }
  /// The record behind an entry; nullptr if its publication is gone or another connection has taken the recipient over.
  recipient_record* record_of(const peer& from, const serve& s) noexcept {
    if (s.generation == 0) return nullptr;
    recipient_record& r = transactions.records.at(s.record);
    return r.connection == from.number_ && r.slot == s.slot && r.generation == s.generation &&
                   transactions.publication_of(r) != nullptr
               ? &r
               : nullptr;
  }
  static serve_state& state_of(serve_state& s) noexcept { return s; }
  /// The entry of a record at a connection that has been served under it; nullptr if there is none.
  serve* entry_of(peer& from, const recipient_record& r) noexcept {
    serve* const entry = from.find(r.slot, r.generation);
    return entry != nullptr && entry->record == transactions.records.index(r) ? entry : nullptr;
  }

  /// A recipient has only looked, over this connection, or cannot take what it saw. It may have asked over a newer one
  /// before that is heard, or it is heard once more: what the newer one is served stays.
  void take_back(peer& from, recipient_record& r) noexcept {
    serve* const own = entry_of(from, r);
    if (own == nullptr) return;
    own->serving = false;  // what it asks from now on is another serve, which this does not concern
    if (r.connection != from.number_) return;
    r.serving = false;
    transactions.unask(r);
  }
  /// Ends the serve of a recipient, as its confirmation or its cancellation demands.
  void conclude(const peer& from, recipient_record* r, const frame& m, pending_reply& out) noexcept {
    const publication* const there = transactions.publications.find(m.ref);
    if (r->anonymous && r->connection != from.number_) return refuse_serve(out, there);
    out.kind = frame_kind::confirmed;
    out.nonce = m.nonce;
    out.version = r->version;
    publication* const slot = transactions.publication_of(*r);
    if (r->state == recipient_state::unfinished || (slot == nullptr && !is_final(r->state)))
      return refuse_late(out, there);
    const bool confirms = m.kind == frame_kind::confirm;
    const bool uncounted = r->state == recipient_state::vanished || r->state == recipient_state::unseen;
    if (confirms && slot != nullptr && uncounted)  // unseen: a newer connection of it has only looked
      r = transactions.acquire(*slot, r->who, r->anonymous);
    if (is_final(r->state)) {
      // one that had completed without a digest was served again, and has one now
      const bool verifies = confirms && r->state == recipient_state::completed_unverified && r->serving && r->at_end &&
                            slot != nullptr && comparable(*slot, *r, m);
      const bool wrong = verifies && differs(*slot, *r, m);
      if (verifies && !wrong) transactions.change(*slot, *r, recipient_state::completed);
      r->serving = false;
      out.status = wrong ? status::digest_mismatch : verdict_on(*r, m);
    } else if (confirms) {
      confirm(*slot, *r, m, out);
    } else {
      r->reason = m.reason;
      transactions.change(*slot, *r,
                          m.status == status::digest_mismatch ? recipient_state::failed : recipient_state::cancelled);
    }
  }
  /// The first confirmation of a serve.
  void confirm(publication& slot, recipient_record& r, const frame& m, pending_reply& out) noexcept {
    const bool nothing_to_serve = r.subset && r.subset_end == 0;
    const bool compares = comparable(slot, r, m), wrong = compares && differs(slot, r, m);
    const bool has_all = r.at_end && compares && !wrong;  // an owner before this one may have sent it the rest
    if (r.state != recipient_state::provisional && !nothing_to_serve && !has_all) {
      refuse(out, status::bad_request);
      return;
    }
    out.status = wrong ? status::digest_mismatch : status::ok;
    if (!compares) transactions.change(slot, r, recipient_state::completed_unverified);
    else transactions.change(slot, r, wrong ? recipient_state::failed : recipient_state::completed);
  }
  static bool comparable(const publication& slot, const recipient_record& r, const frame& m) noexcept {
    return m.flag && (slot.verifiable || r.subset);
  }
  static bool differs(const publication& slot, const recipient_record& r, const frame& m) noexcept {
    return m.digest != (r.subset ? r.subset_digest : slot.version);
  }

  serve_numbers& numbers_;
};

}  // namespace tensorpull::detail
