// The publications of a program, their transactions, and how far the recipients are.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/protocol/owner/detail/placement.hpp>
#include <tensorpull/protocol/owner/detail/transaction_table.hpp>
#include <tensorpull/protocol/owner/owner_memory.hpp>
#include <tensorpull/std/mutex.hpp>

#include <span>

namespace tensorpull {

/// The part of an owner that the program calls: it publishes and withdraws, and asks. `Lock`: no_lock, or a lock with
/// relax() if several threads use the owner (std/mutex.hpp). No member throws or allocates.
template <class Lock>
class publication_book {
 public:
  /// The lock that each member takes.
  using lock_type = Lock;

  /// `memory`: borrowed as long as the owner lives.
  explicit publication_book(const owner_memory& memory) noexcept : transactions_(memory) {}

  /// Starts a transaction of several references: publish() each in it, then seal() it. table_full: too many
  /// transactions are under way, or more recipients count (`recipients`, `named` or `least`) than there are records:
  /// then the error's name is `recipients`, and `at` is how many there are. invalid_argument: a recipient is named
  /// twice (`at` is the index of the second), `least` is above the number of recipients, or `recipients` is another
  /// number than that of names (the error names it).
  result<transaction_id> open_transaction(const transaction_options& options) noexcept {
    const lock_guard hold(lock_);
    return transactions_.open(options);
  }
  /// No more references will join; from now on the transaction may settle. Does nothing if it is not open.
  void seal(transaction_id id) noexcept {
    const lock_guard hold(lock_);
    transactions_.seal(id);
  }
  /// Gives up a transaction in which nothing was published.
  void cancel(transaction_id id) noexcept {
    const lock_guard hold(lock_);
    transactions_.cancel(id);
  }

  /// Publishes an image in an open transaction. The memory behind it must not change or go away until withdraw() or
  /// settlement. `version`: the digest of the image if `verifiable`, otherwise random; not 0. If `id` is published
  /// already, the new version replaces the old one, and recipients of the old one are told `stale`.
  /// invalid_argument: `id` or `version` is 0, or the transaction is not open or has this reference already.
  /// table_full: no slot or record is free, or more recipients count than there are records for: each needs one for
  /// each reference. busy: called from within a callback while the old image is read. After an error what was published
  /// before is as it was, unless another thread took the room while this one waited for the old image. `tell()`: called
  /// without the lock, before anything changes, if records are needed of recipients whose end has not been told. It
  /// takes the progress events that are due, and returns whether there were any. Those that are due when the records
  /// are taken are never told. `beside`, `replaced_stays`: as publish_options have them; the first also in a
  /// transaction that is sealed.
  template <class Tell = detail::tells_nobody>
  result<ref_id> publish(const source_view& image, std::uint64_t version, bool verifiable, ref_id id, transaction_id in,
                         Tell tell = {}, bool beside = false, bool replaced_stays = false) noexcept {
    const lock_guard hold(lock_);
    return placed().publish({image, {id, version}}, verifiable, in, tell, beside, replaced_stays);
  }
  /// The same, as a transaction of its own.
  result<ref_id> publish(const source_view& image, std::uint64_t version, bool verifiable, ref_id id,
                         const transaction_options& options) noexcept {
    const lock_guard hold(lock_);
    const auto t = transactions_.open(options);
    if (!t) return failure(t.error());
    const auto done = placed().publish({image, {id, version}}, verifiable, *t, detail::tells_nobody{});
    if (done) transactions_.seal(*t);
    else transactions_.cancel(*t);
    return done;
  }
  /// The same for a number of recipients (0: not known), with the default options.
  result<ref_id> publish(const source_view& image, std::uint64_t version, bool verifiable, ref_id id,
                         std::uint32_t recipients) noexcept {
    transaction_options options;
    options.recipients = recipients;
    return publish(image, version, verifiable, id, options);
  }

  /// Publishes several images in an open transaction that has none yet: all, or none. Everything that could fail is
  /// found before anything changes, so an error leaves what was published before as it was, also under IDs that are
  /// given; no recipient sees only some of them. Each needs a free slot, and nothing makes room for it. The images that
  /// they replace are not read any more when this returns. `images`: a list of transaction_image. invalid_argument with
  /// the index: an ID or a version is 0, an ID is there twice, or there are no images or the transaction is not open or
  /// has some; table_full: too few slots or records are free, or more recipients count than there are
  /// records for; busy with the index: called from within a callback while an image that is replaced is read.
  /// `tell()`: as above.
  template <class Images, class Tell = detail::tells_nobody>
  result<void> publish_all(const Images& images, bool verifiable, transaction_id in, Tell tell = {}) noexcept {
    const lock_guard hold(lock_);
    return placed().publish_all(images, verifiable, in, tell);
  }

