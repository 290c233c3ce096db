// The transactions of an owner: which recipients each waits for, when it has settled and with which verdict, and the events of its progress.
// It has no lock, no clock and no heap.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/image/schema.hpp>
#include <tensorpull/protocol/owner/detail/recipient_table.hpp>
#include <tensorpull/std/algorithm.hpp>

namespace tensorpull::detail {

/// The index of the first name that is a repetition; names.size() if there is none. A name given twice would be waited for twice and end once.
constexpr std::size_t repeated_name(std::span<const recipient_id> names) noexcept {
  for (std::size_t i = 0; i < names.size(); ++i)
    for (std::size_t k = 0; k < i; ++k)
      if (names[i] == names[k]) return i;
  return names.size();
}

/// Whether a recipient that ended in this state has to be remembered. If it were forgotten and came back, it would count twice.
constexpr bool counts_on(const transaction& t, recipient_state s) noexcept {
  const bool confirmed = s == recipient_state::completed || s == recipient_state::completed_unverified;
  return confirmed && !t.named && (t.outcome.expected != 0 || t.options.least != 0);
}

/// Whether a record is of what is, or was last, published in a slot: not of an earlier publication under the same reference.
inline bool is_of(const recipient_record& r, const publication& p, std::span<publication> slots) noexcept {
  const bool over = p.now == publication::state::withdrawn;
  return r.ref == p.id && &slots[r.slot] == &p && (r.generation == p.generation || (over && r.generation + 1 == p.generation));
}

/// The transactions of an owner, and the records of their recipients.
class transaction_table {
 public:
  explicit transaction_table(const owner_memory& m) noexcept : records(m.records, m.buckets), slots_(m.slots), table_(m.transactions) {}

  recipient_table records;
  std::chrono::milliseconds now{};

  /// table_full: too many transactions are under way; invalid_argument: the name at that place has come before.
  result<transaction_id> open(const transaction_options& options) noexcept {
    if (const std::size_t i = repeated_name(options.named); i != options.named.size()) return failure(errc::invalid_argument, i);
    for (transaction& t : table_) {
      if (t.now != transaction::state::empty && t.now != transaction::state::delivered) continue;
      if (++numbers_ == 0) ++numbers_;
      const transaction_id id{static_cast<std::uint32_t>(&t - table_.data()), numbers_};
      t = {options, {}, now, now, transaction::state::open, !options.named.empty(), false};
      t.outcome.id = id;
      t.outcome.expected = t.named ? static_cast<std::uint32_t>(options.named.size()) : options.recipients;
      return id;
    }
    return failure(errc::table_full, table_.size());
  }
  /// From now on it may settle; the list of names is not needed any more.
  void seal(transaction_id id) noexcept {
    transaction* const t = find(id);
    if (t == nullptr || t->now != transaction::state::open) return;
    t->options.named = {};
    t->now = transaction::state::sealed;
    if (any_published(*t)) check(*t);
    else settle(*t);  // nothing is left of it
  }
  /// Gives up a transaction in which nothing was published.
  void cancel(transaction_id id) noexcept {
    if (transaction* const t = find(id)) t->now = transaction::state::empty;
  }
  transaction* find(transaction_id id) const noexcept {
    if (id.index >= table_.size() || !id || table_[id.index].outcome.id != id) return nullptr;
    return &table_[id.index];
  }
  /// Whether the transaction of `p` still needs the slot of `p`.
  bool needs(const publication& p) noexcept {
    const transaction* const t = find(p.transaction);
    return t != nullptr && t->now != transaction::state::delivered;
  }

  /// Whether other references of its transaction continue without `p`, so that its slot has to keep the result of `p`.
  bool shares(const publication& p) noexcept {
    const transaction* const t = find(p.transaction);
    return t != nullptr && (t->now == transaction::state::open || (t->now == transaction::state::sealed && t->outcome.references > 1));
  }
  /// Whether another publication can join, in the place of `old` if there is one. invalid_argument: the transaction is not open, or has it
  /// already; table_full.
  result<void> admits(transaction_id in, const publication* old) noexcept {
    const transaction* const t = find(in);
    const bool there = old != nullptr && old->now == publication::state::published;
    if (t == nullptr || t->now != transaction::state::open || (there && old->transaction == in)) return failure(errc::invalid_argument);
    std::size_t room = 0;
    for (const recipient_record& r : records.all()) {
      const publication* const p = publication_of(r);
      room += p == nullptr || p == old || (!r.expected && r.connection == 0);
    }
    if (room < t->options.named.size()) return failure(errc::table_full, records.all().size());
    return {};
  }

