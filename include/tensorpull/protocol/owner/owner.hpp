// The owner's state machine: what is published, for whom, how it ended, and the answers to requests about it. It has no
// I/O, no clock and no heap: memory, random numbers, the time and the lock are handed in. It gives payloads as ranges
// of an image; the endpoint turns them into spans when the transport can take them.
#pragma once

#include <tensorpull/core/checked.hpp>
#include <tensorpull/core/limits.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/core/splitmix64.hpp>
#include <tensorpull/framing/frame.hpp>
#include <tensorpull/image/gather_scatter.hpp>
#include <tensorpull/integrity/concept.hpp>
#include <tensorpull/protocol/owner/access.hpp>
#include <tensorpull/protocol/owner/detail/digests.hpp>
#include <tensorpull/protocol/owner/detail/subset.hpp>
#include <tensorpull/protocol/owner/detail/transaction_table.hpp>
#include <tensorpull/protocol/owner/owner_memory.hpp>
#include <tensorpull/protocol/pending_reply.hpp>
#include <tensorpull/protocol/roles.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/mutex.hpp>

#include <span>
#include <type_traits>

namespace tensorpull {

namespace detail {

/// As many rows from `first` on as fit a frame of `frame_bytes`; they borrow the schema. An index past the end gives an
/// empty page.
inline element_list<schema_row> schema_rows(const image_schema& schema, std::uint64_t first,
                                            std::size_t frame_bytes) noexcept {
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

/// Tells no progress events.
struct tells_nobody {
  bool operator()() const noexcept { return false; }
};

/// The answer for what was published and is not any more. `p`: where it was; nullptr: nobody knows. True, as refuse().
inline bool refuse_over(pending_reply& out, const publication* p) noexcept {
  const bool known = p != nullptr && p->id == out.ref;
  out.length = known ? p->reason : 0;
  return refuse(out, known && p->unreadable ? status::unreadable : status::withdrawn);
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
/// What a connection is, or was last, served under a record, which another may have used since. `entry`: its own.
inline serve_state served(const serve* entry, const recipient_record& r, std::uint32_t connection) noexcept {
  if (entry != nullptr && r.connection != connection) return *entry;
  return r;
}

}  // namespace detail

/// What a program publishes, and the role of an owner at its connections: a model of owner_role (roles.hpp). `Hash`
/// computes digests of chunks and subsets. `Limits` caps what one peer may cause. `Lock`: no_lock, or a lock with
/// relax() if several threads use the owner (std/mutex.hpp). `ChunkHash`: another hash that recipients may ask for with
/// chunks, such as CRC32C, or the same. No member throws or allocates.
template <hash Hash, class Limits = default_limits, class Lock = no_lock, hash ChunkHash = Hash>
class owner {
 public:
  /// What an owner remembers of one connection: the identity of its other end, and the references that it is pulling.
  /// Fixed size.
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

    recipient_id who{};  // as the last description was asked for; none: anonymous
    recipient_id anonymous{};  // the owner's name for it then
    std::uint32_t number = 0;  // of this connection at its owner; 0: not used yet
    serve serves[Limits::transfers_per_connection]{};
  };
  /// The lock that each member takes.
  using lock_type = Lock;
  /// Names that a locate may have.
  static constexpr std::size_t most_names = Limits::control_frame_bytes / 32;
  /// It answers requests.
  static constexpr bool owns = true;
  /// Answers that one connection may have waiting: those to a full window of requests, and two more.
  static constexpr std::size_t waiting_replies = Limits::pipelined_requests + 2;

  /// `memory`: borrowed as long as the owner lives. `random()` gives unguessable 64-bit numbers; it is called twice,
  /// here.
  template <class Random>
  owner(const owner_memory& memory, Random random) noexcept
      : slots_(memory.slots), book_(memory), nonces_{random()}, nonce_step_(random() | 1) {}

  // What the program that publishes calls.

  /// Starts a transaction of several references: publish() each in it, then seal() it. table_full: too many
  /// transactions are under way, or more recipients count (`recipients`, `named` or `least`) than there are records:
  /// then the error's name is `recipients`, and `at` is how many there are. invalid_argument: a recipient is named
  /// twice (`at` is the index of the second), `least` is above the number of recipients, or `recipients` is another
  /// number than that of names (the error's name says which).
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

  /// Publishes an image in an open transaction. The memory behind it must not change or go away until withdraw() or
  /// settlement. `version`: the digest of the image if `verifiable`, otherwise random; not 0. If `id` is published
  /// already, the new version takes the old one's place, and recipients of the old one are told `stale`.
  /// invalid_argument: `id` or `version` is 0, or the transaction is not open or has this reference already.
  /// table_full: no slot or record is free, or more recipients count than there are records for: each needs one for
  /// each reference. busy: called from within a callback while the old image is read. After an error what was published
  /// before is as it was, unless another thread took the room while this one waited for the old image. `tell()`: called
  /// without the lock, before anything changes, if records are needed of recipients whose end has not been told. It
  /// takes the progress events that are due, and returns whether there were any. Those that are due when the records
  /// are taken are never told.
  template <class Tell = detail::tells_nobody>
  result<ref_id> publish(const source_view& image, std::uint64_t version, bool verifiable, ref_id id, transaction_id in,
                         Tell tell = {}) noexcept {
    const lock_guard hold(lock_);
    return place(image, version, verifiable, id, in, tell);
  }
  /// The same, as a transaction of its own.
  result<ref_id> publish(const source_view& image, std::uint64_t version, bool verifiable, ref_id id,
                         const transaction_options& options) noexcept {
    const lock_guard hold(lock_);
    const auto t = book_.open(options);
    if (!t) return failure(t.error());
    const auto done = place(image, version, verifiable, id, *t, detail::tells_nobody{});
    if (done) book_.seal(*t);
    else book_.cancel(*t);
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
  /// the index: an ID or a version is 0, an ID comes twice, or there are no images or the transaction is not open or
  /// has some; table_full: too few slots or records are free, or more recipients count than there are
  /// records for; busy with the index: called from within a callback while an image that is replaced is read.
  /// `tell()`: as above.
  template <class Images, class Tell = detail::tells_nobody>
  result<void> publish_all(const Images& images, bool verifiable, transaction_id in, Tell tell = {}) noexcept {
    const lock_guard hold(lock_);
    do {
      if (const auto ok = book_.admits_all(in, images); !ok) return ok;
    } while (told(in, images.size(), tell));
    for (std::size_t i = 0; i < images.size(); ++i)
      if (const publication* const old = find(images[i].as.id); old != nullptr && pinned_here(*old))
        return failure(errc::busy, i);
    for (std::size_t i = 0; i < images.size(); ++i)  // all, so that a transaction that ends by that makes room
      if (publication* const old = find(images[i].as.id); old != nullptr && old->now == publication::state::published)
        book_.take(*old);
    for (std::size_t i = 0; i < images.size(); ++i) {
      const reference& as = images[i].as;
      publication* const slot = vacant();  // there is one: admits_all has counted them, and what is taken keeps its own
      occupy(*slot, images[i].image, as.version, verifiable, as.id, in);
      book_.attach(*slot);  // the records were counted, too
    }
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      publication& p = slots_[i];
      if (p.pins == 0 || p.now != publication::state::withdrawn) continue;
      for (std::size_t k = 0; k < images.size(); ++k)
        if (images[k].as.id == p.id) await_unpinned(p);
    }
    return {};
  }

  /// After this returns without an error, nothing reads the image's memory any more, whether it was published until now
  /// or had settled before. It waits for sends of other threads that read it. Recipients are told `withdrawn` with
  /// `reason`, a number of the application's, in the answers to requests in flight and to later ones.
  /// unknown_reference: nothing is known of it. busy: called from within a callback while the image is read. Gives
  /// the transaction that the reference is a part of.
  result<transaction_id> withdraw(publication_key which, std::uint32_t reason = 0) noexcept {
    return end(which, [&](publication& p) {
      p.reason = reason;
      book_.take(p);
    });
  }
  /// The same if another owner coordinates the transaction and is gone: it ends as verdict::owner_lost.
  result<transaction_id> lose(publication_key which) noexcept {
    return end(which, [&](publication& p) { book_.lose(p); });
  }

  /// Withdraws everything, and settles also what is not sealed: the last settlements can be delivered before the owner
  /// is destroyed. Nothing may read the images any more, and nothing can be published any more (withdrawn).
  void withdraw_all() noexcept {
    const lock_guard hold(lock_);
    book_.settle_all();
  }

  /// Lets time pass and judges the budgets. `now`: the time of a monotonic clock with any origin. Budgets are as exact
  /// as these calls are frequent. Cost: one pass over the recipients' records.
  void advance(std::chrono::milliseconds now) noexcept {
    const lock_guard hold(lock_);
    book_.advance(now);
  }
  /// The next progress event that is due, the callback to call with it, and the transaction that it is of: call
  /// returned() afterwards. None: there is none.
  transaction_id next_event(progress_event& out, callback<const progress_event&>& tell) noexcept {
    const lock_guard hold(lock_);
    return book_.next_event(out, tell);
  }
  /// Whether a transaction has settled so far that its end can be told, after the progress of its recipients.
  /// `at_once`: its end is told even while other callbacks of it run.
  bool settling(transaction_id at_once = {}) const noexcept {
    const lock_guard hold(lock_);
    return book_.settling(at_once);
  }
  /// A transaction that has settled, whose images are not read any more and whose progress has been told, and the last
  /// callback to call for it: call returned() afterwards. Each comes once. None: there is none.
  transaction_id next_settled(settlement& out, callback<const settlement&>& tell,
                              transaction_id at_once = {}) noexcept {
    const lock_guard hold(lock_);
    const transaction* const t = book_.next_settled(at_once);
    if (t == nullptr) return {};
    out = t->outcome;
    tell = t->options.settled;
    return t->outcome.id;
  }
  /// A callback of a transaction has returned. True: it was the last one. Release what was kept for the transaction,
  /// then call released().
  bool returned(transaction_id id) noexcept {
    const lock_guard hold(lock_);
    return book_.returned(id);
  }
  /// What was kept for a transaction has been released.
  void released(transaction_id id) noexcept {
    const lock_guard hold(lock_);
    book_.released(id);
  }
  /// Whether a callback of the transaction will begin because it has settled or, with `running`, runs now (or what was
  /// kept is not released yet).
  bool calls(transaction_id id, bool running) const noexcept {
    const lock_guard hold(lock_);
    const transaction* const t = book_.find(id);
    if (t == nullptr) return false;
    return t->now == transaction::state::settled ||
           (running && (t->now == transaction::state::told || t->callbacks != 0));
  }

  /// The counts of one reference. unknown_reference: nothing is known under `id`.
  result<publication_status> status_of(publication_key which) const noexcept {
    const lock_guard hold(lock_);
    if (const publication* const p = find(which); p != nullptr) return p->counts;
    return failure(errc::unknown_reference);
  }

  /// Whether the reference's transaction has settled and nothing reads the image any more. If the number of recipients
  /// is not known, a transaction settles only by withdraw() or by its budget `transaction_idle`. True for an unknown
  /// reference: nothing is left of it.
  bool settled(publication_key which) const noexcept {
    const lock_guard hold(lock_);
    const publication* const p = find(which);
    return p == nullptr || (p->verdict != verdict::open && p->pins == 0);
  }
  /// The transaction that the reference is a part of; none for an unknown reference.
  transaction_id transaction_of(publication_key which) const noexcept {
    const lock_guard hold(lock_);
    const publication* const p = find(which);
    return p == nullptr ? transaction_id{} : p->transaction;
  }
  /// How the reference's transaction ended; its verdict is `open` as long as it has not. The whole settlement is there
  /// until another transaction takes its place in the table, which the next one to be opened may do; after that, the
  /// verdict and this reference's counts. unknown_reference: nothing is known under `id`.
  result<settlement> settlement_of(publication_key which) noexcept {
    const lock_guard hold(lock_);
    const publication* const p = find(which);
    if (p == nullptr) return failure(errc::unknown_reference);
    if (const transaction* const t = book_.find(p->transaction); t != nullptr && t->outcome.verdict != verdict::open)
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
    if (const recipient_record* const r = record_of(which, find(which), who)) return *r;
    return failure(errc::unknown_reference);
  }
  /// Copies the records of a reference's recipients, as many as fit, and returns how many: of each, that of the version
  /// that is named, or else of the last one that it has asked for. Cost: one pass over all records.
  std::size_t recipients_of(publication_key which, std::span<recipient_record> out) noexcept {
    const lock_guard hold(lock_);
    const publication* const p = find(which);
    std::size_t n = 0;
    for (const recipient_record& r : book_.records.all())
      if (r.who && r.ref == which.id && n < out.size() && record_of(which, p, r.who) == &r) out[n++] = r;
    return n;
  }

  /// From now on a request is answered only if `may` says so; any other is answered as one for a reference that nobody
  /// knows. It is asked without the lock, before anything is looked up, so that a refusal takes as long as an unknown
  /// reference does. Once it has agreed, it is asked again for the same connection only when that names another
  /// recipient, when the reference is published anew, or when it pulls more references than the limits'
  /// transfers_per_connection. It must not throw. Call it before there are connections. Without it, everybody may.
  void authorise(const authorise_callback& may) noexcept { may_ = may; }

  // What a connection calls: the role of an owner at its end.

  /// Answers one request. False: there is nothing to send (a cancellation). locate() answers requests for named
  /// tensors. `who`: the other end of the connection.
  bool handle(peer& from, const frame& m, pending_reply& out, const identity_source& who = {}) noexcept {
    const bool may = authorised(from, m, who);
    const lock_guard hold(lock_);
    out = {frame_kind::refused, status::bad_request, m.id, 0, 0, 0, 0, m.ref, m.version, m.offset, 0, 0,
           digest_kind::none};
    if (!may) return m.kind != frame_kind::cancel && refuse(out, status::unknown_reference);
    if (m.kind == frame_kind::confirm || m.kind == frame_kind::cancel) return settle(from, m, out);
    publication* const slot = find(m.ref);
    if (slot == nullptr || slot->now == publication::state::withdrawn) return over(out, slot, m);
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
      case frame_kind::describe:  // the whole, unless a locate follows
        r->subset = false;
        keep(from, *r);
        out.kind = frame_kind::description;
        return true;
      case frame_kind::schema: out.kind = frame_kind::schema_page; return true;
      case frame_kind::pull: return answer_pull(*slot, *r, m, out);
      default: return refuse(out, status::unsupported);
    }
  }