  /// After this returns without an error, nothing reads the image's memory any more, whether it was published until now
  /// or had settled before. It waits for sends of other threads that read it. Recipients are told `withdrawn` with
  /// `reason`, a number of the application's, in the answers to requests in flight and to later ones.
  /// unknown_reference: nothing is known of it. busy: called from within a callback while the image is read. Gives
  /// the transaction that the reference is a part of.
  result<transaction_id> withdraw(publication_key which, std::uint32_t reason = 0) noexcept {
    const lock_guard hold(lock_);
    return placed().end(which, [&](publication& p) {
      p.reason = reason;
      transactions_.take(p);
    });
  }
  /// The same if another owner coordinates the transaction and is gone: it ends as verdict::owner_lost.
  result<transaction_id> lose(publication_key which) noexcept {
    const lock_guard hold(lock_);
    return placed().end(which, [&](publication& p) { transactions_.lose(p); });
  }

  /// There is one connection alone: if its other end cannot take what is described, that is its end. Otherwise it may
  /// ask again, and so may another. Call it before anything is published.
  void has_one_peer() noexcept { transactions_.one_peer = true; }

  /// Withdraws everything, and settles also what is not sealed: the last settlements can be delivered before the owner
  /// is destroyed. Nothing may read the images any more, and nothing can be published any more (withdrawn).
  void withdraw_all() noexcept {
    const lock_guard hold(lock_);
    transactions_.settle_all();
  }

  /// Lets time pass and judges the budgets. `now`: the time of a monotonic clock with any origin. Budgets are as exact
  /// as these calls are frequent. Cost: one pass over the recipients' records.
  void advance(std::chrono::milliseconds now) noexcept {
    const lock_guard hold(lock_);
    transactions_.advance(now);
  }
  /// The next progress event that is due, the callback to call with it, and the transaction that it is of: call
  /// returned() afterwards. None: there is none.
  transaction_id next_event(progress_event& out, callback<const progress_event&>& tell) noexcept {
    const lock_guard hold(lock_);
    return transactions_.next_event(out, tell);
  }
  /// Whether a transaction has settled so far that its end can be told, after the progress of its recipients.
  /// `at_once`: its end is told even while other callbacks of it run.
  bool settling(transaction_id at_once = {}) const noexcept {
    const lock_guard hold(lock_);
    return transactions_.settling(at_once);
  }
  /// A transaction that has settled, whose images are not read any more and whose progress has been told, and the last
  /// callback to call for it: call returned() afterwards. Each is given once. None: there is none.
  transaction_id next_settled(settlement& out, callback<const settlement&>& tell,
                              transaction_id at_once = {}) noexcept {
    const lock_guard hold(lock_);
    const transaction* const t = transactions_.next_settled(at_once);
    if (t == nullptr) return {};
    out = t->outcome;
    tell = t->options.settled;
    return t->outcome.id;
  }
  /// A callback of a transaction has returned. True: it was the last one. Release what was kept for the transaction,
  /// then call released().
  bool returned(transaction_id id) noexcept {
    const lock_guard hold(lock_);
    return transactions_.returned(id);
  }
  /// The objects kept for a transaction have been released.
  void released(transaction_id id) noexcept {
    const lock_guard hold(lock_);
    transactions_.released(id);
  }
  /// Whether a callback of the transaction will begin because it has settled or, with `running`, runs now (or what was
  /// kept is not released yet).
  bool calls(transaction_id id, bool running) const noexcept {
    const lock_guard hold(lock_);
    const transaction* const t = transactions_.find(id);
    if (t == nullptr) return false;
    return t->now == transaction::state::settled ||
           (running && (t->now == transaction::state::told || t->callbacks != 0));
  }

  /// The counts of one reference. unknown_reference: nothing is known under `id`.
  result<publication_status> status_of(publication_key which) const noexcept {
    const lock_guard hold(lock_);
    if (const publication* const p = transactions_.publications.find(which); p != nullptr) return p->counts;
    return failure(errc::unknown_reference);
  }