  /// A publication joins its transaction, whose named recipients get their records. table_full: no room for all of them.
  result<void> attach(publication& p) noexcept {
    transaction* const t = find(p.transaction);
    if (t == nullptr || t->now != transaction::state::open) return failure(errc::invalid_argument);
    for (const recipient_id who : t->options.named) {
      recipient_record* const r = fresh(p, who);
      if (r == nullptr) return failure(errc::table_full, records.all().size());
      r->expected = true;
    }
    ++t->outcome.references;
    return {};
  }

  /// The publication that a record belongs to, if that is still published as it was.
  publication* publication_of(const recipient_record& r) const noexcept {
    if (!r.who) return nullptr;
    publication& p = slots_[r.slot];
    return p.generation == r.generation && p.now == publication::state::published ? &p : nullptr;
  }

  /// The record of a recipient that asks for `p`, made if there is none. nullptr: no room.
  recipient_record* acquire(publication& p, recipient_id who, bool anonymous) noexcept {
    transaction* const t = find(p.transaction);
    recipient_record* r = records.find(p.id, who);
    if (r == nullptr || publication_of(*r) == nullptr) {
      r = fresh(p, who);
      if (r == nullptr) return nullptr;
      r->anonymous = anonymous;
      if (t->named) ++p.counts.unlisted;
    }
    if (r->state == recipient_state::unseen) ++p.counts.acquired, r->state = recipient_state::acquired;
    else if (is_final(r->state) && r->state != recipient_state::completed) change(p, *r, recipient_state::acquired);
    t->moved_at = r->marked_at = now;
    return r;
  }

  /// A record's state changes, and with it the publication's counts; may settle the transaction.
  void change(publication& p, recipient_record& r, recipient_state to) noexcept {
    transaction& t = *find(p.transaction);
    const bool counts = r.expected || !t.named;
    if (counts && is_final(r.state)) --p.counts.of(r.state);
    r.state = to;
    if (counts && is_final(to)) ++p.counts.of(to);
    t.moved_at = now;
    if (is_final(to)) r.serving = false, check(t);
  }

  /// Payload left for a recipient.
  void moved(publication& p, recipient_record& r, std::uint64_t bytes) noexcept {
    r.bytes += bytes;
    if (transaction* const t = find(p.transaction)) t->moved_at = now;
  }

  /// The owner withdraws `p`, or puts another version in its place: no recipient can finish it any more. Call it before the slot changes.
  void take(publication& p) noexcept {
    transaction* const t = find(p.transaction);
    if (t != nullptr) end_recipients(p, *t), t->by_hand = true;
    p.now = publication::state::withdrawn;
    ++p.generation;
    if (t != nullptr && t->now == transaction::state::sealed && !any_published(*t)) settle(*t);
  }

  /// Lets time pass and judges the budgets. Cost: one pass over the records. A time before the last one, which threads may cause, counts as that one.
  void advance(std::chrono::milliseconds to) noexcept {
    if (to > now) now = to;
    for (recipient_record& r : records.all()) {
      publication* const p = publication_of(r);
      if (p == nullptr || is_final(r.state)) continue;
      const transaction& t = *find(p->transaction);
      const transaction_budgets& b = t.options.budgets;
      if (r.state == recipient_state::unseen) {
        if (b.acquire > none && now - t.started_at > b.acquire) change(*p, r, recipient_state::absent);
      } else if (b.recipient_idle > none) {
        const bool fast = r.bytes - r.marked_bytes > least_bytes(b);
        if (fast) r.marked_bytes = r.bytes, r.marked_at = now;
        else if (now - r.marked_at > b.recipient_idle) change(*p, r, recipient_state::vanished);
      }
    }
    for (transaction& t : table_) {
      if (t.now != transaction::state::sealed) continue;
      const transaction_budgets& b = t.options.budgets;
      if (b.transaction_idle > none && now - t.moved_at > b.transaction_idle) settle(t);
      else if (b.acquire > none && now - t.started_at > b.acquire) check(t);
    }
  }

