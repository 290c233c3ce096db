// The transactions of an owner: which recipients each waits for, when it has settled and with which verdict. It has no
// lock, no clock and no heap.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/image/schema.hpp>
#include <tensorpull/protocol/owner/detail/table_room.hpp>
#include <tensorpull/protocol/owner/detail/transaction_events.hpp>
#include <tensorpull/protocol/owner/detail/transaction_rules.hpp>
#include <tensorpull/std/algorithm.hpp>

namespace tensorpull::detail {

/// The transactions of an owner, and the records of their recipients. The counts of a transaction are those of its
/// recipients' records, and each recipient counts once.
class transaction_table : public transaction_events {
 public:
  using transaction_events::transaction_events;

  transfer_ends transfers{};  ///< how recipients have ended so far

  /// table_full: too many transactions are under way, or more recipients count than there are records; or an error of
  /// expected_of().
  result<transaction_id> open(const transaction_options& options) noexcept {
    const auto expected = expected_of(options);
    if (!expected) return failure(expected.error());
    if (closed_) return failure(errc::withdrawn);
    if (const auto counted = room().remembers(std::max(*expected, options.least), 1); !counted)
      return failure(counted.error());
    for (transaction& t : transactions) {
      if (t.now != transaction::state::empty && t.now != transaction::state::delivered) continue;
      if (++numbers_ == 0) ++numbers_;
      const transaction_id id{static_cast<std::uint32_t>(&t - transactions.data()), numbers_};
      t = {
          .options = options,
          .outcome = {.id = id, .expected = *expected},
          .started_at = now,
          .moved_at = now,
          .now = transaction::state::open,
          .named = !options.named.empty(),
      };
      return id;
    }
    return failure(errc::table_full, transactions.size());
  }
  /// From now on it may settle; the list of names is not needed any more.
  void seal(transaction_id id) noexcept {
    transaction* const t = find(id);
    if (t == nullptr || t->now != transaction::state::open) return;
    t->options.named = {};
    t->now = transaction::state::sealed;
    t->moved_at = now;
    if (published_of(*t) != 0) check(*t);
    else settle(*t);  // nothing is left of it
  }
  /// Ends every transaction that has not settled; no other is opened.
  void settle_all() noexcept {
    closed_ = true;
    for (transaction& t : transactions)
      if (is_under_way(t)) {
        t.by_hand = true;
        settle(t, end_of_transaction::by_hand);
      }
  }
  /// Gives up a transaction in which nothing was published.
  void cancel(transaction_id id) noexcept {
    if (transaction* const t = find(id); t != nullptr && t->outcome.references == 0) t->now = transaction::state::empty;
  }
  /// A publication that was admitted joins its transaction, whose named recipients get their records. The publication
  /// that it replaces has to be taken before.
  void attach(publication& p) noexcept {
    transaction& t = *find(p.transaction);
    for (const recipient_id who : t.options.named)
      if (recipient_record* const r = fresh(p, who, true)) r->expected = true;
    if (++t.outcome.references > 1) count_again(t);  // a recipient that had everything has not
  }

  /// The record of a recipient that asks for `p`, made if there is none. One that was absent or has vanished is awaited
  /// again in all. nullptr: no room.
  recipient_record* acquire(publication& p, recipient_id who, bool anonymous) noexcept {
    transaction* const t = find(p.transaction);
    recipient_record* r = record_of(p, who);
    const bool first = (r == nullptr || !has_asked(r->state)) && !of(*t).asked(who);
    if (r == nullptr) {
      r = fresh(p, who);
      if (r == nullptr) return nullptr;
      r->anonymous = anonymous;
      r->expected = p.beside && expects(p, who);
      if (t->named && !r->expected) ++p.counts.unlisted;
    }
    if (first) {
      ++t->outcome.counts.acquired;
      t->outcome.counts.unlisted += t->named && !r->expected;
    }
    if (!has_asked(r->state == recipient_state::vanished ? r->before : r->state)) ++p.counts.acquired;
    await_again(*t, who);  // whichever of the references it asks for
    if (r->state == recipient_state::unseen) {
      r->state = recipient_state::acquired;
      r->asked_ms = clock_ms();
    } else if (is_final(r->state) && !has_completed(r->state)) {
      r->asked_ms = clock_ms();
      set(p, *r, recipient_state::acquired);
      if (is_final(r->announced)) r->announced = recipient_state::acquired;  // its next end is told, too
    }
    t->moved_at = r->marked_at = now;
    return r;
  }