  /// Whether the reference's transaction has settled and nothing reads the image any more. If the number of recipients
  /// is not known, a transaction settles only by withdraw() or by its budget `transaction_idle`. True for an unknown
  /// reference: nothing is left of it.
  bool settled(publication_key which) const noexcept {
    const lock_guard hold(lock_);
    const publication* const p = transactions_.publications.find(which);
    return p == nullptr || (p->verdict != verdict::open && p->pins == 0);
  }
  /// The transaction that the reference is a part of; none for an unknown reference.
  transaction_id transaction_of(publication_key which) const noexcept {
    const lock_guard hold(lock_);
    const publication* const p = transactions_.publications.find(which);
    return p == nullptr ? transaction_id{} : p->transaction;
  }
  /// How the reference's transaction ended; its verdict is `open` as long as it has not. The whole settlement is there
  /// until another transaction takes its row in the table, which the next one to be opened may do; after that, the
  /// verdict and this reference's counts. unknown_reference: nothing is known under `id`.
  result<settlement> settlement_of(publication_key which) noexcept {
    const lock_guard hold(lock_);
    const publication* const p = transactions_.publications.find(which);
    if (p == nullptr) return failure(errc::unknown_reference);
    if (const transaction* const t = transactions_.find(p->transaction);
        t != nullptr && t->outcome.verdict != verdict::open)
      return t->outcome;
    settlement s;
    s.id = p->transaction;
    s.verdict = p->verdict;
    s.counts = p->counts;
    return s;
  }
  /// The record of one recipient: of the version that is named, or else of the last one that it has asked for.
  /// unknown_reference: there is none.
  result<recipient_record> recipient_of(publication_key which, recipient_id who) noexcept {
    const lock_guard hold(lock_);
    if (const recipient_record* const r = record_of(which, transactions_.publications.find(which), who)) return *r;
    return failure(errc::unknown_reference);
  }
  /// Copies the records of a reference's recipients, as many as fit, and returns how many: of each, that of the version
  /// that is named, or else of the last one that it has asked for. Cost: one pass over all records.
  std::size_t recipients_of(publication_key which, std::span<recipient_record> out) noexcept {
    const lock_guard hold(lock_);
    const publication* const p = transactions_.publications.find(which);
    std::size_t n = 0;
    for (const recipient_record& r : transactions_.records.all())
      if (r.who && r.ref == which.id && n < out.size() && record_of(which, p, r.who) == &r) out[n++] = r;
    return n;
  }
  /// The totals. Cost: one pass over all records.
  owner_totals totals() noexcept {
    const lock_guard hold(lock_);
    owner_totals t;
    t.bytes_sent = bytes_sent_;
    t.transfers = transactions_.transfers;
    for (const publication& p : transactions_.publications.all())
      t.references += p.now == publication::state::published;
    for (const recipient_record& r : transactions_.records.all()) {
      if (!r.who) continue;
      t.active += r.connection != 0 && !is_final(r.state);
      // a recipient that takes what is beside a reference is one of that once it asks for it
      if (!transactions_.is_beside(r)) ++t.recipients[static_cast<std::size_t>(r.state)];
    }
    return t;
  }

  /// Calls `see(tables)` with all rows as they are, unused ones among them, while it has the lock: so `see` is short
  /// and calls nothing of this owner. For programs that show what an owner does. Gives what `see` gives.
  template <class See>
  auto look_over(See see) const noexcept {
    const lock_guard hold(lock_);
    return see(static_cast<const detail::owner_tables&>(transactions_));
  }

 protected:
  detail::transaction_table transactions_;
  std::uint64_t bytes_sent_ = 0;  ///< payload handed to transports
  [[no_unique_address]] mutable Lock lock_{};

 private:
  // The caller of these holds the lock.
  detail::placement<Lock> placed() noexcept { return {transactions_, lock_}; }
  /// The record of a recipient of `which`; if that names a version, of the publication `p` alone.
  recipient_record* record_of(publication_key which, const publication* p, recipient_id who) noexcept {
    if (which.version == 0) return transactions_.records.find(which.id, who);
    return p != nullptr ? transactions_.record_of(*p, who) : nullptr;
  }
};

}  // namespace tensorpull
