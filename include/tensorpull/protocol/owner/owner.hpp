// The owner's state machine: what is published, for whom, how it ended, and the answers to requests about it. It has no I/O, no clock and no heap:
// memory, random numbers, the time and the lock are handed in. It gives payloads as ranges of an image; the endpoint turns them into spans when the
// transport can take them.
#pragma once

#include <tensorpull/core/checked.hpp>
#include <tensorpull/core/limits.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/core/splitmix64.hpp>
#include <tensorpull/framing/frame.hpp>
#include <tensorpull/image/gather_scatter.hpp>
#include <tensorpull/integrity/concept.hpp>
#include <tensorpull/integrity/range_digest.hpp>
#include <tensorpull/protocol/owner/detail/subset.hpp>
#include <tensorpull/protocol/owner/detail/transaction_table.hpp>
#include <tensorpull/protocol/owner/owner_memory.hpp>
#include <tensorpull/protocol/pending_reply.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/mutex.hpp>

#include <span>
#include <type_traits>

namespace tensorpull {

namespace detail {

/// As many rows from `first` on as fit a frame of `frame_bytes`; they borrow the schema. An index past the end gives an empty page.
inline element_list<schema_row> schema_rows(const image_schema& schema, std::uint64_t first, std::size_t frame_bytes) noexcept {
  std::size_t count = 0, used = 160;  // segment table, root, page and list pointers
  for (std::uint64_t i = first; i < schema.tensor_count; ++i, ++count) {
    const tensor_entry& t = schema.tensors[i];
    used += 24 + (t.name.size() / 8 + 1) * 8 + 16 + std::size_t{t.rank} * 8;
    if (used > frame_bytes) break;
  }
  if (count == 0) return {};
  const auto row = [](const void* tensors, std::size_t, std::size_t i) noexcept -> schema_row {
    const tensor_entry& t = static_cast<const tensor_entry*>(tensors)[i];
    return {t.name, to_string(t.type), t.extents()};
  };
  return {&schema.tensors[first], 0, count, row};
}

/// The use of one publication by one connection. The recipient's record has what is known about it.
struct serve {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;  ///< 0: this entry is free
  std::uint32_t record = 0;
};

}  // namespace detail

/// What a program publishes, and the role of an owner at its connections: a model of owner_role (roles.hpp). `Hash` computes digests of chunks and
/// subsets. `Limits` caps what one peer may cause. `Lock`: no_lock, or a lock with relax() if several threads use the owner (std/mutex.hpp).
/// `ChunkHash`: another hash that recipients may ask for with chunks, such as CRC32C, or the same. No member throws or allocates.
template <hash Hash, class Limits = default_limits, class Lock = no_lock, hash ChunkHash = Hash>
class owner {
 public:
  /// What an owner remembers of one connection: who is at its other end, and which references it is pulling. Fixed size.
  class peer {
    friend class owner;
    using serve = detail::serve;

    serve* find(std::uint32_t slot, std::uint32_t generation) noexcept {
      for (serve& s : serves)
        if (s.generation == generation && s.slot == slot) return &s;
      return nullptr;
    }
    /// A free entry, or one that is `over(entry)`. nullptr: too many transfers are open.
    template <class Over>
    serve* place(Over over) noexcept {
      for (serve& s : serves)
        if (s.generation == 0 || over(s)) return &s;
      return nullptr;
    }

    recipient_id who{};          // as the last description was asked for; none: anonymous
    recipient_id anonymous{};    // the owner's name for it then
    std::uint32_t number = 0;    // of this connection at its owner; 0: not used yet
    serve serves[Limits::transfers_per_connection]{};
  };
  /// The lock that each member takes.
  using lock_type = Lock;
  /// It answers requests.
  static constexpr bool owns = true;
  /// Answers that one connection may have waiting: those to a full window of requests, and two more.
  static constexpr std::size_t waiting_replies = Limits::pipelined_requests + 2;

  /// `memory`: borrowed as long as the owner lives. `random()` gives unguessable 64-bit numbers; it is called twice, here.
  template <class Random>
  owner(const owner_memory& memory, Random random) noexcept : slots_(memory.slots), book_(memory), nonces_{random()}, nonce_step_(random() | 1) {}

  // What the program that publishes calls.