  /// Answers a request for named tensors into `answer`, whose ranges lie in `ranges`. More names than `ranges` has room
  /// for are refused. `working`: the digest is not ready; ask again. The answer is `unsupported` if the limits'
  /// subset_bytes_per_second is 0. It is `busy` if others have used that up, or while another subset's digest is
  /// computed. Cost: a search for each name, and a slice of 64 KiB of a subset that is not remembered.
  digest_state locate(peer& from, const frame& m, std::span<byte_range> ranges, frame& answer,
                      const identity_source& who = {}) noexcept {
    if (!authorised(from, m, who)) return no_owner::locate(m, answer);
    const lock_guard hold(lock_);
    const digest_state now = answer_locate(from, m, ranges, answer);
    const bool ended = now == digest_state::working && subset_job_.key.generation == 0;
    return ended ? answer_locate(from, m, ranges, answer) : now;
  }

  /// Goes on with the digest of a chunk, by at most `allowance` bytes, which are taken off. It hashes without the lock,
  /// while the image is pinned. `memory`: for bytes that are not in memory as they are; not empty. `ready`: it is in
  /// the reply, or the image is gone. `waiting`: others have used up the limits' chunk_digest_bytes_per_second, and
  /// this recipient has not taken half as many bytes as were hashed for it.
  digest_state digest(pending_reply& r, std::uint64_t& allowance, std::span<std::byte> memory) noexcept {
    const lock_guard hold(lock_);
    const detail::digest_key key{r.offset, r.length, r.slot, r.generation, r.chunk_digest};
    for (;;) {
      const std::uint64_t* const known = chunks_.find(key);
      if (known != nullptr || gone(key)) {
        if (known != nullptr) r.digest = *known;
        r.chunk_digest = digest_kind::none;
        return digest_state::ready;
      }
      if (allowance == 0) return digest_state::working;
      job_type* const job = chunk_job(key, r);
      if (job == nullptr || job->in_hand) return digest_state::working;
      if (!job->paid) {
        if (!chunk_budget_.left(book_.now)) return digest_state::waiting;
        allowance = std::min(allowance, detail::digest_slice_bytes);
      }
      const std::uint64_t n = std::min(job->left(), allowance);
      allowance -= n;
      if (!job->paid) chunk_budget_.spend(n, book_.now);
      const std::uint64_t from = job->key.at + job->done;
      hash_slice(*job, chunks_, [&](const source_view& image) { return job->advance(image, from, n, memory); });
    }
  }

