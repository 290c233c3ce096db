// The transactions of an owner: which recipients each waits for, when it has settled and with which verdict, and the
// events of its progress. It has no lock, no clock and no heap.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/image/schema.hpp>
#include <tensorpull/protocol/owner/detail/recipient_table.hpp>
#include <tensorpull/std/algorithm.hpp>

namespace tensorpull::detail {

/// How many recipients have to end, or to confirm, for a transaction to end well.
inline std::uint64_t awaited(const transaction& t) noexcept {
  return std::max<std::uint64_t>(t.outcome.expected, t.options.least);
}

/// The index of the first name that is a repetition; names.size() if there is none. A name given twice would be waited
/// for twice and end once.
constexpr std::size_t repeated_name(std::span<const recipient_id> names) noexcept {
  for (std::size_t i = 0; i < names.size(); ++i)
    for (std::size_t k = 0; k < i; ++k)
      if (names[i] == names[k]) return i;
  return names.size();
}

/// Whether ends are counted towards a number. Then a recipient that has ended has to be remembered: if it were
/// forgotten and came back, it would count twice.
constexpr bool counts_ends(const transaction& t) noexcept { return t.outcome.expected != 0 || t.options.least != 0; }

/// Whether a record is of what is, or was last, published in a slot: not of an earlier publication under the same
/// reference.
inline bool is_of(const recipient_record& r, const publication& p, std::span<publication> slots) noexcept {
  const bool over = p.now == publication::state::withdrawn;
  return r.ref == p.id && &slots[r.slot] == &p &&
         (r.generation == p.generation || (over && r.generation + 1 == p.generation));
}

/// The transactions of an owner, and the records of their recipients.
class transaction_table {
 public:
  explicit transaction_table(const owner_memory& m) noexcept
      : records(m.records, m.buckets), slots_(m.slots), table_(m.transactions) {}

  recipient_table records;
  std::chrono::milliseconds now{};

