// What an owner has published: slots in memory that is handed in, under a lock that is handed in.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/std/mutex.hpp>
#include <tensorpull/protocol/pending_reply.hpp>
#include <tensorpull/protocol/owner/detail/progress_feed.hpp>

#include <span>
#include <type_traits>

namespace tensorpull {

template <class Lock = no_lock>
class publication_table {
 public:
  using lock_type = Lock;

  explicit publication_table(const owner_memory& memory) noexcept : slots_(memory.slots), book_(memory) {}

  /// Starts a transaction of several references: publish() each with it, then seal() it. table_full.
  result<transaction_id> open_transaction(const transaction_options& options) noexcept {
    const lock_guard hold(lock_);
    return book_.open(options);
  }
  void seal(transaction_id id) noexcept {
    const lock_guard hold(lock_);
    book_.seal(id);
  }
  /// Nothing was published in it after all.
  void cancel(transaction_id id) noexcept {
    const lock_guard hold(lock_);
    book_.cancel(id);
  }

  /// Publishes an image in an open transaction. The memory behind it must not change or go away until withdraw() or settlement.
  /// `version`: XXH3-64 of the image where `verifiable`, otherwise random; not 0. Under an id that is published already: the new version
  /// takes its place, and recipients of the old one are told `stale`. table_full: no slot or record is free; busy: called from within a
  /// callback while the old image is read.
  result<ref_id> publish(const source_view& image, std::uint64_t version, bool verifiable, ref_id id, transaction_id in) noexcept {
    const lock_guard hold(lock_);
    return place(image, version, verifiable, id, in);
  }
  /// The same as a transaction of its own.
  result<ref_id> publish(const source_view& image, std::uint64_t version, bool verifiable, ref_id id, const transaction_options& options) noexcept {
    const lock_guard hold(lock_);
    const auto t = book_.open(options);
    if (!t) return failure(t.error());
    const auto done = place(image, version, verifiable, id, *t);
    if (done) book_.seal(*t);
    else book_.cancel(*t);
    return done;
  }
  result<ref_id> publish(const source_view& image, std::uint64_t version, bool verifiable, ref_id id, std::uint32_t recipients) noexcept {
    transaction_options options;
    options.recipients = recipients;
    return publish(image, version, verifiable, id, options);
  }

  /// After this returns nothing reads the image's memory any more, whether it was published until now or has settled before.
  /// busy: as above. Recipients are told `withdrawn`; the slot stays until it is needed.
  result<void> withdraw(ref_id id) noexcept {
    const lock_guard hold(lock_);
    publication* const slot = find(id);
    if (slot == nullptr) return failure(errc::unknown_reference);
    if (pinned_here(*slot)) return failure(errc::busy);
    if (slot->now == publication::state::published) book_.take(*slot);
    await_unpinned(*slot);
    return {};
  }

  /// Lets time pass. `now_ms`: milliseconds of a monotonic clock; budgets are kept to within the interval of these calls.
  void advance(std::uint64_t now_ms) noexcept {
    const lock_guard hold(lock_);
    book_.advance(now_ms);
  }
  /// The next progress event that is due; see progress_feed.
  bool next_event(progress_event& out, callback<const progress_event&>& tell) noexcept {
    const lock_guard hold(lock_);
    return feed_.next(book_, slots_, out, tell);
  }
  /// A transaction that has settled, to be told to whoever waits for it, once. Its images may be released then.
  bool next_settled(settlement& out, callback<const settlement&>& tell) noexcept {
    const lock_guard hold(lock_);
    const transaction* const t = book_.next_settled();
    if (t == nullptr) return false;
    out = t->outcome;
    tell = t->options.settled;
    return true;
  }

  result<publication_status> status_of(ref_id id) const noexcept {
    const lock_guard hold(lock_);
    if (const publication* const p = find(id); p != nullptr) return p->counts;
    return failure(errc::unknown_reference);
  }

  /// Its transaction has settled and nothing reads the image any more. Never for an unknown number of recipients without a budget, and
  /// for an unknown reference.
  bool settled(ref_id id) const noexcept {
    const lock_guard hold(lock_);
    const publication* const p = find(id);
    return p != nullptr && p->verdict != verdict::open && p->pins == 0;
  }
  /// How the reference's transaction ended; `open` while it has not. The whole settlement is there until many others have settled.
  result<settlement> settlement_of(ref_id id) noexcept {
    const lock_guard hold(lock_);
    const publication* const p = find(id);
    if (p == nullptr) return failure(errc::unknown_reference);
    if (const transaction* const t = book_.find(p->transaction); t != nullptr && t->outcome.verdict != verdict::open) return t->outcome;
    settlement s;
    s.id = p->transaction;
    s.verdict = p->verdict;
    s.counts = p->counts;
    return s;
  }
  /// How one recipient fares, or fared; unknown_reference where nothing is remembered of it.
  result<recipient_record> recipient_of(ref_id id, recipient_id who) noexcept {
    const lock_guard hold(lock_);
    if (const recipient_record* const r = book_.records.find(id, who)) return *r;
    return failure(errc::unknown_reference);
  }
  /// Copies what is known of a reference's recipients; the number copied.
  std::size_t recipients_of(ref_id id, std::span<recipient_record> out) noexcept {
    const lock_guard hold(lock_);
    std::size_t n = 0;
    for (const recipient_record& r : book_.records.all())
      if (r.who && r.ref == id && n < out.size()) out[n++] = r;
    return n;
  }