  /// The connection is gone: each transfer that it had not finished counts as `lost`. A named recipient may come back.
  void forget(peer& from) noexcept {
    const lock_guard hold(lock_);
    for (serve& s : from.serves) leave(from, s);
    if (from.number != 0 && (subset_asker_ == from.number || subset_asker_ == nobody)) {
      subset_asker_ = nobody;
      if (!subset_job_.in_hand)
        subset_job_.end();  // it would wait for a peer that is gone; another that wants the same begins it anew
    }
    from = {};
  }

  /// Writes a reply out as a frame. If it is about an image, that has to be pinned.
  frame expand(const pending_reply& r) const noexcept {
    const lock_guard hold(lock_);
    frame m = frame_of(r);
    if (r.kind == frame_kind::refused && r.status == status::busy) m.delay_ms = busy_delay_ms;
    if (r.kind == frame_kind::refused || r.kind == frame_kind::confirmed || r.kind == frame_kind::chunk) return m;
    const publication& p = slots_[r.slot];  // not put to another use while its image is pinned, even if it is withdrawn
    const image_schema& schema = *p.image.schema;
    m.image_bytes = schema.image_bytes;
    m.tensors = schema.tensor_count;
    if (r.kind == frame_kind::schema_page) {
      m.rows = detail::schema_rows(schema, r.offset, detail::made_frame_bytes<Limits>);
    } else if (r.kind == frame_kind::description) {
      m.fingerprint = schema.fingerprint;
      m.data_start = schema.header_bytes;
      m.length = static_cast<std::uint32_t>(std::min(Limits::chunk_cap_bytes, max_payload_bytes));
      m.window = static_cast<std::uint16_t>(std::min<std::size_t>(Limits::pipelined_requests, Limits::window));
      m.flag = p.verifiable;
    }
    return m;
  }