  /// Starts a transaction of several references: publish() each in it, then seal() it. table_full: too many transactions are under way.
  /// invalid_argument: a recipient is named twice; `at` is the index of the second.
  result<transaction_id> open_transaction(const transaction_options& options) noexcept {
    const lock_guard hold(lock_);
    return book_.open(options);
  }
  /// No more references will join; from now on the transaction may settle. Does nothing if it is not open.
  void seal(transaction_id id) noexcept {
    const lock_guard hold(lock_);
    book_.seal(id);
  }
  /// Gives up a transaction in which nothing was published.
  void cancel(transaction_id id) noexcept {
    const lock_guard hold(lock_);
    book_.cancel(id);
  }

  /// Publishes an image in an open transaction. The memory behind it must not change or go away until withdraw() or settlement.
  /// `version`: the digest of the image if `verifiable`, otherwise random; not 0. If `id` is published already, the new version takes the old
  /// one's place, and recipients of the old one are told `stale`. invalid_argument: `id` or `version` is 0, or the transaction is not open or has
  /// this reference already. table_full: no slot or record is free. busy: called from within a callback while the old image is read.
  result<ref_id> publish(const source_view& image, std::uint64_t version, bool verifiable, ref_id id, transaction_id in) noexcept {
    const lock_guard hold(lock_);
    return place(image, version, verifiable, id, in);
  }
  /// The same, as a transaction of its own.
  result<ref_id> publish(const source_view& image, std::uint64_t version, bool verifiable, ref_id id, const transaction_options& options) noexcept {
    const lock_guard hold(lock_);
    const auto t = book_.open(options);
    if (!t) return failure(t.error());
    const auto done = place(image, version, verifiable, id, *t);
    if (done) book_.seal(*t);
    else book_.cancel(*t);
    return done;
  }
  /// The same for a number of recipients (0: not known), with the default options.
  result<ref_id> publish(const source_view& image, std::uint64_t version, bool verifiable, ref_id id, std::uint32_t recipients) noexcept {
    transaction_options options;
    options.recipients = recipients;
    return publish(image, version, verifiable, id, options);
  }

  /// After this returns without an error, nothing reads the image's memory any more, whether it was published until now or had settled before. It
  /// waits for sends of other threads that read it. Recipients are told `withdrawn`. unknown_reference: nothing is known under `id`. busy: called
  /// from within a callback while the image is read.
  result<void> withdraw(ref_id id) noexcept {
    const lock_guard hold(lock_);
    publication* const slot = find(id);
    if (slot == nullptr) return failure(errc::unknown_reference);
    if (pinned_here(*slot)) return failure(errc::busy);
    if (slot->now == publication::state::published) book_.take(*slot);
    await_unpinned(*slot);
    return {};
  }

  /// Lets time pass and judges the budgets. `now`: the time of a monotonic clock with any origin. Budgets are as exact as these calls are frequent.
  /// Cost: one pass over the recipients' records.
  void advance(std::chrono::milliseconds now) noexcept {
    const lock_guard hold(lock_);
    book_.advance(now);
  }
  /// The next progress event that is due, and the callback to call with it. False: there is none.
  bool next_event(progress_event& out, callback<const progress_event&>& tell) noexcept {
    const lock_guard hold(lock_);
    return book_.next_event(out, tell);
  }
  /// A transaction that has settled and whose images are not read any more, and the callback to call with it. Each comes once; then its images may be
  /// released. False: there is none.
  bool next_settled(settlement& out, callback<const settlement&>& tell) noexcept {
    const lock_guard hold(lock_);
    const transaction* const t = book_.next_settled();
    if (t == nullptr) return false;
    out = t->outcome;
    tell = t->options.settled;
    return true;
  }

  /// The counts of one reference. unknown_reference: nothing is known under `id`.
  result<publication_status> status_of(ref_id id) const noexcept {
    const lock_guard hold(lock_);
    if (const publication* const p = find(id); p != nullptr) return p->counts;
    return failure(errc::unknown_reference);
  }