  /// Whether the end of a transaction can be told: it has settled, its images are not read any more, and no callback of it runs, unless it is
  /// `at_once`.
  bool settling(transaction_id at_once) const noexcept {
    if (waiting_ == 0) return false;
    for (const transaction& t : table_)
      if (can_be_told(t, at_once)) return true;
    return false;
  }
  /// Such a transaction, all of whose progress has been told. Its last callback begins. Each comes once. nullptr: there is none.
  transaction* next_settled(transaction_id at_once) noexcept {
    if (waiting_ == 0) return nullptr;
    for (transaction& t : table_)
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
  /// What was kept for a transaction has been released, so its entry may be used again.
  void released(transaction_id id) noexcept {
    if (transaction* const t = find(id)) t->now = transaction::state::delivered;
  }

  /// The next progress event that is due, and the callback for it, which begins: what has changed in a recipient's record since its last event. None:
  /// there is none. Cost: up to one pass over the records.
  transaction_id next_event(progress_event& out, callback<const progress_event&>& tell) noexcept {
    for (recipient_record& r : records.all()) {
      transaction* const t = transaction_of(r);
      if (t == nullptr || !due(r, *t)) continue;
      fill(out, r, slots_[r.slot]);
      tell = t->options.progress;
      ++t->callbacks;
      return t->outcome.id;
    }
    return {};
  }

 private:
  static constexpr std::chrono::milliseconds none{};

  static std::uint64_t least_bytes(const transaction_budgets& b) noexcept {
    const std::uint64_t seconds = static_cast<std::uint64_t>(b.recipient_idle.count()) / 1000, rate = b.least_bytes_per_second;
    return rate != 0 && seconds > ~std::uint64_t{0} / rate ? ~std::uint64_t{0} : seconds * rate;
  }
  bool belongs(const publication& p, const transaction& t) const noexcept { return p.is_part_of(t.outcome.id); }
  bool any_published(const transaction& t) const noexcept {
    for (const publication& p : slots_)
      if (belongs(p, t) && p.now == publication::state::published) return true;
    return false;
  }
  bool read_now(const transaction& t) const noexcept {
    for (const publication& p : slots_)
      if (belongs(p, t) && p.pins != 0) return true;
    return false;
  }

  recipient_record* fresh(publication& p, recipient_id who) noexcept {
    if (recipient_record* const old = records.find(p.id, who)) records.remove(*old);
    const auto worth = [this](const recipient_record& x) {
      const publication* const at = publication_of(x);
      return at == nullptr ? recipient_table::gone : counts_on(*find(at->transaction), x.state) ? recipient_table::counted_on
                                                                                                : recipient_table::current;
    };
    recipient_record* const r = records.add(p.id, who, worth, [this](const recipient_record& x) { forgotten(x); });
    if (r == nullptr) return nullptr;
    r->version = p.version, r->generation = p.generation;
    r->slot = static_cast<std::uint32_t>(&p - slots_.data()), r->marked_at = now;
    return r;
  }

  /// A record is dropped for lack of room. Its recipient is not counted any more, since it would be waited for otherwise.
  void forgotten(const recipient_record& r) noexcept {
    publication* const p = publication_of(r);
    if (p == nullptr || is_final(r.state)) return;
    --p->counts.acquired;
    if (const transaction* const t = find(p->transaction); t != nullptr && t->named) --p->counts.unlisted;
  }

  /// Settles if every expected recipient of every reference has ended.
  void check(transaction& t) noexcept {
    if (t.now != transaction::state::sealed || t.outcome.expected == 0) return;
    const transaction_budgets& b = t.options.budgets;
    const bool too_late = !t.named && b.acquire > none && now - t.started_at > b.acquire;  // recipients that have not asked are not waited for
    for (const publication& p : slots_) {
      if (!belongs(p, t) || p.now != publication::state::published) continue;
      const std::uint32_t awaited = too_late && p.counts.acquired < t.outcome.expected ? p.counts.acquired : t.outcome.expected;
      if (p.counts.final() < awaited) return;
    }
    settle(t);
  }

  void end_recipients(publication& p, transaction& t) noexcept {
    for (recipient_record& r : records.all())
      if (publication_of(r) == &p && !is_final(r.state)) {
        r.state = r.state == recipient_state::unseen ? recipient_state::absent : recipient_state::unfinished;
        if (r.expected || !t.named) ++p.counts.of(r.state);
      }
  }

  void settle(transaction& t) noexcept {
    for (publication& p : slots_)
      if (belongs(p, t) && p.now == publication::state::published) end_recipients(p, t);
    sum_up(t);
    t.now = transaction::state::settled;
    ++waiting_;
    for (publication& p : slots_) {
      if (!belongs(p, t)) continue;
      p.verdict = t.outcome.verdict;
      if (p.now != publication::state::published) continue;
      p.now = publication::state::withdrawn, ++p.generation;
    }
  }

  /// How a transaction ended: the sum over its references, and the verdict.
  void sum_up(transaction& t) noexcept {
    publication_status& sum = t.outcome.counts;
    const publication* first = nullptr;
    for (const publication& p : slots_) {
      if (!p.is_part_of(t.outcome.id)) continue;
      if (first == nullptr) sum = p.counts, first = &p;
      else sum.bytes_sent += p.counts.bytes_sent, sum.lost += p.counts.lost;
    }
    if (t.outcome.references > 1 && first != nullptr) worst_of_each(t, *first);
    if (!t.named && t.outcome.expected > sum.final()) sum.absent += t.outcome.expected - sum.final();
    t.outcome.lasted = now - t.started_at;
    const std::uint32_t confirmed = sum.completed + sum.completed_unverified;
    const bool known = t.outcome.expected != 0;
    t.outcome.verdict = known && confirmed >= t.outcome.expected               ? (sum.completed >= t.outcome.expected ? verdict::completed : verdict::completed_unverified)
                        : t.options.least != 0 && confirmed >= t.options.least ? verdict::quorum
                        : t.by_hand                                            ? verdict::withdrawn
                        : known                                                ? verdict::failed
                                                                               : verdict::uncertified;
  }

  /// Over several references a recipient counts with its worst state.
  void worst_of_each(transaction& t, const publication& first) noexcept {
    publication_status& sum = t.outcome.counts;
    sum.completed = sum.completed_unverified = sum.failed = sum.cancelled = sum.vanished = sum.absent = sum.unfinished = 0;
    for (const recipient_record& r : records.all()) {
      if (!r.who || !is_of(r, first, slots_) || (t.named && !r.expected)) continue;
      recipient_state worst = r.state;
      for (const publication& p : slots_) {
        if (!p.is_part_of(t.outcome.id) || &p == &first) continue;
        const recipient_record* const other = records.find(p.id, r.who);
        const auto there = other != nullptr && is_of(*other, p, slots_) ? other->state : recipient_state::absent;
        if (there > worst) worst = there;
      }
      ++sum.of(worst);
    }
  }

  bool can_be_told(const transaction& t, transaction_id at_once) const noexcept {
    return t.now == transaction::state::settled && (t.callbacks == 0 || t.outcome.id == at_once) && !read_now(t);
  }
  bool event_due(const transaction& t) noexcept {
    if (!t.options.progress) return false;
    for (const recipient_record& r : records.all())
      if (transaction_of(r) == &t && due(r, t)) return true;
    return false;
  }
  /// The transaction that a record is, or was last, a part of. nullptr: another publication has taken the place.
  transaction* transaction_of(const recipient_record& r) noexcept {
    if (!r.who) return nullptr;
    const publication& p = slots_[r.slot];
    return is_of(r, p, slots_) ? find(p.transaction) : nullptr;
  }

  bool due(const recipient_record& r, const transaction& t) const noexcept {
    if (!t.options.progress || t.now == transaction::state::told || t.now == transaction::state::delivered) return false;
    if (is_final(r.state)) return r.announced != r.state;
    if (r.state == recipient_state::unseen) return false;
    return r.announced == recipient_state::unseen || (r.bytes > r.announced_bytes && now - r.announced_at >= t.options.progress_interval);
  }

  void fill(progress_event& out, recipient_record& r, const publication& p) noexcept {
    const bool first = r.announced == recipient_state::unseen && r.state != recipient_state::absent;
    out = {};
    out.sequence = ++events_;
    out.ref = r.ref;
    out.recipient = r.anonymous ? recipient_id{} : r.who;
    if (p.image.schema != nullptr) count_done(out, *p.image.schema, r.bytes);
    if (first) out.phase = progress_phase::started;
    else if (!is_final(r.state)) out.phase = progress_phase::active;
    else if (r.state == recipient_state::completed || r.state == recipient_state::completed_unverified) out.phase = progress_phase::completed;
    else if (r.state == recipient_state::cancelled) out.phase = progress_phase::aborted, out.code = errc::cancelled_by_peer;
    else out.phase = progress_phase::failed, out.code = r.state == recipient_state::failed ? errc::digest_mismatch : errc::timed_out;
    r.announced = first ? recipient_state::acquired : r.state;
    r.announced_bytes = r.bytes;
    r.announced_at = now;
  }

  std::span<publication> slots_;
  std::span<transaction> table_;
  std::uint32_t numbers_ = 0, waiting_ = 0;
  std::uint64_t events_ = 0;
};

}  // namespace tensorpull::detail