  /// Turns a reply whose image is gone into a refusal: `stale` if another version is published now, `busy` if the same
  /// one is published again (its recipient begins another serve), `unreadable` if it could not be read, otherwise
  /// `withdrawn`.
  void refuse_gone(pending_reply& r) const noexcept {
    const lock_guard hold(lock_);
    const publication* const now = find(r.ref);
    if (now == nullptr || now->now != publication::state::published)
      return void(detail::refuse_over(r, &slots_[r.slot]));
    refuse(r, now->version == r.version ? status::busy : status::stale);
    r.version = now->version;
  }

  /// The image behind a reply, pinned so that withdraw() waits; nullptr if it is not published any more. Each pin needs
  /// one unpin().
  const source_view* pin(const pending_reply& r) noexcept {
    const lock_guard hold(lock_);
    publication& p = slots_[r.slot];
    if (gone(r)) return nullptr;
    ++p.pins;
    return &p.image;
  }
  /// An image could not be read: ends it as withdraw() does, but does not wait until nothing reads it. Recipients are
  /// told `unreadable`.
  void unreadable(const pending_reply& r) noexcept {
    const lock_guard hold(lock_);
    if (!gone(r)) book_.give_up(slots_[r.slot]);
  }
  /// Ends a pin(), and counts the bytes of payload that were sent.
  void unpin(const pending_reply& r, std::uint64_t payload_bytes_sent) noexcept {
    const lock_guard hold(lock_);
    publication& p = slots_[r.slot];
    --p.pins;  // its image can be read until the lock is released: a thread that waits for the last pin needs that
    if (payload_bytes_sent == 0) return;
    p.counts.bytes_sent += payload_bytes_sent;
    bytes_sent_ += payload_bytes_sent;
    recipient_record& to = book_.records.at(r.record);
    if (to.nonce == r.nonce && to.ref == r.ref) book_.moved(p, to, payload_bytes_sent);
  }

  // For classes that give images in another way than by chunks: an owner that derives from this one, or a connection
  // that speaks another protocol.

  /// What is published. The peer that asks does not become a recipient of it. `m` has the reference, its version (0:
  /// any) and the recipient. `ok`: `out` has it; unknown_reference, also for a peer that may not have it; stale:
  /// `out.version` is published; withdrawn, unreadable: it is over.
  status look(peer& from, const frame& m, publication_facts& out, const identity_source& who = {}) noexcept {
    frame asked;  // as a description is asked for
    asked.kind = frame_kind::describe;
    asked.ref = m.ref;
    asked.version = m.version;
    asked.recipient = m.recipient;
    const bool may = authorised(from, asked, who);
    const lock_guard hold(lock_);
    const publication* const p = find(m.ref);
    if (!may || p == nullptr) return status::unknown_reference;
    if (p->now != publication::state::published) return p->unreadable ? status::unreadable : status::withdrawn;
    const image_schema& schema = *p->image.schema;
    out = {p->version, schema.image_bytes, schema.fingerprint, p->verifiable};
    return m.version != 0 && m.version != p->version ? status::stale : status::ok;
  }
  /// The record of the recipient that a confirmation or a cancellation is from, if it has asked: for `m.version`, or if
  /// that is 0 for any, the last one. Without a name it is the connection's own. unknown_reference: there is none.
  result<recipient_record> recipient_of(const peer& from, const frame& m) noexcept {
    const lock_guard hold(lock_);
    const recipient_id who = m.recipient ? m.recipient : from.anonymous;
    const recipient_record* r = who ? book_.records.find(m.ref, who) : nullptr;
    const auto other = [&] { return r->nonce == 0 || (m.version != 0 && r->version != m.version); };
    while (r != nullptr && other()) r = book_.records.before(*r);
    if (r == nullptr) return failure(errc::unknown_reference);
    return *r;
  }
  /// Whether a program is asked what each peer may have.
  bool authorises() const noexcept { return bool(may_); }
  /// What there is in all. Cost: one pass over all records.
  owner_totals totals() noexcept {
    const lock_guard hold(lock_);
    owner_totals t;
    t.bytes_sent = bytes_sent_;
    for (const publication& p : slots_) t.references += p.now == publication::state::published;
    for (const recipient_record& r : book_.records.all())
      if (r.who) ++t.recipients[static_cast<std::size_t>(r.state)];
    return t;
  }
  /// The recipient behind a reply has been given the whole image, so its confirmation is taken.
  void served_whole(const pending_reply& r) noexcept {
    const lock_guard hold(lock_);
    recipient_record& to = book_.records.at(r.record);
    if (to.nonce == r.nonce && to.ref == r.ref) to.sent_to_the_end();
  }
  /// The recipient behind a reply has been given the last byte, and not all before it as far as this owner knows: an
  /// owner that was started before may have given it those. If it has a name, its confirmation with the right digest is
  /// taken.
  void served_last(const pending_reply& r) noexcept {
    const lock_guard hold(lock_);
    recipient_record& to = book_.records.at(r.record);
    if (to.nonce == r.nonce && to.ref == r.ref && !to.anonymous) to.at_end = true;
  }