  /// Whether the reference's transaction has settled and nothing reads the image any more. If the number of recipients is not known, a transaction
  /// settles only by withdraw() or by its budget `transaction_idle`. False for an unknown reference.
  bool settled(ref_id id) const noexcept {
    const lock_guard hold(lock_);
    const publication* const p = find(id);
    return p != nullptr && p->verdict != verdict::open && p->pins == 0;
  }
  /// How the reference's transaction ended; its verdict is `open` as long as it has not. The whole settlement is there until another transaction
  /// takes its place in the table, which the next one to be opened may do; after that, the verdict and this reference's counts.
  /// unknown_reference: nothing is known under `id`.
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
  /// The record of one recipient. unknown_reference: there is none.
  result<recipient_record> recipient_of(ref_id id, recipient_id who) noexcept {
    const lock_guard hold(lock_);
    if (const recipient_record* const r = book_.records.find(id, who)) return *r;
    return failure(errc::unknown_reference);
  }
  /// Copies the records of a reference's recipients, as many as fit, and returns how many. Cost: one pass over all records.
  std::size_t recipients_of(ref_id id, std::span<recipient_record> out) noexcept {
    const lock_guard hold(lock_);
    std::size_t n = 0;
    for (const recipient_record& r : book_.records.all())
      if (r.who && r.ref == id && n < out.size()) out[n++] = r;
    return n;
  }

  // What a connection calls: the role of an owner at its end.

  /// Answers one request. False: there is nothing to send (a cancellation). locate() answers requests for named tensors.
  bool handle(peer& from, const frame& m, pending_reply& out) noexcept {
    const lock_guard hold(lock_);
    out = {frame_kind::refused, status::bad_request, m.id, 0, 0, 0, 0, m.ref, m.version, m.offset, 0, 0};
    if (m.kind == frame_kind::confirm || m.kind == frame_kind::cancel) return settle(from, m, out);
    publication* const slot = find(m.ref);
    if (slot == nullptr || slot->now == publication::state::withdrawn) return refuse(out, over(slot, m));
    const std::uint64_t expected = m.version;
    out.version = slot->version;
    if (expected != 0 && expected != slot->version) return refuse(out, status::stale);
    out.slot = static_cast<std::uint32_t>(slot - slots_.data());
    out.generation = slot->generation;
    if (m.kind == frame_kind::describe) greet(from, m.recipient);
    recipient_record* const r = use(from, *slot);
    if (r == nullptr) return refuse(out, status::busy);
    out.record = book_.records.index(*r);
    out.nonce = r->nonce;
    switch (m.kind) {
      case frame_kind::describe: r->subset = false, out.kind = frame_kind::description; return true;  // the whole, unless a locate follows
      case frame_kind::schema: out.kind = frame_kind::schema_page; return true;
      case frame_kind::pull: return answer_pull(*slot, *r, m, out);
      default: return refuse(out, status::unsupported);
    }
  }

  /// Answers a request for named tensors into `answer`, whose ranges lie in `ranges`. More names than `ranges` has room for are refused. Cost: tensors
  /// times names, and a pass over the named tensors for a subset that is not remembered (limits: subset_bytes_per_second).
  void locate(peer& from, const frame& m, std::span<byte_range> ranges, frame& answer) noexcept {
    const lock_guard hold(lock_);
    answer = {};
    answer.kind = frame_kind::refused;
    answer.id = m.id;
    answer.ref = m.ref;
    publication* const slot = find(m.ref);
    answer.status = slot == nullptr ? status::unknown_reference : slot->now == publication::state::withdrawn ? status::withdrawn
                                                                                                             : status::ok;
    if (answer.status != status::ok) return;
    answer.version = slot->version;
    if (m.version != 0 && m.version != slot->version) answer.status = status::stale;
    else if (m.names.empty() || m.names.size() > ranges.size()) answer.status = status::bad_request;
    if (answer.status != status::ok) return;
    recipient_record* const r = use(from, *slot);
    if (r == nullptr) {
      answer.status = status::busy;
      return;
    }
    const auto found = detail::find_subset(*slot->image.schema, m.names, ranges);
    if (!found) {
      answer.status = status::bad_request;
      answer.offset = found.error().at;
      return;
    }
    const auto number = static_cast<std::uint32_t>(slot - slots_.data());
    const auto of_subset = subsets_.of(slot->image, number, slot->generation, *found, ranges.first(m.names.size()), book_.now);
    if (!of_subset) {
      answer.status = of_subset.error().code == errc::busy ? status::busy : status::withdrawn;
      if (answer.status == status::withdrawn) book_.take(*slot);
      return;
    }
    answer.kind = frame_kind::located;
    answer.nonce = r->nonce;
    answer.digest = r->subset_digest = *of_subset;
    answer.fingerprint = found->fingerprint;
    answer.ranges = ranges.first(m.names.size());
    r->subset = true;
    r->subset_end = 0;  // where the last byte that can be asked for ends
    for (std::size_t i = 0; i < m.names.size(); ++i)
      if (ranges[i].begin != ranges[i].end) r->subset_end = ranges[i].end;
  }

