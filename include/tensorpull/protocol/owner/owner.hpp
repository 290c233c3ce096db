// The owner's state machine: what is published, for whom, how it ended, and the answers to requests about it. It has no
// I/O, no clock and no heap: memory, random numbers, the time and the lock are handed in. It gives payloads as ranges
// of an image; the endpoint turns them into spans when the transport can take them.
#pragma once

#include <tensorpull/core/limits.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/framing/frame.hpp>
#include <tensorpull/image/schema.hpp>
#include <tensorpull/integrity/concept.hpp>
#include <tensorpull/protocol/owner/access.hpp>
#include <tensorpull/protocol/owner/detail/chunk_digests.hpp>
#include <tensorpull/protocol/owner/detail/schema_rows.hpp>
#include <tensorpull/protocol/owner/detail/serve_book.hpp>
#include <tensorpull/protocol/owner/detail/subset_digests.hpp>
#include <tensorpull/protocol/owner/owner_memory.hpp>
#include <tensorpull/protocol/owner/publication_book.hpp>
#include <tensorpull/protocol/pending_reply.hpp>
#include <tensorpull/protocol/roles.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/mutex.hpp>

#include <span>
#include <type_traits>

namespace tensorpull {

/// The publications of a program, and the role of an owner at its connections: a model of owner_role (roles.hpp).
/// `Hash` computes digests of chunks and subsets. `Limits` caps what one peer may cause. `Lock`: as publication_book.
/// `ChunkHash`: another hash that recipients may ask for with chunks, such as CRC32C, or the same. No member throws or
/// allocates.
template <hash Hash, class Limits = default_limits, class Lock = no_lock, hash ChunkHash = Hash>
class owner : public publication_book<Lock> {
  using base = publication_book<Lock>;
  using base::bytes_sent_, base::lock_, base::transactions_;
  using job_type = detail::digest_job<Hash, ChunkHash>;
  using book_type = detail::serve_book<Limits::transfers_per_connection>;

 public:
  /// The memory of an owner about one connection: the identity of its other end, and the references that it is pulling.
  /// Fixed size.
  using peer = typename book_type::peer;
  /// Names that a locate may have.
  static constexpr std::size_t most_names = detail::subset_digests<job_type, Limits>::most_names;
  /// Slices that a locate may have.
  static constexpr std::size_t most_slices = detail::subset_digests<job_type, Limits>::most_slices;
  /// It answers requests.
  static constexpr bool owns = true;
  /// Answers that one connection may have waiting: those to a full window of requests, and two more.
  static constexpr std::size_t waiting_replies = Limits::pipelined_requests + 2;

  /// `memory`: borrowed as long as the owner lives. `random()` gives unguessable 64-bit numbers; it is called four
  /// times, here.
  template <class Random>
  owner(const owner_memory& memory, Random random) noexcept : base(memory), numbers_(random), subsets_(random) {}

  /// From now on a request is answered only if `may` agrees; any other is answered as one for a reference that nobody
  /// knows. It is asked without the lock, before anything is looked up, so that a refusal takes as long as an unknown
  /// reference does. Once it has agreed, it is asked again for the same connection only when that names another
  /// recipient, when the reference is published anew, or when it pulls more references than the limits'
  /// transfers_per_connection. It must not throw. Call it before there are connections. Without it, everybody may.
  void authorise(const authorise_callback& may) noexcept { may_ = may; }
  /// Whether a program is asked what each peer may have.
  bool authorises() const noexcept { return bool(may_); }
  /// Asks the program, without the lock, for a driver that tells something about a reference by other means. True: it
  /// agrees, or is not asked.
  bool allows(const access_request& r) const noexcept { return !may_ || may_(r); }