  /// A recipient has only looked at what is there: it is as if it had not asked. If it or its transaction has ended,
  /// nothing changes.
  void unask(recipient_record& r) noexcept {
    if (publication_of(r) == nullptr || !has_asked(r.state) || is_final(r.state)) return;
    forget(r);
    if (!r.expected) records.remove(r);
  }
  /// A recipient does something that changes its state, and with it the counts; may settle the transaction.
  void change(publication& p, recipient_record& r, recipient_state to) noexcept {
    transaction& t = *find(p.transaction);
    t.moved_at = r.marked_at = now;
    set(p, r, to);
    check(t);
  }

  /// Payload left for a recipient. Its tensors are counted here, where the image can still be read: an event that tells
  /// of it may follow when the image is gone.
  void moved(publication& p, recipient_record& r, std::uint64_t bytes) noexcept {
    r.bytes += bytes;
    r.moved = r.moved || bytes > 0;
    transaction* const t = find(p.transaction);
    if (t == nullptr) return;
    t->moved_at = now;
    if (t->options.progress) r.tensors_done = static_cast<std::uint32_t>(tensors_in(*p.image.schema, r.bytes));
  }

  /// The owner withdraws `p`, or replaces it by another version: no recipient can finish it any more. Call it before
  /// the slot changes.
  void take(publication& p) noexcept {
    transaction& t = *find(p.transaction);
    if (p.beside) return end(p, t, end_of_transaction::by_hand);
    t.by_hand = true;
    if (t.now == transaction::state::sealed && published_of(t) == 1) return settle(t, end_of_transaction::by_hand);
    end(p, t, end_of_transaction::by_hand);
    count_again(t);
    check(t);
  }
  /// `p` is replaced by another version and stays for those who have begun with it. False, and nothing has changed:
  /// nobody has, or it is one of several references.
  bool stays(publication& p) noexcept {
    transaction& t = *find(p.transaction);
    if (p.beside || t.now != transaction::state::sealed || published_of(t) != 1 || !is_taken(t)) return false;
    p.replaced = t.replaced = true;
    return true;
  }
  /// The owner that coordinates the transaction of `p` is gone.
  void lose(publication& p) noexcept {
    find(p.transaction)->lost = true;
    take(p);
  }
  /// The image of `p` cannot be read any more, so nobody can finish it.
  void give_up(publication& p) noexcept {
    p.unreadable = true;
    take(p);
  }

  /// Lets time pass and judges the budgets. Cost: one pass over the records, and for each whose budget may be over one
  /// over the slots. A time before the last one, which threads may cause, counts as that one.
  void advance(std::chrono::milliseconds to) noexcept {
    if (to > now) now = to;
    for (recipient_record& r : records.all()) {
      publication* const p = publication_of(r);
      transaction* const t = p != nullptr ? find(p->transaction) : nullptr;
      if (t == nullptr) continue;
      const transaction_budgets& b = t->options.budgets;
      const bool ended = is_final(r.state), unseen = r.state == recipient_state::unseen;
      if (!ended && !unseen && b.recipient_idle > none && r.bytes - r.marked_bytes > least_bytes(b)) {
        r.marked_bytes = r.bytes;
        r.marked_at = now;
      }
      if (unseen && b.acquire > none && now - t->started_at > b.acquire && !of(*t).asked(r.who))
        set(*p, r, recipient_state::absent);
      if (b.recipient_idle <= none || now - r.marked_at <= b.recipient_idle) continue;
      const bool lacks_others = (p->beside || (ended && t->outcome.references > 1)) && !t->named &&
                                t->outcome.expected != 0;
      if ((ended && !lacks_others) || is_final(r.state) != ended || !of(*t).asked(r.who) ||
          now - of(*t).last_seen(r.who) <= b.recipient_idle)
        continue;
      if (lacks_others) vanish_from_others(*t, r.who);
      else set(*p, r, recipient_state::vanished);
    }
    for (transaction& t : transactions) {
      if (t.now != transaction::state::sealed) continue;
      const auto idle = t.options.budgets.transaction_idle;
      if (idle > none && now - t.moved_at > idle) settle(t, end_of_transaction::by_budget);
      else check(t);
    }
  }

 private:
  static constexpr std::chrono::milliseconds none{};

  table_room room() noexcept { return table_room(*this); }
  transaction_recipients of(const transaction& t) noexcept { return {*this, t}; }