  /// The connection is gone: each transfer that it had not finished counts as `lost`. A named recipient may come back.
  void forget(peer& from) noexcept {
    const lock_guard hold(lock_);
    for (serve& s : from.serves) leave(from, s);
    from = {};
  }

  /// Writes a reply out as a frame, for the publication that it was made for; if that is gone, as a refusal.
  frame expand(const pending_reply& r) const noexcept {
    const lock_guard hold(lock_);
    frame m = frame_of(r);
    if (r.kind == frame_kind::refused && r.status == status::busy) m.delay_ms = static_cast<std::uint32_t>(Limits::busy_delay.count());  // limits_policy has bounded it
    if (r.kind == frame_kind::refused || r.kind == frame_kind::confirmed || r.kind == frame_kind::chunk) return m;
    const publication& p = slots_[r.slot];
    if (p.generation != r.generation || p.now != publication::state::published) {
      m.kind = frame_kind::refused;
      m.status = status::withdrawn;
      return m;
    }
    const image_schema& schema = *p.image.schema;
    m.image_bytes = schema.image_bytes;
    m.tensors = schema.tensor_count;
    if (r.kind == frame_kind::schema_page) {
      m.rows = detail::schema_rows(schema, r.offset, Limits::page_bytes);
    } else if (r.kind == frame_kind::description) {
      m.fingerprint = schema.fingerprint;
      m.data_start = schema.header_bytes;
      m.length = static_cast<std::uint32_t>(std::min(Limits::chunk_cap_bytes, max_payload_bytes));
      m.window = static_cast<std::uint16_t>(std::min<std::size_t>(Limits::pipelined_requests, Limits::window));
      m.flag = p.verifiable;
    }
    return m;
  }

  /// Turns a reply whose image is gone into a refusal: `stale` if another version is published now, otherwise `withdrawn`.
  void refuse_gone(pending_reply& r) const noexcept {
    const lock_guard hold(lock_);
    const publication& p = slots_[r.slot];
    const bool again = p.now == publication::state::published && p.id == r.ref;
    refuse(r, again ? status::stale : status::withdrawn);
    if (again) r.version = p.version;
  }

  /// The image behind a reply, pinned so that withdraw() waits; nullptr if it is not published any more. Each pin needs one unpin().
  const source_view* pin(const pending_reply& r) noexcept {
    const lock_guard hold(lock_);
    publication& p = slots_[r.slot];
    if (p.generation != r.generation || p.now != publication::state::published) return nullptr;
    ++p.pins;
    return &p.image;
  }
  /// An image could not be read: withdraws it as withdraw() does, but does not wait until nothing reads it.
  void unreadable(const pending_reply& r) noexcept {
    const lock_guard hold(lock_);
    publication& p = slots_[r.slot];
    if (p.generation == r.generation && p.now == publication::state::published) book_.take(p);
  }
  /// Ends a pin(), and counts the bytes of payload that were sent.
  void unpin(const pending_reply& r, std::uint64_t payload_bytes_sent) noexcept {
    const lock_guard hold(lock_);
    publication& p = slots_[r.slot];
    --p.pins;
    if (payload_bytes_sent == 0) return;
    p.counts.bytes_sent += payload_bytes_sent;
    recipient_record& to = book_.records.at(r.record);
    if (to.nonce == r.nonce && to.ref == r.ref) book_.moved(p, to, payload_bytes_sent);
  }

 private:
  using serve = detail::serve;