  /// The image behind a chunk's answer, pinned so that withdraw() waits; nullptr if it is not published any more. Pair with unpin().
  const source_view* pin(const pending_reply& r) noexcept {
    const lock_guard hold(lock_);
    publication& p = slots_[r.slot];
    if (p.generation != r.generation || p.now != publication::state::published) return nullptr;
    ++p.pins;
    return &p.image;
  }
  /// Whoever reads an image found that it cannot be read: as withdraw(), but does not wait for those who read it.
  void unreadable(const pending_reply& r) noexcept {
    const lock_guard hold(lock_);
    publication& p = slots_[r.slot];
    if (p.generation == r.generation && p.now == publication::state::published) book_.take(p);
  }
  void unpin(const pending_reply& r, std::uint64_t payload_bytes_sent) noexcept {
    const lock_guard hold(lock_);
    publication& p = slots_[r.slot];
    --p.pins;
    if (payload_bytes_sent == 0) return;
    p.counts.bytes_sent += payload_bytes_sent;
    recipient_record& to = book_.records.at(r.record);
    if (to.nonce == r.nonce && to.ref == r.ref) book_.moved(p, to, payload_bytes_sent);
  }

 protected:
  // The lock is held by whoever calls these.
  publication* find(ref_id id) const noexcept {
    publication* last = nullptr;  // of those that are over
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      publication& p = slots_[i];
      if (p.now == publication::state::empty || p.id != id) continue;
      if (p.now == publication::state::published) return &p;
      if (last == nullptr || p.order > last->order) last = &p;
    }
    return last;
  }
  /// An empty slot, or else the oldest of those that are over and that nobody reads.
  publication* vacant() noexcept {
    publication* candidate = nullptr;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      publication& p = slots_[i];
      if (p.now == publication::state::empty) return &p;
      const bool over = p.now == publication::state::withdrawn && p.pins == 0 && !book_.needs(p);
      if (over && (candidate == nullptr || p.order < candidate->order)) candidate = &p;
    }
    return candidate;
  }
  result<ref_id> place(const source_view& image, std::uint64_t version, bool verifiable, ref_id id, transaction_id in) noexcept {
    if (!id || version == 0) return failure(errc::invalid_argument);
    publication* slot = nullptr;
    for (bool waited = true; waited;) {  // everything may have changed after a wait
      publication* const old = find(id);
      if (const auto ok = book_.admits(in, old); !ok) return failure(ok.error());
      slot = old != nullptr && !book_.shares(*old) ? old : vacant();
      if (slot == nullptr) return failure(errc::table_full, slots_.size());
      if (old != nullptr && pinned_here(*old)) return failure(errc::busy);
      if (old != nullptr && old->now == publication::state::published) book_.take(*old);  // nobody pins it anew while we wait
      waited = old != nullptr && await_unpinned(*old);
    }
    *slot = {id, image, version, ++orders_, {}, in, slot->generation + 1, 0, publication::state::published, verdict::open, verifiable};
    const auto joined = book_.attach(*slot);
    if (joined) return id;
    slot->now = publication::state::withdrawn;
    slot->verdict = verdict::withdrawn;
    slot->transaction = {};
    return failure(joined.error());
  }
  /// Without threads a pin is our caller's: a consumer's callback runs while the memory that it is sent from is read. Waiting would
  /// never end.
  static constexpr bool pinned_here(const publication& p) noexcept { return std::is_same_v<Lock, no_lock> && p.pins != 0; }
  /// Whether it had to wait: then other threads may have used the slot.
  bool await_unpinned(publication& p) noexcept {
    bool waited = false;
    for (const auto generation = p.generation; p.pins != 0 && p.generation == generation; waited = true) {
      lock_.unlock();  // only another thread's non-blocking send can hold a pin
      lock_.relax();
      lock_.lock();
    }
    return waited;
  }

  std::span<publication> slots_;
  transaction_table book_;
  progress_feed feed_;
  std::uint64_t orders_ = 0;
  [[no_unique_address]] mutable Lock lock_{};
};

}  // namespace tensorpull