  /// A record of a recipient that has none of `p`. One of an earlier version makes way for it, unless its end has not
  /// been told yet, or its transaction is under way and would forget that the recipient has asked, or how it has ended.
  /// `admitted`: room().has_room() has counted it, so it is made even instead of one whose end has not been told.
  recipient_record* fresh(publication& p, recipient_id who, bool admitted = false) noexcept {
    for (recipient_record *old = records.find(p.id, who), *next = nullptr; old != nullptr; old = next) {
      next = records.before(*old);
      transaction* const t = transaction_of(*old);
      if (t == nullptr) records.remove(*old);
      else if (room().ends_untold(*old)) continue;
      else if (!is_under_way(*t) || (!has_asked(old->state) && !tells_an_end(*old, *t)))
        recount(*t, who, old->expected, [&] { records.remove(*old); });
    }
    const auto forgotten = [this](recipient_record& x) { forget(x); };
    recipient_record* r = records.add(
        p.id, who, [this](const recipient_record& x) { return room().held(x); }, forgotten);
    if (r == nullptr && admitted)
      r = records.add(p.id, who, [this](const recipient_record& x) { return room().worth(x); }, forgotten);
    if (r == nullptr) return nullptr;
    r->version = p.version;
    r->transaction = p.transaction;
    r->image_bytes = p.image_bytes;
    r->tensors = p.tensors;
    r->generation = p.generation;
    r->slot = publications.index(p);
    r->marked_at = now;
    return r;
  }

  /// A record is dropped for lack of room. If its recipient has not ended, it is not counted any more, since it would
  /// be waited for otherwise.
  void forget(recipient_record& r) noexcept {
    publication* const p = publication_of(r);
    if (p == nullptr || !has_asked(r.state) || is_final(r.state)) return;
    transaction& t = *find(p->transaction);
    const bool unlisted = t.named && !r.expected;
    --p->counts.acquired;
    p->counts.unlisted -= unlisted;
    r.state = recipient_state::unseen;
    if (of(t).asked(r.who)) return;
    --t.outcome.counts.acquired;
    t.outcome.counts.unlisted -= unlisted;
  }

  /// Makes a change to a recipient's records, and to the counts of its transaction what follows from it.
  template <class Change>
  void recount(transaction& t, recipient_id who, bool expected, Change make) noexcept {
    if (!is_under_way(t) || (t.named && !expected)) return make();
    publication_status& sum = t.outcome.counts;
    if (const recipient_state before = of(t).standing(who); is_final(before)) --sum.of(before);
    make();
    if (const recipient_state after = of(t).standing(who); is_final(after)) ++sum.of(after);
  }
  /// A record's state changes, and with it the counts.
  void set(publication& p, recipient_record& r, recipient_state to) noexcept {
    transaction& t = *find(p.transaction);
    recount(t, r.who, r.expected, [&] {
      const bool counts = r.expected || !t.named;
      if (counts && is_final(r.state)) --p.counts.of(r.state);
      if (is_final(to) && !(has_completed(to) && has_completed(r.state))) ended(p, r, to);
      if (to == recipient_state::vanished) r.before = r.state, r.ended_by = errc::timed_out;
      else if (is_final(to)) r.serving = false;  // a recipient that vanished may go on
      r.state = to;
      if (counts && is_final(to)) ++p.counts.of(to);
    });
  }
  /// A recipient has ended.
  void ended(const publication& p, const recipient_record& r, recipient_state how) noexcept {
    if (p.beside) return;
    ++transfers.ended[static_cast<std::size_t>(how)];
    if (has_completed(how)) transfers.took(clock_ms() - r.asked_ms);
  }
  /// Enough of the clock to tell how long a recipient takes.
  std::uint32_t clock_ms() const noexcept { return static_cast<std::uint32_t>(now.count()); }
  /// Undoes what the budgets have decided about a recipient that has asked after all.
  void await_again(transaction& t, recipient_id who) noexcept {
    of(t).each_of(who, [&](publication& p, recipient_record* r) {
      if (r == nullptr || p.now != publication::state::published) return;
      if (r->state == recipient_state::absent) set(p, *r, recipient_state::unseen);
      else if (r->state == recipient_state::vanished) set(p, *r, r->before);
    });
  }
  /// Of a number of recipients one has vanished that has not asked for every reference. Those for which there is no
  /// room wait for the transaction's budget.
  void vanish_from_others(transaction& t, recipient_id who) noexcept {
    if (is_final(of(t).standing(who))) return;
    of(t).each_of(who, [&](publication& p, recipient_record* r) {
      if (r == nullptr && p.now == publication::state::published && !p.beside) r = fresh(p, who);
      if (r != nullptr && !is_final(r->state)) set(p, *r, recipient_state::vanished);
    });
  }