  /// table_full: too many transactions are under way, or more recipients count than there are records;
  /// invalid_argument: the name at that place has come before, or a number that is named in the error is another than
  /// that of names or is above it.
  result<transaction_id> open(const transaction_options& options) noexcept {
    if (const std::size_t i = repeated_name(options.named); i != options.named.size())
      return failure(errc::invalid_argument, i);
    if (!options.named.empty() && options.recipients != 0 && options.recipients != options.named.size())
      return failure(errc::invalid_argument, options.recipients, {"recipients"});
    const std::size_t expected = options.named.empty() ? options.recipients : options.named.size();
    if (expected != 0 && options.least > expected) return failure(errc::invalid_argument, options.least, {"least"});
    if (closed_) return failure(errc::withdrawn);
    if (const auto room = remembers(std::max<std::uint64_t>(expected, options.least), 1); !room)
      return failure(room.error());
    for (transaction& t : table_) {
      if (t.now != transaction::state::empty && t.now != transaction::state::delivered) continue;
      if (++numbers_ == 0) ++numbers_;
      const transaction_id id{static_cast<std::uint32_t>(&t - table_.data()), numbers_};
      t = {options, {}, now, now, transaction::state::open, !options.named.empty(), false};
      t.outcome.id = id;
      t.outcome.expected = static_cast<std::uint32_t>(expected);
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
    t->moved_at = now;
    if (published_of(*t) != 0) check(*t);
    else settle(*t);  // nothing is left of it
  }
  /// Ends every transaction that has not settled; no other is opened.
  void settle_all() noexcept {
    closed_ = true;
    for (transaction& t : table_)
      if (under_way(t)) {
        t.by_hand = true;
        settle(t, end_of_transaction::by_hand);
      }
  }
  /// Gives up a transaction in which nothing was published.
  void cancel(transaction_id id) noexcept {
    if (transaction* const t = find(id); t != nullptr && t->outcome.references == 0) t->now = transaction::state::empty;
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
    return t != nullptr &&
           (t->now == transaction::state::open || (t->now == transaction::state::sealed && t->outcome.references > 1));
  }
  /// Whether another publication can join, in the place of `old` if there is one. invalid_argument: the transaction is
  /// not open, or has it already; table_full.
  result<void> admits(transaction_id in, publication* old) noexcept {
    const transaction* const t = find(in);
    const bool there = old != nullptr && old->now == publication::state::published;
    if (t == nullptr || t->now != transaction::state::open || (there && old->transaction == in))
      return failure(errc::invalid_argument);
    if (const auto counted = remembers(awaited(*t), published_of(*t) + 1); !counted) return counted;
    if (there) old->leaving = true;
    const auto room = has_room(t->options.named.size());
    if (there) old->leaving = false;
    return room;
  }

  /// Whether all of these images can join a transaction that has none yet, each in the place of what is published under
  /// its ID. After that nothing about them can fail, until the owner's lock is released. Errors: as owner::publish_all.
  template <class Images>
  result<void> admits_all(transaction_id in, const Images& images) noexcept {
    const transaction* const t = find(in);
    if (t == nullptr || t->now != transaction::state::open || t->outcome.references != 0 || images.size() == 0)
      return failure(errc::invalid_argument);
    std::size_t free_slots = 0;
    for (const publication& p : slots_)
      free_slots += p.now == publication::state::empty ||
                    (p.now == publication::state::withdrawn && p.pins == 0 && !needs(p));
    if (free_slots < images.size()) return failure(errc::table_full, slots_.size());
    for (std::size_t i = 0; i < images.size(); ++i) {
      bool wrong = !images[i].as.id || images[i].as.version == 0;
      for (std::size_t k = 0; k < i; ++k) wrong = wrong || images[k].as.id == images[i].as.id;
      if (wrong) return failure(errc::invalid_argument, i);
    }
    if (const auto counted = remembers(awaited(*t), images.size()); !counted) return counted;
    const auto leave = [&](bool all) {
      for (publication& p : slots_)
        for (std::size_t i = 0; i < images.size(); ++i)
          if (images[i].as.id == p.id) p.leaving = all;
    };
    leave(true);
    const auto room = has_room(std::uint64_t{images.size()} * t->options.named.size());
    leave(false);
    return room;
  }

  /// Whether so many records can only be made by forgetting how recipients have ended before that has been told.
  bool forgets_ends(std::uint64_t wanted) noexcept {
    std::uint64_t room = 0;
    bool untold = false;
    for (const recipient_record& r : records.all()) {
      untold = untold || ends_untold(r);
      room += !r.who || held(r) == recipient_table::gone;
    }
    return untold && room < wanted;
  }

  /// A publication that was admitted joins its transaction, whose named recipients get their records. What it replaces
  /// has to be taken before.
  void attach(publication& p) noexcept {
    transaction& t = *find(p.transaction);
    for (const recipient_id who : t.options.named)
      if (recipient_record* const r = fresh(p, who, true)) r->expected = true;
    if (++t.outcome.references > 1) count_again(t);  // a recipient that had everything has not
  }

  /// The publication that a record belongs to, if that is still published as it was.
  publication* publication_of(const recipient_record& r) const noexcept {
    if (!r.who) return nullptr;
    publication& p = slots_[r.slot];
    return p.generation == r.generation && p.now == publication::state::published ? &p : nullptr;
  }

  /// What is known of a recipient of `p`; nullptr: nothing.
  recipient_record* record_of(const publication& p, recipient_id who) noexcept {
    recipient_record* r = records.find(p.id, who);
    while (r != nullptr && !is_of(*r, p, slots_)) r = records.before(*r);
    return r;
  }

  /// The record of a recipient that asks for `p`, made if there is none. One that was absent or has vanished is awaited
  /// again in all. nullptr: no room.
  recipient_record* acquire(publication& p, recipient_id who, bool anonymous) noexcept {
    transaction* const t = find(p.transaction);
    recipient_record* r = record_of(p, who);
    const bool first = (r == nullptr || !has_asked(r->state)) && !asked(*t, who);
    if (r == nullptr) {
      r = fresh(p, who);
      if (r == nullptr) return nullptr;
      r->anonymous = anonymous;
      if (t->named) ++p.counts.unlisted;
    }
    if (first) {
      ++t->outcome.counts.acquired;
      t->outcome.counts.unlisted += t->named && !r->expected;
    }
    if (!has_asked(r->state == recipient_state::vanished ? r->before : r->state)) ++p.counts.acquired;
    if (r->state == recipient_state::absent || r->state == recipient_state::vanished) await_again(*t, who);
    if (r->state == recipient_state::unseen) {
      r->state = recipient_state::acquired;
    } else if (is_final(r->state) && !has_completed(r->state)) {
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
  /// of it may come when the image is gone.
  void moved(publication& p, recipient_record& r, std::uint64_t bytes) noexcept {
    r.bytes += bytes;
    r.moved = r.moved || bytes > 0;
    transaction* const t = find(p.transaction);
    if (t == nullptr) return;
    t->moved_at = now;
    if (t->options.progress) r.tensors_done = static_cast<std::uint32_t>(tensors_in(*p.image.schema, r.bytes));
  }

  /// The owner withdraws `p`, or puts another version in its place: no recipient can finish it any more. Call it before
  /// the slot changes.
  void take(publication& p) noexcept {
    transaction& t = *find(p.transaction);
    t.by_hand = true;
    if (t.now == transaction::state::sealed && published_of(t) == 1) return settle(t, end_of_transaction::by_hand);
    end(p, t, end_of_transaction::by_hand);
    count_again(t);
    check(t);
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
      if (unseen && b.acquire > none && now - t->started_at > b.acquire && !asked(*t, r.who))
        set(*p, r, recipient_state::absent);
      if (b.recipient_idle <= none || now - r.marked_at <= b.recipient_idle) continue;
      const bool lacks_others = ended && !t->named && t->outcome.expected != 0 && t->outcome.references > 1;
      if ((ended && !lacks_others) || is_final(r.state) != ended || !asked(*t, r.who) ||
          now - last_seen(*t, r.who) <= b.recipient_idle)
        continue;
      if (ended) vanish_from_others(*t, r.who);
      else set(*p, r, recipient_state::vanished);
    }
    for (transaction& t : table_) {
      if (t.now != transaction::state::sealed) continue;
      const auto idle = t.options.budgets.transaction_idle;
      if (idle > none && now - t.moved_at > idle) settle(t, end_of_transaction::by_budget);
      else check(t);
    }
  }

  /// Whether the end of a transaction can be told: it has settled, its images are not read any more, and no callback of
  /// it runs, unless it is `at_once`.
  bool settling(transaction_id at_once) const noexcept {
    if (waiting_ == 0) return false;
    for (const transaction& t : table_)
      if (can_be_told(t, at_once)) return true;
    return false;
  }
  /// Such a transaction, all of whose progress has been told. Its last callback begins. Each comes once. nullptr: there
  /// is none.
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

  /// The next progress event that is due, and the callback for it, which begins: what has changed in a recipient's
  /// record since its last event. None: there is none. Cost: up to one pass over the records.
  transaction_id next_event(progress_event& out, callback<const progress_event&>& tell) noexcept {
    for (recipient_record& r : records.all()) {
      transaction* const t = transaction_of(r);
      if (t == nullptr || !due(r, *t)) continue;
      fill(out, r);
      tell = t->options.progress;
      ++t->callbacks;
      return t->outcome.id;
    }
    return {};
  }

 private:
  static constexpr std::chrono::milliseconds none{};

  static std::uint64_t least_bytes(const transaction_budgets& b) noexcept {
    const std::uint64_t seconds = static_cast<std::uint64_t>(b.recipient_idle.count()) / 1000,
                        rate = b.least_bytes_per_second;
    return rate != 0 && seconds > ~std::uint64_t{0} / rate ? ~std::uint64_t{0} : seconds * rate;
  }
  /// table_full: there are fewer records than recipients that count, each with one for each reference. Those without a
  /// record would be told `busy` for ever, and the others would wait for them.
  result<void> remembers(std::uint64_t recipients, std::uint64_t references) const noexcept {
    const std::uint64_t most = records.all().size();
    if (recipients * references > most) return failure(errc::table_full, most, {"recipients"});
    return {};
  }
  bool belongs(const publication& p, const transaction& t) const noexcept { return p.is_part_of(t.outcome.id); }
  static bool under_way(const transaction& t) noexcept {
    return t.now == transaction::state::open || t.now == transaction::state::sealed;
  }
  static constexpr bool has_asked(recipient_state s) noexcept {
    return s != recipient_state::unseen && s != recipient_state::absent;
  }
  std::size_t published_of(const transaction& t) const noexcept {
    std::size_t n = 0;
    for (const publication& p : slots_) n += belongs(p, t) && p.now == publication::state::published;
    return n;
  }
  bool read_now(const transaction& t) const noexcept {
    for (const publication& p : slots_)
      if (belongs(p, t) && p.pins != 0) return true;
    return false;
  }

  /// Whether a recipient has ended, and no progress event has said so yet.
  bool ends_untold(const recipient_record& r) noexcept {
    const transaction* const t = is_final(r.state) ? transaction_of(r) : nullptr;
    return t != nullptr && due(r, *t);
  }
  /// Why a record is kept now. One whose end is not told yet stays for that: the next event that is told makes room.
  recipient_table::worth held(const recipient_record& r) noexcept {
    return ends_untold(r) ? recipient_table::counted_on : worth(r);
  }
  /// Why it is kept once everything has been told.
  recipient_table::worth worth(const recipient_record& r) noexcept {
    const publication& p = slots_[r.slot];
    const transaction* const t = is_of(r, p, slots_) ? find(p.transaction) : nullptr;
    if (t == nullptr || !under_way(*t)) return recipient_table::gone;
    if (counts_ends(*t) && tells_an_end(r, *t)) return recipient_table::counted_on;
    return p.now != publication::state::published ? recipient_table::gone : recipient_table::current;
  }
  /// Whether a transaction that is under way would forget without this record how one of its recipients has ended. What
  /// it says when its publication has ended before its recipient is said by none, too.
  static bool tells_an_end(const recipient_record& r, const transaction& t) noexcept {
    return is_final(r.state) && r.state != recipient_state::absent && r.state != recipient_state::unfinished &&
           under_way(t) && (r.expected || !t.named);
  }
  /// Whether a transaction under way has, or may get, references that are not leaving.
  bool goes_on(const transaction& t) const noexcept {
    if (t.now == transaction::state::open) return true;
    for (const publication& p : slots_)
      if (belongs(p, t) && p.now == publication::state::published && !p.leaving) return true;
    return false;
  }
  /// Whether so many records can be made, once each publication that is `leaving` is over.
  result<void> has_room(std::uint64_t wanted) noexcept {
    if (wanted == 0) return {};  // no records are made before somebody asks
    std::uint64_t room = 0;
    for (const recipient_record& r : records.all()) {
      const auto why = r.who ? worth(r) : recipient_table::gone;
      bool free = why == recipient_table::gone;
      if (why == recipient_table::counted_on) {
        free = !goes_on(*transaction_of(r));
      } else if (!free) {
        const publication* const p = publication_of(r);
        free = (p != nullptr && p->leaving) || (!r.expected && r.connection == 0);
      }
      room += free;
    }
    if (room < wanted) return failure(errc::table_full, records.all().size());
    return {};
  }

  /// A record of a recipient that has none of `p`. One of an earlier version makes way for it, unless its end has not
  /// been told yet, or its transaction is under way and would forget that the recipient has asked, or how it has ended.
  /// `admitted`: has_room() has counted it, so it is made even in the place of one whose end has not been told.
  recipient_record* fresh(publication& p, recipient_id who, bool admitted = false) noexcept {
    for (recipient_record *old = records.find(p.id, who), *next = nullptr; old != nullptr; old = next) {
      next = records.before(*old);
      transaction* const t = transaction_of(*old);
      if (t == nullptr) records.remove(*old);
      else if (ends_untold(*old)) continue;
      else if (!under_way(*t) || (!has_asked(old->state) && !tells_an_end(*old, *t)))
        recount(*t, who, old->expected, [&] { records.remove(*old); });
    }
    const auto forgotten = [this](recipient_record& x) { forget(x); };
    recipient_record* r = records.add(p.id, who, [this](const recipient_record& x) { return held(x); }, forgotten);
    if (r == nullptr && admitted)
      r = records.add(p.id, who, [this](const recipient_record& x) { return worth(x); }, forgotten);
    if (r == nullptr) return nullptr;
    r->version = p.version;
    r->transaction = p.transaction;
    r->image_bytes = p.image_bytes;
    r->tensors = p.tensors;
    r->generation = p.generation;
    r->slot = static_cast<std::uint32_t>(&p - slots_.data());
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
    if (asked(t, r.who)) return;
    --t.outcome.counts.acquired;
    t.outcome.counts.unlisted -= unlisted;
  }

  /// Calls `f(publication, record)` for each reference of a transaction; the record is nullptr if nothing is known of
  /// the recipient.
  template <class F>
  void each_of(const transaction& t, recipient_id who, F f) noexcept {
    for (publication& p : slots_)
      if (belongs(p, t)) f(p, record_of(p, who));
  }
  /// Whether the recipient has asked for anything.
  bool asked(const transaction& t, recipient_id who) noexcept {
    bool any = false;
    each_of(t, who,
            [&](const publication&, const recipient_record* r) { any = any || (r != nullptr && has_asked(r->state)); });
    return any;
  }
  /// When it was last fast enough, or said anything.
  std::chrono::milliseconds last_seen(const transaction& t, recipient_id who) noexcept {
    std::chrono::milliseconds last{};
    each_of(t, who, [&](const publication&, const recipient_record* r) {
      if (r != nullptr && r->marked_at > last) last = r->marked_at;
    });
    return last;
  }

  /// How a recipient has ended over all references; `acquired`: it has not, which is never the answer if everything is
  /// `over`.
  recipient_state standing(const transaction& t, recipient_id who, bool over = false) noexcept {
    recipient_state worst = recipient_state::completed, gave_up = recipient_state::unfinished;
    bool has = false, open = false, absent = false, missing = false;
    each_of(t, who, [&](const publication& p, const recipient_record* r) {
      const recipient_state s = r != nullptr ? r->state : recipient_state::unseen;
      has = has || has_asked(s);
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
  /// Makes a change to a recipient's records, and to the counts of its transaction what follows from it.
  template <class Change>
  void recount(transaction& t, recipient_id who, bool expected, Change make) noexcept {
    if (!under_way(t) || (t.named && !expected)) return make();
    publication_status& sum = t.outcome.counts;
    if (const recipient_state before = standing(t, who); is_final(before)) --sum.of(before);
    make();
    if (const recipient_state after = standing(t, who); is_final(after)) ++sum.of(after);
  }
  /// A record's state changes, and with it the counts.
  void set(publication& p, recipient_record& r, recipient_state to) noexcept {
    transaction& t = *find(p.transaction);
    recount(t, r.who, r.expected, [&] {
      const bool counts = r.expected || !t.named;
      if (counts && is_final(r.state)) --p.counts.of(r.state);
      if (to == recipient_state::vanished) r.before = r.state;
      else if (is_final(to)) r.serving = false;  // a recipient that vanished may go on
      r.state = to;
      if (counts && is_final(to)) ++p.counts.of(to);
    });
  }
  /// Undoes what the budgets have decided about a recipient that has come.
  void await_again(transaction& t, recipient_id who) noexcept {
    each_of(t, who, [&](publication& p, recipient_record* r) {
      if (r == nullptr || p.now != publication::state::published) return;
      if (r->state == recipient_state::absent) set(p, *r, recipient_state::unseen);
      else if (r->state == recipient_state::vanished) set(p, *r, r->before);
    });
  }
  /// Of a number of recipients one has vanished that has not asked for every reference. Those for which there is no
  /// room wait for the transaction's budget.
  void vanish_from_others(transaction& t, recipient_id who) noexcept {
    if (is_final(standing(t, who))) return;
    each_of(t, who, [&](publication& p, recipient_record* r) {
      if (r == nullptr && p.now == publication::state::published) r = fresh(p, who);
      if (r != nullptr && !is_final(r->state)) set(p, *r, recipient_state::vanished);
    });
  }

  /// Calls `f(record)` with one record of each recipient that counts.
  template <class F>
  void each_recipient(const transaction& t, F f) noexcept {
    for (recipient_record& r : records.all()) {
      if (!r.who || !is_of(r, slots_[r.slot], slots_) || !belongs(slots_[r.slot], t) || (t.named && !r.expected))
        continue;
      const recipient_record* first = nullptr;
      each_of(t, r.who, [&](const publication&, const recipient_record* x) { first = first != nullptr ? first : x; });
      if (first == &r) f(r);
    }
  }
  /// Counts those that have ended, after the references have changed.
  void count_again(transaction& t) noexcept {
    publication_status& sum = t.outcome.counts;
    sum.completed = sum.completed_unverified = sum.failed = sum.cancelled = sum.vanished = sum.absent = sum.unfinished =
        0;
    each_recipient(t, [&](const recipient_record& r) {
      if (const recipient_state s = standing(t, r.who); is_final(s)) ++sum.of(s);
    });
  }

  /// Settles if every expected recipient has ended.
  void check(transaction& t) noexcept {
    if (t.now != transaction::state::sealed || t.outcome.expected == 0) return;
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
    for (recipient_record& r : records.all())
      if (publication_of(r) == &p && !is_final(r.state)) {
        r.state = r.state == recipient_state::unseen ? recipient_state::absent : recipient_state::unfinished;
        const bool over = why == end_of_transaction::by_hand || r.state == recipient_state::unfinished;
        if (over && why != end_of_transaction::by_budget)
          r.ended_by = p.unreadable ? errc::unreadable : errc::withdrawn;
        if (r.expected || !t.named) ++p.counts.of(r.state);
      }
    p.now = publication::state::withdrawn;
    ++p.generation;
  }

  void settle(transaction& t, end_of_transaction why = end_of_transaction::by_itself) noexcept {
    publication_status& sum = t.outcome.counts;
    each_recipient(t, [&](const recipient_record& r) {
      if (!is_final(standing(t, r.who))) ++sum.of(standing(t, r.who, true));
    });
    for (publication& p : slots_) {
      if (!belongs(p, t)) continue;
      if (p.now == publication::state::published) end(p, t, why);
      sum.bytes_sent += p.counts.bytes_sent;
      sum.lost += p.counts.lost;
    }
    conclude(t);
    t.now = transaction::state::settled;
    ++waiting_;
    for (publication& p : slots_)
      if (belongs(p, t)) p.verdict = t.outcome.verdict;
  }

  /// The verdict over the counts.
  void conclude(transaction& t) noexcept {
    publication_status& sum = t.outcome.counts;
    if (t.outcome.expected > sum.final()) sum.absent += t.outcome.expected - sum.final();
    t.outcome.lasted = now - t.started_at;
    t.outcome.verdict = verdict_of(t);
  }
  static verdict verdict_of(const transaction& t) noexcept {
    const publication_status& sum = t.outcome.counts;
    const std::uint32_t confirmed = sum.completed + sum.completed_unverified;
    const bool known = t.outcome.expected != 0;
    if (known && sum.completed >= t.outcome.expected) return verdict::completed;
    if (known && confirmed >= t.outcome.expected) return verdict::completed_unverified;
    if (t.options.least != 0 && confirmed >= t.options.least) return verdict::quorum;
    if (t.lost) return verdict::owner_lost;
    if (t.by_hand) return verdict::withdrawn;
    return known ? verdict::failed : verdict::uncertified;
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
  /// The transaction that a record is, or was last, a part of, although another publication may have taken the place of
  /// its own. nullptr: it is not remembered any more.
  transaction* transaction_of(const recipient_record& r) const noexcept {
    return r.who ? find(r.transaction) : nullptr;
  }

  bool due(const recipient_record& r, const transaction& t) const noexcept {
    if (!t.options.progress || t.now == transaction::state::told || t.now == transaction::state::delivered)
      return false;
    if (is_final(r.state)) return r.announced != r.state;
    if (r.state == recipient_state::unseen) return false;
    return r.announced == recipient_state::unseen || (r.moved && now - r.announced_at >= t.options.progress_interval);
  }

  void fill(progress_event& out, recipient_record& r) noexcept {
    const bool first = r.announced == recipient_state::unseen && r.state != recipient_state::absent;
    out = {};
    out.sequence = ++events_;
    out.ref = r.ref;
    out.recipient = r.anonymous ? recipient_id{} : r.who;
    out.bytes_total = r.image_bytes;
    out.bytes_done = std::min(r.bytes, r.image_bytes);
    out.tensors_total = r.tensors;
    out.tensors_done = r.tensors_done;
    if (first) {
      out.phase = progress_phase::started;
    } else if (!is_final(r.state)) {
      out.phase = progress_phase::active;
    } else if (has_completed(r.state)) {
      out.phase = progress_phase::completed;
    } else if (r.state == recipient_state::cancelled) {
      out.phase = progress_phase::aborted;
      out.code = errc::cancelled_by_peer;
    } else {
      out.phase = progress_phase::failed;
      out.code = r.state == recipient_state::failed ? errc::digest_mismatch : r.ended_by;
    }
    r.announced = first ? recipient_state::acquired : r.state;
    r.moved = false;
    r.announced_at = now;
  }

  std::span<publication> slots_;
  std::span<transaction> table_;
  std::uint32_t numbers_ = 0, waiting_ = 0;
  std::uint64_t events_ = 0;
  bool closed_ = false;
};

}  // namespace tensorpull::detail