 protected:
  /// One publication, as long as the owner lives: the numbers that a pending_reply has of it. Generation 0: of none.
  struct publication_number {
    std::uint32_t slot = 0, generation = 0;
  };
  /// What is published now under a reference.
  publication_number published_as(const reference& ref) const noexcept {
    const lock_guard hold(lock_);
    const publication* const p = find(ref);
    if (p == nullptr || p->now != publication::state::published) return {};
    return {static_cast<std::uint32_t>(p - slots_.data()), p->generation};
  }
  /// Whether that is published now.
  bool is_published(std::uint32_t slot, std::uint32_t generation) const noexcept {
    const lock_guard hold(lock_);
    const publication& p = slots_[slot];
    return p.generation == generation && p.now == publication::state::published;
  }

 private:
  using serve = detail::serve;
  using job_type = detail::digest_job<Hash, ChunkHash>;
  static constexpr std::uint32_t nobody = 0;  // no connection has this number
  // limits_policy has bounded it
  static constexpr auto busy_delay_ms = static_cast<std::uint32_t>(Limits::busy_delay.count());

  /// Asks the program, unless it has agreed already.
  bool authorised(peer& from, const frame& m, const identity_source& who) noexcept {
    if (!may_) return true;
    const bool settles = m.kind == frame_kind::confirm || m.kind == frame_kind::cancel;
    const recipient_id as = m.kind == frame_kind::describe || (settles && m.recipient) ? m.recipient : from.who;
    {
      const lock_guard hold(lock_);
      const publication* const slot = find(m.ref);
      if (slot != nullptr && as == from.who &&
          from.find(static_cast<std::uint32_t>(slot - slots_.data()), slot->generation) != nullptr)
        return true;
    }
    return may_({who(), m.ref, m.version, as});
  }

  // The caller of these holds the lock.
  publication* find(publication_key which) const noexcept {
    publication* last = nullptr;  // the latest of those that are over
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      publication& p = slots_[i];
      // an ID is a key: how long this takes does not say how much of one is right
      const std::uint64_t differs = (p.id.high ^ which.id.high) | (p.id.low ^ which.id.low);
      if (p.now == publication::state::empty || differs != 0) continue;
      if (which.version != 0 && which.version != p.version) continue;
      if (p.now == publication::state::published) return &p;
      if (last == nullptr || p.order > last->order) last = &p;
    }
    return last;
  }
  /// What is remembered of a recipient of what `p` is: of that publication only if a version is named.
  recipient_record* record_of(publication_key which, const publication* p, recipient_id who) noexcept {
    if (which.version == 0) return book_.records.find(which.id, who);
    return p != nullptr ? book_.record_of(*p, who) : nullptr;
  }
  /// Ends a publication, and waits until nobody reads it. Takes the lock.
  template <class Take>
  result<transaction_id> end(publication_key which, Take take) noexcept {
    const lock_guard hold(lock_);
    publication* const slot = find(which);
    if (slot == nullptr) return failure(errc::unknown_reference);
    if (pinned_here(*slot)) return failure(errc::busy);
    if (slot->now == publication::state::published) take(*slot);
    const transaction_id of = slot->transaction;
    await_unpinned(*slot);
    return of;
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
  template <class Tell>
  result<ref_id> place(const source_view& image, std::uint64_t version, bool verifiable, ref_id id, transaction_id in,
                       Tell tell) noexcept {
    if (!id || version == 0) return failure(errc::invalid_argument);
    for (;;) {
      publication* const old = find(id);
      if (const auto ok = book_.admits(in, old); !ok) return failure(ok.error());
      // not the old one's, if there is another: its transaction still has to tell how its recipients ended
      publication* slot = vacant();
      if (slot == nullptr && old != nullptr && !book_.shares(*old)) slot = old;
      if (slot == nullptr) return failure(errc::table_full, slots_.size());
      if (old != nullptr && pinned_here(*old)) return failure(errc::busy);
      if (told(in, 1, tell)) continue;
      if (old != nullptr && old->now == publication::state::published)
        book_.take(*old);  // nobody pins it anew while we wait
      if (slot == old && await_unpinned(*old)) continue;  // everything may have changed after a wait
      occupy(*slot, image, version, verifiable, id, in);
      book_.attach(*slot);
      if (old != nullptr) await_unpinned(*old);
      return id;
    }
  }
  /// Has it told how recipients have ended whose records are needed by so many references that join. True: there was
  /// something to tell, so everything may have changed.
  template <class Tell>
  bool told(transaction_id in, std::size_t references, Tell& tell) noexcept {
    const transaction* const t = book_.find(in);
    if (t == nullptr || !book_.forgets_ends(std::uint64_t{references} * t->options.named.size())) return false;
    lock_.unlock();
    const bool any = tell();
    lock_.lock();
    return any;
  }
  void occupy(publication& slot, const source_view& image, std::uint64_t version, bool verifiable, ref_id id,
              transaction_id in) noexcept {
    slot = {id,
            image,
            version,
            ++orders_,
            {},
            in,
            slot.generation + 1,
            0,
            publication::state::published,
            verdict::open,
            verifiable};
    slot.image_bytes = image.schema->image_bytes;
    slot.tensors = static_cast<std::uint32_t>(image.schema->tensor_count);
  }
  /// With one thread a pin is our caller's own: a callback runs while the image is being sent. Waiting for it would
  /// never end.
  static constexpr bool pinned_here(const publication& p) noexcept {
    return std::is_same_v<Lock, no_lock> && p.pins != 0;
  }
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
  bool over(pending_reply& out, const publication* slot, const frame& m) noexcept {
    const recipient_record* r = nullptr;
    if (m.kind == frame_kind::describe && m.recipient)
      r = slot == nullptr ? book_.records.find(m.ref, m.recipient) : book_.record_of(*slot, m.recipient);
    if (r != nullptr && has_completed(r->state)) return refuse(out, status::already_final);
    return slot == nullptr ? refuse(out, status::unknown_reference) : detail::refuse_over(out, slot);
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
      // one that only looked has not asked
      const bool asked = r->state == recipient_state::acquired || r->state == recipient_state::provisional;
      slots_[s.slot].counts.lost += asked;
    }
    s = {};
  }
  /// The record behind an entry; nullptr if its publication is gone or another connection has taken the recipient over.
  recipient_record* record_of(const peer& from, const serve& s) noexcept {
    if (s.generation == 0) return nullptr;
    recipient_record& r = book_.records.at(s.record);
    return r.connection == from.number && r.slot == s.slot && r.generation == s.generation &&
                   book_.publication_of(r) != nullptr
               ? &r
               : nullptr;
  }

