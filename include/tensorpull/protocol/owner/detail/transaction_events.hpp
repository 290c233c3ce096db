// The events of an owner's transactions that its program is told of: progress of recipients, then the end. It has no
// lock, no clock and no heap.
#pragma once

#include <tensorpull/protocol/owner/detail/owner_tables.hpp>
#include <tensorpull/protocol/owner/detail/transaction_rules.hpp>

#include <cstdint>

namespace tensorpull::detail {

/// The tables of an owner, and which of their events wait to be told. A callback is under way until returned().
class transaction_events : public owner_tables {
 public:
  using owner_tables::owner_tables;

  /// A recipient cannot take what is published, which progress tells; of several at once the last. One that is expected
  /// by name is absent for that reason, if it does not return.
  void declined(recipient_record& r, errc why) noexcept {
    publication* const p = publication_of(r);
    if (p == nullptr || p->beside || is_final(r.state)) return;
    r.ended_by = why;
    p->declined = why;
    p->declined_by = r.anonymous ? recipient_id{} : r.who;
  }

  /// Whether the end of a transaction can be told: it has settled, its images are not read any more, and no callback of
  /// it runs, unless it is `at_once`.
  bool settling(transaction_id at_once) const noexcept {
    if (waiting_ == 0) return false;
    for (const transaction& t : transactions)
      if (can_be_told(t, at_once)) return true;
    return false;
  }
  /// Such a transaction, all of whose progress has been told. Its last callback begins. Each is given once. nullptr:
  /// there is none.
  transaction* next_settled(transaction_id at_once) noexcept {
    if (waiting_ == 0) return nullptr;
    for (transaction& t : transactions)
      if (can_be_told(t, at_once) && !event_due(t)) {
        t.now = transaction::state::told;
        ++t.callbacks;
        --waiting_;
        return &t;
      }
    return nullptr;
  }
  /// A callback has returned. True: it was the last one of a transaction whose end has been told.
  bool returned(transaction_id id) noexcept {
    transaction* const t = find(id);
    return t != nullptr && --t->callbacks == 0 && t->now == transaction::state::told;
  }
  /// The objects kept for a transaction have been released, so its entry may be used again.
  void released(transaction_id id) noexcept {
    if (transaction* const t = find(id)) t->now = transaction::state::delivered;
  }

  /// The next progress event that is due, and the callback for it, which begins: what has changed in a recipient's
  /// record since its last event. None: there is none. Cost: up to one pass over the slots and the records.
  transaction_id next_event(progress_event& out, callback<const progress_event&>& tell) noexcept {
    for (publication& p : publications.all()) {
      if (p.declined == errc{}) continue;
      transaction* const t = find(p.transaction);
      if (t != nullptr && is_told_of(*t)) {
        out = declined_event(p, ++events_);
        tell = t->options.progress;
        ++t->callbacks;
        return t->outcome.id;
      }
      p.declined = {};
    }
    for (recipient_record& r : records.all()) {
      transaction* const t = transaction_of(r);
      if (t == nullptr || is_beside(r) || !is_due(r, *t, now)) continue;
      out = take_event(r, ++events_, now);
      tell = t->options.progress;
      ++t->callbacks;
      return t->outcome.id;
    }
    return {};
  }

 protected:
  std::uint32_t waiting_ = 0;  ///< transactions that have settled, of which nobody has been told

 private:
  bool can_be_told(const transaction& t, transaction_id at_once) const noexcept {
    return t.now == transaction::state::settled && (t.callbacks == 0 || t.outcome.id == at_once) && !is_read(t);
  }
  bool event_due(const transaction& t) noexcept {
    if (!t.options.progress) return false;
    for (const publication& p : publications.all())
      if (p.is_part_of(t.outcome.id) && p.declined != errc{}) return true;
    for (const recipient_record& r : records.all())
      if (transaction_of(r) == &t && !is_beside(r) && is_due(r, t, now)) return true;
    return false;
  }

  std::uint64_t events_ = 0;
};

}  // namespace tensorpull::detail