  // The caller of these holds the lock.
  publication* find(ref_id id) const noexcept {
    publication* last = nullptr;  // the latest of those that are over
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      publication& p = slots_[i];
      if (p.now == publication::state::empty || p.id != id) continue;
      if (p.now == publication::state::published) return &p;
      if (last == nullptr || p.order > last->order) last = &p;
    }
    return last;
  }
  /// An empty slot, or else the oldest that is over, not read, and not needed by its transaction.
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
  /// With one thread a pin is our caller's own: a callback runs while the image is being sent. Waiting for it would never end.
  static constexpr bool pinned_here(const publication& p) noexcept { return std::is_same_v<Lock, no_lock> && p.pins != 0; }
  /// Waits until nothing reads the image. True: it had to wait, so other threads may have used the slot.
  bool await_unpinned(publication& p) noexcept {
    bool waited = false;
    for (const auto generation = p.generation; p.pins != 0 && p.generation == generation; waited = true) {
      lock_.unlock();  // only another thread's non-blocking send can hold a pin
      lock_.relax();
      lock_.lock();
    }
    return waited;
  }

  /// The answer for a reference that is not published. A recipient that completed it is told so.
  status over(const publication* slot, const frame& m) noexcept {
    const recipient_record* const r = m.kind == frame_kind::describe && m.recipient ? book_.records.find(m.ref, m.recipient) : nullptr;
    if (r != nullptr && (slot == nullptr || detail::is_of(*r, *slot, slots_)) && (r->state == recipient_state::completed || r->state == recipient_state::completed_unverified)) return status::already_final;
    return slot == nullptr ? status::unknown_reference : status::withdrawn;
  }

  /// Takes note of the recipient at the other end.
  void greet(peer& from, recipient_id who) noexcept {
    if (from.who == who) return;
    for (serve& s : from.serves) leave(from, s);
    from.who = who;
  }
  void leave(peer& from, serve& s) noexcept {
    if (recipient_record* const r = record_of(from, s)) {
      r->connection = 0;
      if (!is_final(r->state)) ++slots_[s.slot].counts.lost;
    }
    s = {};
  }
  /// The record behind an entry; nullptr if its publication is gone or another connection has taken the recipient over.
  recipient_record* record_of(const peer& from, const serve& s) noexcept {
    if (s.generation == 0) return nullptr;
    recipient_record& r = book_.records.at(s.record);
    return r.connection == from.number && r.slot == s.slot && r.generation == s.generation && book_.publication_of(r) != nullptr ? &r : nullptr;
  }

  /// The peer's record for a publication. nullptr: it has too many transfers open, or the table is full of others.
  recipient_record* use(peer& from, publication& slot) noexcept {
    const auto number = static_cast<std::uint32_t>(&slot - slots_.data());
    serve* entry = from.find(number, slot.generation);
    recipient_record* r = entry != nullptr ? record_of(from, *entry) : nullptr;
    if (r != nullptr && r->serving) return r;
    if (entry == nullptr)
      entry = from.place([&](const serve& e) {
        const recipient_record* const old = record_of(from, e);
        return old == nullptr || !old->serving;
      });
    if (entry == nullptr) return nullptr;
    if (from.number == 0) from.number = ++connections_, from.anonymous = {fresh_nonce()};
    r = book_.acquire(slot, from.who ? from.who : from.anonymous, !from.who);
    if (r == nullptr) return nullptr;
    *entry = {number, slot.generation, book_.records.index(*r)};
    r->connection = from.number;
    if (!r->serving) r->serving = true, r->nonce = fresh_nonce();  // one that comes back before the end continues the serve that was begun
    return r;
  }