  /// The peer's record for a publication. nullptr: it has too many transfers open, or the table is full of others.
  recipient_record* use(peer& from, publication& slot) noexcept {
    const auto number = static_cast<std::uint32_t>(&slot - slots_.data());
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
    if (from.number == 0) {
      from.number = ++connections_;
      from.anonymous = {fresh_nonce()};
    }
    r = book_.acquire(slot, from.who ? from.who : from.anonymous, !from.who);
    if (r == nullptr) return nullptr;
    if (goes_on && r->connection != from.number)
      state_of(*r) = state_of(*entry);  // another connection was served under its name meanwhile
    r->connection = from.number;
    if (!r->serving) {  // one that comes back before the end continues the serve that was begun
      r->serving = true;
      r->nonce = fresh_nonce();
      r->at_end = false;
    }
    *entry = {state_of(*r), number, slot.generation, book_.records.index(*r)};
    return r;
  }
  static serve_state& state_of(serve_state& s) noexcept { return s; }
  /// The entry of a record at a connection that has been served under it; nullptr if there is none.
  serve* entry_of(peer& from, const recipient_record& r) noexcept {
    serve* const entry = from.find(r.slot, r.generation);
    return entry != nullptr && entry->record == book_.records.index(r) ? entry : nullptr;
  }
  /// What the connection that uses the record is served.
  void keep(peer& from, recipient_record& r) noexcept {
    if (serve* const entry = entry_of(from, r)) state_of(*entry) = state_of(r);
  }

  digest_state answer_locate(peer& from, const frame& m, std::span<byte_range> ranges, frame& answer) noexcept {
    answer = {};
    answer.kind = frame_kind::refused;
    answer.id = m.id;
    answer.ref = m.ref;
    publication* const slot = find(m.ref);
    if (slot == nullptr || slot->now == publication::state::withdrawn) {
      pending_reply refusal;
      refusal.ref = m.ref;
      over(refusal, slot, m);
      answer.status = refusal.status;
      answer.delay_ms = refusal.length;
      return digest_state::ready;
    }
    answer.version = slot->version;
    if (m.version != 0 && m.version != slot->version) answer.status = status::stale;
    else if (Limits::subset_bytes_per_second == 0) answer.status = status::unsupported;
    else if (m.names.empty() || m.names.size() > std::min(ranges.size(), most_names))
      answer.status = status::bad_request;
    if (answer.status != status::ok) return digest_state::ready;
    recipient_record* const r = use(from, *slot);
    if (r == nullptr) return put_off(answer);
    if (subset_asker_ == from.number && subset_request_ == m.id && is_now(subset_job_.key, *slot)) return hash_subset();
    // The names are looked up only if they are remembered or there is a budget: that can cost as much as hashing a
    // small subset.
    const auto number = static_cast<std::uint32_t>(slot - slots_.data());
    const detail::digest_key key{detail::hash_of(m.names), m.names.size(), number, slot->generation,
                                 digest_kind_of<Hash>};
    const std::uint64_t* const digest = subsets_.find(key);
    if (digest == nullptr && subset_job_.key != key && !may_begin_subset(m.names.size())) return put_off(answer);
    const auto found = detail::find_subset(*slot->image.schema, m.names, ranges);
    if (!found) {
      answer.status = status::bad_request;
      answer.offset = found.error().at;
      return digest_state::ready;
    }
    if (digest == nullptr) {
      if (subset_job_.key != key) begin_subset(key, found->bytes, *slot->image.schema, ranges.first(m.names.size()));
      subset_asker_ = from.number;
      subset_request_ = m.id;
      return hash_subset();  // everything may have changed meanwhile
    }
    answer.kind = frame_kind::located;
    answer.nonce = r->nonce;
    answer.digest = r->subset_digest = *digest;
    answer.fingerprint = found->fingerprint;
    answer.ranges = ranges.first(m.names.size());
    r->subset = true;
    r->subset_end = 0;  // where the last byte that can be asked for ends
    for (std::size_t i = 0; i < m.names.size(); ++i)
      if (ranges[i].begin != ranges[i].end) r->subset_end = ranges[i].end;
    keep(from, *r);
    return digest_state::ready;
  }

