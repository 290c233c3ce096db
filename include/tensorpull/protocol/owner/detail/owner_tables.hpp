// The tables of an owner, how a row of one leads to a row of another, and what they say of a transaction's recipients.
#pragma once

#include <tensorpull/protocol/owner/detail/publication_table.hpp>
#include <tensorpull/protocol/owner/detail/recipient_table.hpp>
#include <tensorpull/protocol/owner/detail/transaction_rules.hpp>
#include <tensorpull/std/algorithm.hpp>

#include <cstddef>
#include <span>

namespace tensorpull::detail {

/// The tables of an owner: publications, recipients and transactions. A row that is named by a number of its own is
/// only found as long as it is what it was when it was named. Not thread-safe: the owner has the lock.
struct owner_tables {
  explicit owner_tables(const owner_memory& m) noexcept
      : publications(m.slots), records(m.records, m.buckets), transactions(m.transactions) {}

  publication_table publications;
  recipient_table records;
  std::span<transaction> transactions;
  std::chrono::milliseconds now{};
  bool one_peer = false;  ///< nobody but one connection's other end can take what is published

  transaction* find(transaction_id id) const noexcept {
    if (id.index >= transactions.size() || !id || transactions[id.index].outcome.id != id) return nullptr;
    return &transactions[id.index];
  }
  /// The publication that a record belongs to, if that is still published as it was.
  publication* publication_of(const recipient_record& r) const noexcept {
    if (!r.who) return nullptr;
    publication& p = publications.at(r.slot);
    return p.generation == r.generation && p.now == publication::state::published ? &p : nullptr;
  }
  /// The record of a recipient of `p`; nullptr: there is none.
  recipient_record* record_of(const publication& p, recipient_id who) noexcept {
    recipient_record* r = records.find(p.id, who);
    while (r != nullptr && !is_of(*r, p)) r = records.before(*r);
    return r;
  }
  /// The transaction that a record is, or was last, a part of, although another publication may have replaced its
  /// own. nullptr: it is not remembered any more.
  transaction* transaction_of(const recipient_record& r) const noexcept {
    return r.who ? find(r.transaction) : nullptr;
  }
  /// Whether a record is of what is, or was last, published in a slot: not of an earlier publication under the same
  /// reference.
  bool is_of(const recipient_record& r, const publication& p) const noexcept {
    const bool over = p.now == publication::state::withdrawn;
    return r.ref == p.id && &publications.at(r.slot) == &p &&
           (r.generation == p.generation || (over && r.generation + 1 == p.generation));
  }
  /// Whether a record is of something beside the references of its transaction, which nobody has to take.
  bool is_beside(const recipient_record& r) const noexcept {
    const publication& p = publications.at(r.slot);
    return p.beside && is_of(r, p);
  }
  /// How many references of a transaction are published now.
  std::size_t published_of(const transaction& t) const noexcept {
    std::size_t n = 0;
    for (const publication& p : publications.all())
      n += p.is_part_of(t.outcome.id) && p.now == publication::state::published && !p.beside;
    return n;
  }
  /// Whether the transaction of `p` expects the recipient by name.
  bool expects(const publication& p, recipient_id who) noexcept {
    for (const publication& x : publications.all())
      if (x.is_part_of(p.transaction))
        if (const recipient_record* const r = record_of(x, who); r != nullptr && r->expected) return true;
    return false;
  }
  /// Whether an image of a transaction is read at this moment.
  bool is_read(const transaction& t) const noexcept {
    for (const publication& p : publications.all())
      if (p.is_part_of(t.outcome.id) && p.pins != 0) return true;
    return false;
  }
};

/// A look at one transaction: its references, and what is known of each recipient of them. It changes nothing.
class transaction_recipients {
 public:
  transaction_recipients(owner_tables& all, const transaction& t) noexcept : all_(all), t_(t) {}

  /// Calls `f(publication, record)` for each reference; the record is nullptr if nothing is known of the recipient.
  template <class F>
  void each_of(recipient_id who, F f) const noexcept {
    for (publication& p : all_.publications.all())
      if (p.is_part_of(t_.outcome.id)) f(p, all_.record_of(p, who));
  }
  /// Calls `f(record)` with one record of each recipient that counts.
  template <class F>
  void each(F f) const noexcept {
    for (recipient_record& r : all_.records.all()) {
      const publication& p = all_.publications.at(r.slot);
      if (!r.who || !all_.is_of(r, p) || !p.is_part_of(t_.outcome.id) || (t_.named && !r.expected)) continue;
      const recipient_record* first = nullptr;
      each_of(r.who, [&](const publication&, const recipient_record* x) { first = first != nullptr ? first : x; });
      if (first == &r) f(r);
    }
  }

  /// Whether the recipient has asked for anything.
  bool asked(recipient_id who) const noexcept {
    bool any = false;
    each_of(who,
            [&](const publication&, const recipient_record* r) { any = any || (r != nullptr && has_asked(r->state)); });
    return any;
  }
  /// When it was last fast enough, or sent anything.
  std::chrono::milliseconds last_seen(recipient_id who) const noexcept {
    std::chrono::milliseconds last{};
    each_of(who, [&](const publication&, const recipient_record* r) {
      if (r != nullptr && r->marked_at > last) last = r->marked_at;
    });
    return last;
  }
  /// How a recipient has ended over all references; `acquired`: it has not, which is never the answer if everything is
  /// `over`.
  recipient_state standing(recipient_id who, bool over = false) const noexcept {
    recipient_state worst = recipient_state::completed, gave_up = recipient_state::unfinished;
    bool has = false, open = false, absent = false, missing = false;
    each_of(who, [&](const publication& p, const recipient_record* r) {
      const recipient_state s = r != nullptr ? r->state : recipient_state::unseen;
      has = has || has_asked(s);
      if (p.beside) return;
      const bool there = p.now == publication::state::published;
      if (!is_final(s)) (there && !over ? open : missing) = true;
      // one that had not asked when a reference ended may still ask for the others
      else if (s == recipient_state::absent) (there ? absent : missing) = true;
      else if (s == recipient_state::unfinished) missing = true;
      else if (s > recipient_state::completed_unverified) gave_up = std::min(gave_up, s);
      else worst = std::max(worst, s);
    });
    if (gave_up != recipient_state::unfinished) return gave_up;
    if (absent && !has) return recipient_state::absent;
    if (open) return recipient_state::acquired;
    if (absent || missing) return has ? recipient_state::unfinished : recipient_state::absent;
    return worst;
  }

 private:
  owner_tables& all_;
  const transaction& t_;
};

}  // namespace tensorpull::detail