  /// Answers one request. False: there is nothing to send (a cancellation). locate() answers requests for named
  /// tensors. `who`: the other end of the connection.
  bool handle(peer& from, const frame& m, pending_reply& out, const identity_source& who = {}) noexcept {
    out = {
        .kind = frame_kind::refused,
        .status = status::bad_request,
        .id = m.id,
        .ref = m.ref,
        .version = m.version,
        .offset = m.offset,
    };
    if (is_newer(m.kind)) return refuse(out, status::unsupported);
    const bool may = authorised(from, m, who);
    const lock_guard hold(lock_);
    if (!may) return m.kind != frame_kind::cancel && refuse(out, status::unknown_reference);
    if (m.kind == frame_kind::confirm || m.kind == frame_kind::cancel) return book().settle(from, m, out);
    publication* const slot = asked(from, m);
    if (slot == nullptr || slot->now == publication::state::withdrawn) return book().over(out, slot, m);
    const std::uint64_t expected = m.version;
    out.version = slot->version;
    if (expected != 0 && expected != slot->version) return refuse(out, status::stale);
    out.slot = slots().index(*slot);
    out.generation = slot->generation;
    if (m.kind == frame_kind::describe) book().greet(from, m.recipient);
    recipient_record* const r = book().use(from, *slot);
    if (r == nullptr) return refuse(out, status::busy);
    out.record = transactions_.records.index(*r);
    out.nonce = r->nonce;
    switch (m.kind) {
      case frame_kind::describe:  // the whole, unless a locate follows
        r->subset = false;
        book().keep(from, *r);
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
    return now == digest_state::working && subsets_.idle() ? answer_locate(from, m, ranges, answer) : now;
  }

  /// Goes on with the digest of a chunk, by at most `allowance` bytes, which are taken off. It hashes without the lock,
  /// while the image is pinned. `memory`: for bytes that are not in memory as they are; not empty. `ready`: it is in
  /// the reply, or the image is gone. `waiting`: others have used up the limits' chunk_digest_bytes_per_second, and
  /// this recipient has not taken half as many bytes as were hashed for it.
  digest_state digest(pending_reply& r, std::uint64_t& allowance, std::span<std::byte> memory) noexcept {
    const lock_guard hold(lock_);
    return chunks_.digest(transactions_, lock_, r, allowance, memory);
  }

  /// The connection is gone: each transfer that it had not finished counts as `lost`. A named recipient may return.
  void forget(peer& from) noexcept {
    const lock_guard hold(lock_);
    subsets_.forget(from.number());
    book().forget(from);
  }

  /// Writes a reply out as a frame. If it is about an image, that has to be pinned.
  frame expand(const pending_reply& r) const noexcept {
    const lock_guard hold(lock_);
    frame m = frame_of(r);
    if (r.kind == frame_kind::refused && r.status == status::busy) m.delay_ms = detail::busy_delay_ms<Limits>;
    if (r.kind == frame_kind::refused || r.kind == frame_kind::confirmed || r.kind == frame_kind::chunk) return m;
    const publication& p = slots().at(r.slot);  // not put to another use while its image is pinned, even if it is
                                                // withdrawn
    const image_schema& schema = *p.image.schema;
    m.image_bytes = schema.image_bytes;
    m.tensors = schema.tensor_count;
    if (r.kind == frame_kind::schema_page) {
      m.rows = detail::schema_rows(schema, r.offset, detail::made_frame_bytes<Limits>);
    } else if (r.kind == frame_kind::description) {
      m.fingerprint = schema.fingerprint;
      m.data_start = schema.header_bytes;
      m.length = static_cast<std::uint32_t>(std::min(Limits::chunk_cap_bytes, max_payload_bytes));
      constexpr std::size_t window = std::min<std::size_t>(Limits::pipelined_requests, Limits::window);
      m.window = static_cast<std::uint16_t>(std::min<std::size_t>(window, 0xffff));
      m.flag = p.verifiable;
      m.request_words = detail::request_words<Limits>;
    }
    return m;
  }

  /// Turns a reply whose image is gone into a refusal: `stale` if another version is published now, `busy` if the same
  /// one is published again (its recipient begins another serve), `unreadable` if it could not be read, `ended` if it
  /// has settled by itself, otherwise `withdrawn`. A recipient that has completed and asked for a description is told
  /// `already_final`, as if it had asked now.
  void refuse_gone(pending_reply& r) const noexcept {
    const lock_guard hold(lock_);
    const publication* const now = slots().find(r.ref);
    if (now == nullptr || now->now != publication::state::published) {
      const recipient_record* const to = transactions_.records.behind(r);
      if (r.kind == frame_kind::description && to != nullptr && !to->anonymous && has_completed(to->state))
        return void(refuse(r, status::already_final));
      return void(detail::refuse_over(r, &slots().at(r.slot)));
    }
    refuse(r, now->version == r.version ? status::busy : status::stale);
    r.version = now->version;
  }

  /// The image behind a reply, pinned so that withdraw() waits; nullptr if it is not published any more. Each pin needs
  /// one unpin().
  const source_view* pin(const pending_reply& r) noexcept {
    const lock_guard hold(lock_);
    publication& p = slots().at(r.slot);
    if (slots().gone(r)) return nullptr;
    ++p.pins;
    return &p.image;
  }
  /// The image behind a reply is gone. True: the same content is published again, and the reply is of that from now on.
  bool renew(pending_reply& r) noexcept {
    const lock_guard hold(lock_);
    const publication* const p = slots().find(reference{r.ref, r.version, 0});
    if (p == nullptr || p->now != publication::state::published || !p->verifiable) return false;
    r.slot = slots().index(*p);
    r.generation = p->generation;
    return true;
  }
  /// An image could not be read: ends it as withdraw() does, but does not wait until nothing reads it. Recipients are
  /// told `unreadable`.
  void unreadable(const pending_reply& r) noexcept {
    const lock_guard hold(lock_);
    if (!slots().gone(r)) transactions_.give_up(slots().at(r.slot));
  }
  /// Ends a pin(), and counts the bytes of payload that were sent.
  void unpin(const pending_reply& r, std::uint64_t payload_bytes_sent) noexcept {
    const lock_guard hold(lock_);
    publication& p = slots().at(r.slot);
    --p.pins;  // its image can be read until the lock is released: a thread that waits for the last pin needs that
    if (payload_bytes_sent == 0) return;
    p.counts.bytes_sent += payload_bytes_sent;
    bytes_sent_ += payload_bytes_sent;
    if (recipient_record* const to = transactions_.records.behind(r)) transactions_.moved(p, *to, payload_bytes_sent);
  }

  // For classes that give images in another way than by chunks: an owner that derives from this one, or a connection
  // that speaks another protocol.

  /// Describes what is published. The peer that asks does not become a recipient of it. `m` has the reference, its
  /// version (0: any) and the recipient. `ok`: `out` has it; unknown_reference, also for a peer that may not have it;
  /// stale: `out.version` is published; withdrawn, ended, unreadable: it is over. If `out` has it, `read(schema)` is
  /// called, under the owner's lock.
  template <class Read = void (*)(const image_schema&)>
  status look(
      peer& from, const frame& m, publication_facts& out, const identity_source& who = {},
      Read read = [](const image_schema&) {}) noexcept {
    frame asked;  // as a description is asked for
    asked.kind = frame_kind::describe;
    asked.ref = m.ref;
    asked.version = m.version;
    asked.recipient = m.recipient;
    const bool may = authorised(from, asked, who);
    const lock_guard hold(lock_);
    const publication* const p = this->asked(from, asked);
    if (!may || p == nullptr) return status::unknown_reference;
    if (p->now != publication::state::published) return detail::status_over(*p);
    const image_schema& schema = *p->image.schema;
    out = {p->version, schema.image_bytes, schema.fingerprint, p->verifiable};
    read(schema);
    return m.version != 0 && m.version != p->version ? status::stale : status::ok;
  }
  using base::recipient_of;
  /// The record of the recipient that a confirmation or a cancellation is from, if it has asked: for `m.version`, or if
  /// that is 0 for any, the last one. Without a name it is the connection's own. unknown_reference: there is none.
  result<recipient_record> recipient_of(const peer& from, const frame& m) noexcept {
    const lock_guard hold(lock_);
    if (const recipient_record* const r = book().record_for(from, m)) return *r;
    return failure(errc::unknown_reference);
  }
  /// The recipient behind a reply has been given the whole image, so its confirmation is taken.
  void served_whole(const pending_reply& r) noexcept {
    const lock_guard hold(lock_);
    if (recipient_record* const to = transactions_.records.behind(r)) to->sent_to_the_end();
  }
  /// The recipient behind a reply has been given the last byte, and not all before it as far as this owner knows: an
  /// owner that was started before may have given it those. If it has a name, its confirmation with the right digest is
  /// taken.
  void served_last(const pending_reply& r) noexcept {
    const lock_guard hold(lock_);
    if (recipient_record* const to = transactions_.records.behind(r); to != nullptr && !to->anonymous)
      to->at_end = true;
  }

 protected:
  /// One publication, as long as the owner lives: the numbers that a pending_reply has of it. Generation 0: of none.
  struct publication_number {
    std::uint32_t slot = 0, generation = 0;
  };
  /// The publication that is now under a reference.
  publication_number published_as(const reference& ref) const noexcept {
    const lock_guard hold(lock_);
    const publication* const p = slots().find(ref);
    if (p == nullptr || p->now != publication::state::published) return {};
    return {slots().index(*p), p->generation};
  }
  /// Whether that is published now.
  bool is_published(std::uint32_t slot, std::uint32_t generation) const noexcept {
    const lock_guard hold(lock_);
    return !slots().gone(publication_number{slot, generation});
  }

 private:
  detail::publication_table& slots() noexcept { return transactions_.publications; }
  const detail::publication_table& slots() const noexcept { return transactions_.publications; }
  book_type book() noexcept { return {transactions_, numbers_}; }

  /// Asks the program, unless it has agreed already.
  bool authorised(peer& from, const frame& m, const identity_source& who) noexcept {
    if (!may_) return true;
    const bool settles = m.kind == frame_kind::confirm || m.kind == frame_kind::cancel;
    const recipient_id as = m.kind == frame_kind::describe || (settles && m.recipient) ? m.recipient : from.who();
    bool expected = false;
    {
      const lock_guard hold(lock_);
      const publication* const slot = asked(from, m);
      if (slot != nullptr && as == from.who() && from.find(slots().index(*slot), slot->generation) != nullptr)
        return true;
      expected = slot != nullptr && transactions_.expects(*slot, as);
    }
    return may_({who(), m.ref, m.version, as, expected});
  }

  // The caller of these holds the lock.
  /// The publication that a request is about: the newest, or the version that it names if that stays for this
  /// recipient. If the newest has the same content, who begins is served that, and who has begun goes on where it was.
  publication* asked(peer& from, const frame& m) noexcept {
    publication* const now = slots().find(m.ref);
    publication* const before = m.version != 0 ? slots().replaced(m.ref) : nullptr;
    if (before == nullptr || before->version != m.version) return now;
    const bool again = now->now == publication::state::published && now->version == m.version;
    const auto* const begun = from.find(slots().index(*before), before->generation);
    if (begun != nullptr && !again) return before;
    if (again) {
      const bool goes_on = m.kind != frame_kind::describe && begun != nullptr &&
                           from.find(slots().index(*now), now->generation) == nullptr &&
                           !is_final(transactions_.records.at(begun->record).state);
      return goes_on ? before : now;
    }
    const recipient_id who = m.kind == frame_kind::describe ? m.recipient : from.who();
    const recipient_record* const r = who ? transactions_.record_of(*before, who) : nullptr;
    return r != nullptr && detail::has_asked(r->state) && !is_final(r->state) ? before : now;
  }
  digest_state answer_locate(peer& from, const frame& m, std::span<byte_range> ranges, frame& answer) noexcept {
    answer = {};
    answer.kind = frame_kind::refused;
    answer.id = m.id;
    answer.ref = m.ref;
    publication* const slot = asked(from, m);
    if (slot == nullptr || slot->now == publication::state::withdrawn) {
      pending_reply refusal;
      refusal.ref = m.ref;
      book().over(refusal, slot, m);
      answer.status = refusal.status;
      answer.delay_ms = refusal.length;
      return digest_state::ready;
    }
    answer.version = slot->version;
    if (m.version != 0 && m.version != slot->version) answer.status = status::stale;
    else if (Limits::subset_bytes_per_second == 0) answer.status = status::unsupported;
    else if (m.names.empty() || m.names.size() > std::min(ranges.size(), m.slices.empty() ? most_names : most_slices))
      answer.status = status::bad_request;
    if (answer.status != status::ok) return digest_state::ready;
    recipient_record* const r = book().use(from, *slot);
    if (r != nullptr) return subsets_.answer(book(), lock_, from, m, *slot, *r, ranges, answer);
    detail::put_off<Limits>(answer);
    return digest_state::ready;
  }
  bool answer_pull(publication& slot, recipient_record& r, const frame& m, pending_reply& out) noexcept {
    const image_schema& schema = *slot.image.schema;
    const bool of_runs = Limits::slices && m.flag;
    if (!of_runs && m.fingerprint != 0 && m.fingerprint != schema.fingerprint)
      return refuse(out, status::schema_mismatch);
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
    std::uint64_t end = 0;
    if (of_runs) {
      const byte_runs runs = runs_of(m);
      // tensors are sliced, and header text would be written anew for each run
      if (!runs.apart() || runs.stride < runs.length || m.length % runs.length != 0 ||
          m.chunk_digest != digest_kind::none || m.offset < schema.header_bytes)
        return refuse(out, status::bad_request);
      if (runs.distance(m.length - 1) >= left) return refuse(out, status::out_of_range);
      if (m.length > cap) return refuse(out, status::bad_request);
      out.length = m.length;
      out.digest = runs.word();
      out.runs = true;
      end = m.offset + runs.distance(m.length - 1) + 1;
    } else {
      out.length = static_cast<std::uint32_t>(std::min(std::min<std::uint64_t>(m.length, left), cap));
      end = m.offset + out.length;
    }
    const bool last = end == schema.image_bytes || (r.subset && end >= r.subset_end);
    if (last) r.sent_to_the_end();
    return true;
  }
  /// Digests of that kind come with chunks.
  static constexpr bool computes(digest_kind kind) noexcept {
    return Limits::chunk_digest_bytes_per_second > 0 &&
           (kind == digest_kind_of<Hash> || kind == digest_kind_of<ChunkHash>);
  }

  detail::serve_numbers numbers_;
  authorise_callback may_{};
  detail::chunk_digests<job_type, Limits, !std::is_same_v<Lock, no_lock>> chunks_{};
  detail::subset_digests<job_type, Limits> subsets_;
};

}  // namespace tensorpull