  bool answer_pull(publication& slot, recipient_record& r, const frame& m, pending_reply& out) noexcept {
    const image_schema& schema = *slot.image.schema;
    if (m.fingerprint != 0 && m.fingerprint != schema.fingerprint) return refuse(out, status::schema_mismatch);
    if (m.offset > schema.image_bytes) return refuse(out, status::out_of_range);
    const std::uint64_t left = schema.image_bytes - m.offset;
    if (left == 0) {
      out.kind = frame_kind::end;
      return true;
    }
    if (m.length == 0) return refuse(out, status::bad_request);
    if (m.chunk_digest != digest_kind::none && !computes(m.chunk_digest)) return refuse(out, status::unsupported);
    out.kind = frame_kind::chunk;
    out.chunk_digest = m.chunk_digest;  // computed when the chunk is about to be sent
    // see default_limits::chunk_cap_bytes
    const bool whole = m.length == all_in_one_chunk && m.chunk_digest == digest_kind::none &&
                       Limits::chunk_cap_bytes >= usual_chunk_cap_bytes;
    const std::uint64_t cap = whole ? max_payload_bytes : std::min(Limits::chunk_cap_bytes, max_payload_bytes);
    out.length = static_cast<std::uint32_t>(std::min(std::min<std::uint64_t>(m.length, left), cap));
    const std::uint64_t end = m.offset + out.length;
    const bool last = end == schema.image_bytes || (r.subset && end >= r.subset_end);
    if (last) r.sent_to_the_end();
    return true;
  }