  bool answer_pull(publication& slot, recipient_record& r, const frame& m, pending_reply& out) noexcept {
    const image_schema& schema = *slot.image.schema;
    if (m.fingerprint != 0 && m.fingerprint != schema.fingerprint) return refuse(out, status::schema_mismatch);
    if (m.offset > schema.image_bytes) return refuse(out, status::out_of_range);
    const std::uint64_t left = schema.image_bytes - m.offset;
    if (left == 0) return out.kind = frame_kind::end, true;
    if (m.length == 0) return refuse(out, status::bad_request);
    out.kind = frame_kind::chunk;
    // see default_limits::chunk_cap_bytes
    const bool whole = m.length == all_in_one_chunk && m.chunk_digest == digest_kind::none && Limits::chunk_cap_bytes >= usual_chunk_cap_bytes;
    const std::uint64_t cap = whole ? max_payload_bytes : std::min(Limits::chunk_cap_bytes, max_payload_bytes);
    out.length = static_cast<std::uint32_t>(std::min(std::min<std::uint64_t>(m.length, left), cap));
    const std::uint64_t end = m.offset + out.length;
    const bool last = end == schema.image_bytes || (r.subset && end >= r.subset_end);
    if (last && r.state == recipient_state::acquired) r.state = recipient_state::provisional;
    if (m.chunk_digest == digest_kind::none) return true;
    result<std::uint64_t> computed = 0;
    if (m.chunk_digest == digest_kind_of<Hash>) computed = range_digest<Hash>(slot.image, m.offset, out.length);
    else if (m.chunk_digest == digest_kind_of<ChunkHash>) computed = range_digest<ChunkHash>(slot.image, m.offset, out.length);
    else return refuse(out, status::unsupported);
    if (!computed) return book_.take(slot), refuse(out, status::withdrawn);
    out.digest = *computed;
    return true;
  }

  /// A confirmation counts once, for the serve whose nonce it repeats, after that serve reached the end. A repeated one gets the same answer.
  /// Anything else changes nothing.
  bool settle(peer& from, const frame& m, pending_reply& out) noexcept {
    const bool confirms = m.kind == frame_kind::confirm;
    const publication* const there = find(m.ref);
    recipient_record* const r = book_.records.find(m.ref, m.recipient ? m.recipient : from.who ? from.who
                                                                                               : from.anonymous);
    if (r == nullptr || m.nonce == 0 || r->nonce != m.nonce || (r->anonymous && r->connection != from.number))
      return confirms && refuse(out, there == nullptr ? status::unknown_reference : there->now == publication::state::withdrawn ? status::withdrawn
                                                                                                                                : status::bad_request);
    out.kind = frame_kind::confirmed;
    out.nonce = m.nonce;
    out.version = r->version;
    publication* const slot = book_.publication_of(*r);
    if (r->state == recipient_state::unfinished || (slot == nullptr && !is_final(r->state)))
      return confirms && refuse(out, there != nullptr && there->now == publication::state::published ? status::stale : status::withdrawn);
    if (is_final(r->state)) return r->serving = false, confirms && (out.status = verdict_on(*r, m), true);
    if (!confirms) {
      r->reason = m.reason;
      book_.change(*slot, *r, m.status == status::digest_mismatch ? recipient_state::failed : recipient_state::cancelled);
      return false;
    }
    const bool nothing_to_serve = r->subset && r->subset_end == 0;
    if (r->state != recipient_state::provisional && !nothing_to_serve) return refuse(out, status::bad_request);
    const std::uint64_t published = r->subset ? r->subset_digest : slot->version;
    const bool comparable = m.flag && (slot->verifiable || r->subset);
    out.status = comparable && m.digest != published ? status::digest_mismatch : status::ok;
    book_.change(*slot, *r, !comparable ? recipient_state::completed_unverified : m.digest == published ? recipient_state::completed
                                                                                                        : recipient_state::failed);
    return true;
  }
  /// The answer to a confirmation from a recipient that has ended before.
  static status verdict_on(const recipient_record& r, const frame& m) noexcept {
    switch (r.state) {
      case recipient_state::completed: return !m.flag || m.digest == (r.subset ? r.subset_digest : r.version) ? status::ok : status::digest_mismatch;
      case recipient_state::completed_unverified: return status::ok;
      case recipient_state::failed: return status::digest_mismatch;
      default: return status::already_final;
    }
  }

  /// Names a serve; never 0, which is no nonce. It tells serves apart; it does not authenticate.
  std::uint64_t fresh_nonce() noexcept {
    const std::uint64_t n = nonces_(nonce_step_);
    return n != 0 ? n : 1;
  }

  std::span<publication> slots_;
  detail::transaction_table book_;
  detail::subset_digests<Hash, Limits> subsets_{};
  splitmix64 nonces_;
  std::uint64_t nonce_step_;
  std::uint64_t orders_ = 0;
  std::uint32_t connections_ = 0;
  [[no_unique_address]] mutable Lock lock_{};
};

}  // namespace tensorpull