  /// Counts those that have ended, after the references have changed.
  void count_again(transaction& t) noexcept {
    publication_status& sum = t.outcome.counts;
    sum.completed = sum.completed_unverified = sum.failed = sum.cancelled = sum.vanished = sum.absent = sum.unfinished =
        0;
    of(t).each([&](const recipient_record& r) {
      if (const recipient_state s = of(t).standing(r.who); is_final(s)) ++sum.of(s);
    });
  }

  /// Whether a recipient has begun with a transaction and has not ended.
  bool is_taken(const transaction& t) const noexcept {
    for (const recipient_record& r : records.all())
      if (r.transaction == t.outcome.id && publication_of(r) != nullptr && has_asked(r.state) && !is_final(r.state))
        return true;
    return false;
  }
  /// Settles if every expected recipient has ended, or if it was replaced and nobody is left who has begun with it.
  void check(transaction& t) noexcept {
    if (t.now != transaction::state::sealed) return;
    if (t.replaced && !is_taken(t)) {
      t.by_hand = true;
      return settle(t, end_of_transaction::by_hand);
    }
    if (t.outcome.expected == 0) return;
    const transaction_budgets& b = t.options.budgets;
    // recipients that have not asked are not waited for
    const bool too_late = !t.named && b.acquire > none && now - t.started_at > b.acquire;
    if (t.outcome.counts.final() >=
        (too_late ? std::min(t.outcome.counts.acquired, t.outcome.expected) : t.outcome.expected))
      settle(t);
  }

  /// Why nobody can take a publication any more.
  enum class end_of_transaction : std::uint8_t {
    by_itself,  ///< those that have asked have ended, or others were waited for long enough
    by_hand,  ///< it was withdrawn, replaced, or could not be read any more
    by_budget,  ///< nothing moved for too long
  };
  /// Nobody can take `p` any more.
  void end(publication& p, const transaction& t, end_of_transaction why) noexcept {
    const bool by_hand = why == end_of_transaction::by_hand;
    p.ended = !by_hand;
    for (recipient_record& r : records.all())
      if (publication_of(r) == &p && !is_final(r.state)) {
        r.state = r.state == recipient_state::unseen ? recipient_state::absent : recipient_state::unfinished;
        const bool over = by_hand || r.state == recipient_state::unfinished;
        const bool declined = r.state == recipient_state::absent && r.ended_by != errc::timed_out;
        if (over && why != end_of_transaction::by_budget)
          if (!declined) r.ended_by = to_errc(status_over(p));
        if (!declined && why == end_of_transaction::by_budget) r.ended_by = errc::timed_out;
        if (r.expected || !t.named) ++p.counts.of(r.state);
        ended(p, r, r.state);
      }
    p.now = publication::state::withdrawn;
    ++p.generation;
  }

  void settle(transaction& t, end_of_transaction why = end_of_transaction::by_itself) noexcept {
    publication_status& sum = t.outcome.counts;
    of(t).each([&](const recipient_record& r) {
      if (!is_final(of(t).standing(r.who))) ++sum.of(of(t).standing(r.who, true));
    });
    for (publication& p : publications.all()) {
      if (!p.is_part_of(t.outcome.id)) continue;
      if (p.now == publication::state::published) end(p, t, why);
      sum.bytes_sent += p.counts.bytes_sent;
      sum.lost += p.counts.lost;
    }
    conclude(t);
    t.now = transaction::state::settled;
    ++waiting_;
    for (publication& p : publications.all())
      if (p.is_part_of(t.outcome.id)) p.verdict = t.outcome.verdict;
  }

  /// The verdict over the counts.
  void conclude(transaction& t) noexcept {
    publication_status& sum = t.outcome.counts;
    if (t.outcome.expected > sum.final()) sum.absent += t.outcome.expected - sum.final();
    t.outcome.lasted = now - t.started_at;
    t.outcome.verdict = verdict_of(t);
  }

  std::uint32_t numbers_ = 0;
  bool closed_ = false;
};

}  // namespace tensorpull::detail