  /// A confirmation counts once, for the serve whose nonce it repeats, after that serve reached the end. A repeated one
  /// gets the same answer. Anything else changes nothing. False: nothing is sent, since a cancellation has no answer.
  bool settle(peer& from, const frame& m, pending_reply& out) noexcept {
    recipient_id who = m.recipient;
    if (!who) who = from.who ? from.who : from.anonymous;
    recipient_record* r = book_.records.find(m.ref, who);
    while (r != nullptr && detail::served(entry_of(from, *r), *r, from.number).nonce != m.nonce)
      r = book_.records.before(*r);  // of an earlier version
    if (r == nullptr || m.nonce == 0) {
      detail::refuse_serve(out, find(m.ref));
    } else if (m.kind == frame_kind::cancel && m.status == status::looked) {
      take_back(from, *r);
    } else {
      state_of(*r) = detail::served(entry_of(from, *r), *r, from.number);
      out.record = book_.records.index(*r);
      if (entry_of(from, *r) != nullptr) r->connection = from.number;
      conclude(from, r, m, out);
      keep(from, *r);
    }
    return m.kind == frame_kind::confirm;
  }
  /// A recipient has only looked, over this connection. It may have asked over a newer one before that is heard, or it
  /// is heard once more: what the newer one is served stays.
  void take_back(peer& from, recipient_record& r) noexcept {
    serve* const own = entry_of(from, r);
    if (own == nullptr) return;
    own->serving = false;  // what it asks from now on is another serve, of which this was not said
    if (r.connection != from.number) return;
    r.serving = false;
    book_.unask(r);
  }
  /// Ends what a recipient was served, as its confirmation or its cancellation says.
  void conclude(const peer& from, recipient_record* r, const frame& m, pending_reply& out) noexcept {
    if (r->anonymous && r->connection != from.number) return detail::refuse_serve(out, find(m.ref));
    out.kind = frame_kind::confirmed;
    out.nonce = m.nonce;
    out.version = r->version;
    publication* const slot = book_.publication_of(*r);
    if (r->state == recipient_state::unfinished || (slot == nullptr && !is_final(r->state)))
      return detail::refuse_late(out, find(m.ref));
    const bool confirms = m.kind == frame_kind::confirm;
    const bool uncounted = r->state == recipient_state::vanished || r->state == recipient_state::unseen;
    if (confirms && slot != nullptr && uncounted)  // unseen: a newer connection of it has only looked
      r = book_.acquire(*slot, r->who, r->anonymous);
    if (is_final(r->state)) {
      // one that had completed without a digest was served again, and has one now
      const bool verifies = confirms && r->state == recipient_state::completed_unverified && r->serving && r->at_end &&
                            slot != nullptr && comparable(*slot, *r, m);
      const bool wrong = verifies && differs(*slot, *r, m);
      if (verifies && !wrong) book_.change(*slot, *r, recipient_state::completed);
      r->serving = false;
      out.status = wrong ? status::digest_mismatch : detail::verdict_on(*r, m);
    } else if (confirms) {
      confirm(*slot, *r, m, out);
    } else {
      r->reason = m.reason;
      book_.change(*slot, *r,
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
    if (!compares) book_.change(slot, r, recipient_state::completed_unverified);
    else book_.change(slot, r, wrong ? recipient_state::failed : recipient_state::completed);
  }
  static bool comparable(const publication& slot, const recipient_record& r, const frame& m) noexcept {
    return m.flag && (slot.verifiable || r.subset);
  }
  static bool differs(const publication& slot, const recipient_record& r, const frame& m) noexcept {
    return m.digest != (r.subset ? r.subset_digest : slot.version);
  }
  /// Digests of that kind come with chunks.
  static constexpr bool computes(digest_kind kind) noexcept {
    return Limits::chunk_digest_bytes_per_second > 0 &&
           (kind == digest_kind_of<Hash> || kind == digest_kind_of<ChunkHash>);
  }
  /// The publication that a reply or a digest is of is not there any more.
  template <class Of>
  bool gone(const Of& of) const noexcept {
    const publication& p = slots_[of.slot];
    return p.generation != of.generation || p.now != publication::state::published;
  }
  /// The job of a chunk's digest, or if there is no room for it, one to help with. nullptr: other threads have them all
  /// in hand.
  job_type* chunk_job(const detail::digest_key& key, const pending_reply& r) noexcept {
    if (job_type* const there = jobs_.find(key)) return there;
    recipient_record& to = book_.records.at(r.record);
    // Twice what was taken, so that it can be paid with one chunk while another is on its way. What was taken long ago
    // does not pay for much now.
    constexpr std::uint64_t most = 2 * std::min(Limits::chunk_cap_bytes, max_payload_bytes);
    const std::uint64_t earned = 2 * to.bytes;
    const std::uint64_t spent = std::max(to.hashed, earned - std::min(earned, most));
    const bool paid = to.nonce == r.nonce && to.ref == r.ref && spent + key.length <= earned;
    const auto gives_way = [&](const job_type& j) {
      return gone(j.key) || (!paid && !j.paid && j.left() / 2 > key.length && may_waste(j.done));
    };
    job_type* const begun = jobs_.begin(key, paid, gives_way);
    if (begun == nullptr) return jobs_.soonest(paid);
    if (paid) to.hashed = spent + key.length;
    return begun;
  }
  /// Whether so much that was hashed may be thrown away now. Without a limit peers that ask for short chunks could keep
  /// a long one from ever being hashed.
  bool may_waste(std::uint64_t bytes) noexcept {
    if (!waste_budget_.left(book_.now)) return false;
    waste_budget_.spend(bytes, book_.now);
    return true;
  }
  /// Whether the digest of another subset may be computed now: none is, and the budget is not used up. Looking up a
  /// name costs as much as hashing some KiB.
  bool may_begin_subset(std::size_t names) noexcept {
    if (subset_job_.in_hand || (subset_job_.key.generation != 0 && !gone(subset_job_.key)) ||
        !subset_budget_.left(book_.now))
      return false;
    subset_budget_.spend(names * 8192, book_.now);
    return true;
  }
  void begin_subset(const detail::digest_key& key, std::uint64_t bytes, const image_schema& schema,
                    std::span<const byte_range> ranges) noexcept {
    subset_budget_.spend(bytes, book_.now);
    subset_job_.begin(key, bytes, false);
    subset_count_ = 0;
    for (std::size_t i = 0; i < ranges.size(); ++i)  // tensors without bytes are not hashed
      if (ranges[i].begin != ranges[i].end)
        subset_[subset_count_++] = static_cast<std::uint32_t>(tensor_at(schema, ranges[i].begin - schema.header_bytes));
  }
  /// The job of a digest that is of this publication as it is now.
  bool is_now(const detail::digest_key& key, const publication& p) const noexcept {
    return key.generation == p.generation && &slots_[key.slot] == &p;
  }
  digest_state hash_subset() noexcept {
    if (!subset_job_.in_hand)
      hash_slice(subset_job_, subsets_, [&](const source_view& image) {
        std::byte memory[4096];
        return subset_job_.advance(image, std::span<const std::uint32_t>(subset_).first(subset_count_),
                                   std::min(subset_job_.left(), detail::digest_slice_bytes), memory);
      });
    return digest_state::working;
  }
  /// Runs `advance(image)` without the lock. A digest that is ready is remembered. An image that cannot be read is
  /// given up.
  template <class Memory, class Advance>
  void hash_slice(job_type& job, Memory& memory, Advance advance) noexcept {
    publication& p = slots_[job.key.slot];
    job.in_hand = true;
    ++p.pins;
    lock_.unlock();
    const bool read = advance(p.image).has_value();
    lock_.lock();
    --p.pins;
    job.in_hand = false;
    if (!read && !gone(job.key)) book_.give_up(p);
    if (read && job.left() > 0) return;
    if (read) memory.add(job.key, job.digest());
    job.end();
  }
  /// Answers `busy`, which is always an answer.
  static digest_state put_off(frame& answer) noexcept {
    answer.status = status::busy;
    answer.delay_ms = busy_delay_ms;
    return digest_state::ready;
  }

  /// Names a serve; never 0, which is no nonce. It tells serves apart; it does not authenticate.
  std::uint64_t fresh_nonce() noexcept {
    const std::uint64_t n = nonces_(nonce_step_);
    return n != 0 ? n : 1;
  }

  std::span<publication> slots_;
  detail::transaction_table book_;
  // none: no chunk has a digest
  static constexpr std::size_t chunk_jobs = Limits::chunk_digest_bytes_per_second > 0 ? Limits::digest_jobs : 0;
  [[no_unique_address]] detail::digest_jobs<job_type, (std::is_same_v<Lock, no_lock> ? 1 : 4) * chunk_jobs> jobs_{};
  job_type subset_job_{};  // one at a time: a recipient that asks for another subset comes back
  // indices of its tensors: to find them by name again for each slice would cost more than the slice
  std::uint32_t subset_[most_names]{};
  std::size_t subset_count_ = 0;
  std::uint32_t subset_asker_ = nobody, subset_request_ = 0;  // the connection that goes on with it, and its request
  detail::digest_memory<8 * chunk_jobs> chunks_{};
  detail::digest_memory<8 * Limits::digest_jobs> subsets_{};
  detail::digest_budget<Limits::chunk_digest_bytes_per_second> chunk_budget_{};
  detail::digest_budget<Limits::chunk_digest_bytes_per_second / 16> waste_budget_{};
  detail::digest_budget<Limits::subset_bytes_per_second> subset_budget_{};
  splitmix64 nonces_;
  std::uint64_t nonce_step_;
  std::uint64_t orders_ = 0;
  std::uint64_t bytes_sent_ = 0;
  std::uint32_t connections_ = 0;
  authorise_callback may_{};
  [[no_unique_address]] mutable Lock lock_{};
};

}  // namespace tensorpull
