// Which recipients a transaction waits for, and when it has settled. No lock, no clock, no heap of its own: the owner hands them in.
#pragma once

#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/protocol/owner/detail/settlement_sum.hpp>

namespace tensorpull {

class transaction_table {
 public:
  explicit transaction_table(const owner_memory& m) noexcept : records(m.records, m.buckets), slots_(m.slots), table_(m.transactions) {}

  recipient_table records;
  std::uint64_t now_ms = 0;

  /// table_full: too many transactions are under way; invalid_argument: the name at that place has come before.
  result<transaction_id> open(const transaction_options& options) noexcept {
    if (const std::size_t i = repeated_name(options.named); i != options.named.size()) return failure(errc::invalid_argument, i);
    for (transaction& t : table_) {
      if (t.now != transaction::state::empty && t.now != transaction::state::delivered) continue;
      if (++numbers_ == 0) ++numbers_;
      const transaction_id id{static_cast<std::uint32_t>(&t - table_.data()), numbers_};
      t = {options, {}, now_ms, now_ms, transaction::state::open, !options.named.empty(), false};
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
  /// Nothing was published in it.
  void cancel(transaction_id id) noexcept {
    if (transaction* const t = find(id)) t->now = transaction::state::empty;
  }
  transaction* find(transaction_id id) noexcept {
    if (id.index >= table_.size() || !id || table_[id.index].outcome.id != id) return nullptr;
    return &table_[id.index];
  }
  /// Whether the transaction of `p` still needs its slot.
  bool needs(const publication& p) noexcept {
    const transaction* const t = find(p.transaction);
    return t != nullptr && t->now != transaction::state::delivered;
  }

  /// Whether other references of its transaction go on without `p`, so that its slot has to tell how `p` fared.
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
      room += p == nullptr || p == old || (!r.expected && r.link == 0);
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
    t->moved_ms = r->marked_ms = now_ms;
    return r;
  }

  /// A record's state changes, and with it the publication's counts; may settle the transaction.
  void change(publication& p, recipient_record& r, recipient_state to) noexcept {
    transaction& t = *find(p.transaction);
    const bool counts = r.expected || !t.named;
    if (counts && is_final(r.state)) --p.counts.of(r.state);
    r.state = to;
    if (counts && is_final(to)) ++p.counts.of(to);
    t.moved_ms = now_ms;
    if (is_final(to)) r.serving = false, check(t);
  }

  /// Payload left for a recipient.
  void moved(publication& p, recipient_record& r, std::uint64_t bytes) noexcept {
    r.bytes += bytes;
    if (transaction* const t = find(p.transaction)) t->moved_ms = now_ms;
  }

  /// The owner takes `p` away, or puts another version in its place: nobody can finish it any more. Call it before the slot changes.
  void take(publication& p) noexcept {
    transaction* const t = find(p.transaction);
    if (t != nullptr) end_recipients(p, *t), t->by_hand = true;
    p.now = publication::state::withdrawn;
    ++p.generation;
    if (t != nullptr && t->now == transaction::state::sealed && !any_published(*t)) settle(*t);
  }

  /// Lets time pass: looks at the budgets. Cost: one pass over the records. A time before the last one, as threads may bring it, is that one.
  void advance(std::uint64_t now) noexcept {
    now = now_ms = std::max(now, now_ms);
    for (recipient_record& r : records.all()) {
      publication* const p = publication_of(r);
      if (p == nullptr || is_final(r.state)) continue;
      const transaction& t = *find(p->transaction);
      const transaction_budgets& b = t.options.budgets;
      if (r.state == recipient_state::unseen) {
        if (b.acquire_ms != 0 && now - t.started_ms > b.acquire_ms) change(*p, r, recipient_state::absent);
      } else if (b.recipient_idle_ms != 0) {
        const bool fast = r.bytes - r.marked_bytes > least_bytes(b);
        if (fast) r.marked_bytes = r.bytes, r.marked_ms = now;
        else if (now - r.marked_ms > b.recipient_idle_ms) change(*p, r, recipient_state::vanished);
      }
    }
    for (transaction& t : table_) {
      if (t.now != transaction::state::sealed) continue;
      const transaction_budgets& b = t.options.budgets;
      if (b.transaction_idle_ms != 0 && now - t.moved_ms > b.transaction_idle_ms) settle(t);
      else if (b.acquire_ms != 0 && now - t.started_ms > b.acquire_ms) check(t);
    }
  }

  /// A transaction that has settled and whose images nobody reads any more: to be told and released, once. nullptr: none.
  transaction* next_settled() noexcept {
    if (waiting_ == 0) return nullptr;
    for (transaction& t : table_)
      if (t.now == transaction::state::settled && !read_now(t)) {
        t.now = transaction::state::delivered;
        --waiting_;
        return &t;
      }
    return nullptr;
  }

 private:
  static std::uint64_t least_bytes(const transaction_budgets& b) noexcept {
    const std::uint64_t seconds = b.recipient_idle_ms / 1000, rate = b.least_bytes_per_second;
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
      return at == nullptr ? recipient_table::gone : counts_on(*find(at->transaction), x.state) ? recipient_table::counted_on : recipient_table::current;
    };
    recipient_record* const r = records.add(p.id, who, worth, [this](const recipient_record& x) { forgotten(x); });
    if (r == nullptr) return nullptr;
    r->version = p.version, r->generation = p.generation;
    r->slot = static_cast<std::uint32_t>(&p - slots_.data()), r->marked_ms = now_ms;
    return r;
  }

  /// A record goes for lack of room: as if its recipient had never asked, or else it would be waited for.
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
    const bool too_late = !t.named && b.acquire_ms != 0 && now_ms - t.started_ms > b.acquire_ms;  // who has not asked will not
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
    settlement_sum{records, slots_}.fill(t, now_ms);
    t.now = transaction::state::settled;
    ++waiting_;
    for (publication& p : slots_) {
      if (!belongs(p, t)) continue;
      p.verdict = t.outcome.verdict;
      if (p.now != publication::state::published) continue;
      p.now = publication::state::withdrawn, ++p.generation;
    }
  }

  std::span<publication> slots_;
  std::span<transaction> table_;
  std::uint32_t numbers_ = 0, waiting_ = 0;
};

}  // namespace tensorpull
