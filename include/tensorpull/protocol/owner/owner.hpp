// The owner's state machine: publications, and answers to requests about them. No I/O, no clock, no heap: slots, random numbers and the
// lock are handed in. It gives payloads as ranges of an image; the endpoint turns them into spans when the transport can take them.
#pragma once

#include <tensorpull/core/checked.hpp>
#include <tensorpull/core/limits.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/image/gather_scatter.hpp>
#include <tensorpull/integrity/concept.hpp>
#include <tensorpull/std/mutex.hpp>
#include <tensorpull/framing/frame.hpp>
#include <tensorpull/protocol/owner/detail/nonce_source.hpp>
#include <tensorpull/protocol/pending_reply.hpp>
#include <tensorpull/protocol/owner/detail/expand_reply.hpp>
#include <tensorpull/protocol/owner/detail/publication_table.hpp>
#include <tensorpull/protocol/owner/detail/serve_table.hpp>
#include <tensorpull/protocol/owner/detail/subset_digests.hpp>

#include <array>
#include <span>

namespace tensorpull {

/// `Hash` computes digests of chunks and subsets; `Lock` is no_lock or a mutex with relax(); `Limits` caps what one peer may cause.
/// `ChunkHash`: another that chunks may be asked for with (CRC32C), or the same.
template <hash Hash, class Limits = default_limits, class Lock = no_lock, hash ChunkHash = Hash>
class owner : public publication_table<Lock> {
  using table = publication_table<Lock>;
  using table::book_;
  using table::find;
  using table::lock_;
  using table::slots_;

 public:
  using link = serve_table<Limits>;
  static constexpr bool owns = true;
  /// Answers that one connection may have waiting: a full window, and what is refused or confirmed meanwhile.
  static constexpr std::size_t waiting_replies = Limits::pipelined_requests + 2;

  /// `memory`: borrowed, as long as the owner lives. `random(): uint64` must be unguessable.
  template <class Random>
  owner(const owner_memory& memory, Random random) noexcept : table(memory), nonce_{random(), random()} {}

  /// Answers one request. False: nothing is to be sent (a cancellation). Locate requests are answered by locate().
  bool handle(link& peer, const frame& m, pending_reply& out) noexcept {
    const lock_guard hold(lock_);
    out = {frame_kind::refused, status::bad_request, m.id, 0, 0, 0, 0, m.ref, m.version, m.offset, 0, 0};
    if (m.kind == frame_kind::confirm || m.kind == frame_kind::cancel) return settle(peer, m, out);
    publication* const slot = find(m.ref);
    if (slot == nullptr || slot->now == publication::state::withdrawn) return refuse(out, over(slot, m));
    const std::uint64_t expected = m.version;
    out.version = slot->version;
    if (expected != 0 && expected != slot->version) return refuse(out, status::stale);
    out.slot = static_cast<std::uint32_t>(slot - slots_.data());
    out.generation = slot->generation;
    if (m.kind == frame_kind::describe) greet(peer, m.recipient);
    recipient_record* const r = use(peer, *slot);
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

  /// Answers a request for named tensors into `answer`, whose ranges lie in `ranges` (at least as many as there are names).
  void locate(link& peer, const frame& m, std::span<byte_range> ranges, frame& answer) noexcept {
    const lock_guard hold(lock_);
    answer = {};
    answer.kind = frame_kind::refused;
    answer.id = m.id;
    answer.ref = m.ref;
    publication* const slot = find(m.ref);
    answer.status = slot == nullptr ? status::unknown_reference : slot->now == publication::state::withdrawn ? status::withdrawn : status::ok;
    if (answer.status != status::ok) return;
    answer.version = slot->version;
    if (m.version != 0 && m.version != slot->version) answer.status = status::stale;
    else if (m.names.empty() || m.names.size() > ranges.size()) answer.status = status::bad_request;
    if (answer.status != status::ok) return;
    recipient_record* const r = use(peer, *slot);
    if (r == nullptr) {
      answer.status = status::busy;
      return;
    }
    const auto found = find_subset(*slot->image.schema, m.names, ranges);
    if (!found) {
      answer.status = status::bad_request;
      answer.offset = found.error().at;
      return;
    }
    const auto number = static_cast<std::uint32_t>(slot - slots_.data());
    const auto of_subset = subsets_.of(slot->image, number, slot->generation, *found, ranges.first(m.names.size()), book_.now_ms);
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

  /// The connection is gone: what it had not finished is counted as lost. Who has a name may come back.
  void forget(link& peer) noexcept {
    const lock_guard hold(lock_);
    for (serve& s : peer) leave(peer, s);
    peer = {};
  }

  /// The message behind a control answer. `rows` is memory for a schema page.
  frame expand(const pending_reply& r, std::span<schema_row> rows) const noexcept {
    const lock_guard hold(lock_);
    const publication& p = slots_[r.slot];
    const bool there = p.generation == r.generation && p.now == publication::state::published;
    return expand_reply<Limits>(r, there ? &p : nullptr, rows);
  }

  /// Turns an answer that cannot be given any more into the refusal that says why.
  void refuse_gone(pending_reply& r) const noexcept {
    const lock_guard hold(lock_);
    const publication& p = slots_[r.slot];
    const bool again = p.now == publication::state::published && p.id == r.ref;
    refuse(r, again ? status::stale : status::withdrawn);
    if (again) r.version = p.version;
  }

 private:
  /// What is said of a reference that is not published: those who completed it are told so.
  status over(const publication* slot, const frame& m) noexcept {
    const recipient_record* const r = m.kind == frame_kind::describe && m.recipient ? book_.records.find(m.ref, m.recipient) : nullptr;
    if (r != nullptr && (slot == nullptr || is_of(*r, *slot, slots_)) && (r->state == recipient_state::completed || r->state == recipient_state::completed_unverified)) return status::already_final;
    return slot == nullptr ? status::unknown_reference : status::withdrawn;
  }

  /// Who is at the other end from now on.
  void greet(link& peer, recipient_id who) noexcept {
    if (peer.who == who) return;
    for (serve& s : peer) leave(peer, s);
    peer.who = who;
  }
  void leave(link& peer, serve& s) noexcept {
    if (recipient_record* const r = record_of(peer, s)) {
      r->link = 0;
      if (!is_final(r->state)) ++slots_[s.slot].counts.lost;
    }
    s = {};
  }
  /// The record behind an entry, while its publication is there and no other connection has taken the recipient over.
  recipient_record* record_of(const link& peer, const serve& s) noexcept {
    if (s.generation == 0) return nullptr;
    recipient_record& r = book_.records.at(s.record);
    return r.link == peer.number && r.slot == s.slot && r.generation == s.generation && book_.publication_of(r) != nullptr ? &r : nullptr;
  }

  /// The peer's record for a publication. nullptr: it has too many transfers open, or the table is full of others.
  recipient_record* use(link& peer, publication& slot) noexcept {
    const auto number = static_cast<std::uint32_t>(&slot - slots_.data());
    serve* entry = peer.find(number, slot.generation);
    recipient_record* r = entry != nullptr ? record_of(peer, *entry) : nullptr;
    if (r != nullptr && r->serving) return r;
    if (entry == nullptr)
      entry = peer.place([&](const serve& e) {
        const recipient_record* const old = record_of(peer, e);
        return old == nullptr || !old->serving;
      });
    if (entry == nullptr) return nullptr;
    if (peer.number == 0) peer.number = ++links_, peer.anonymous = {nonce_()};
    r = book_.acquire(slot, peer.who ? peer.who : peer.anonymous, !peer.who);
    if (r == nullptr) return nullptr;
    *entry = {number, slot.generation, book_.records.index(*r)};
    r->link = peer.number;
    if (!r->serving) r->serving = true, r->nonce = nonce_();  // who comes back before the end goes on with the serve that was begun
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
    out.length = static_cast<std::uint32_t>(std::min(std::min<std::uint64_t>(m.length, left), std::min(Limits::chunk_cap_bytes, max_payload_bytes)));
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

  /// A confirmation counts once, for the serve whose nonce it repeats, after that serve reached the end; said again, it gets the same
  /// answer. Anything else changes nothing.
  bool settle(link& peer, const frame& m, pending_reply& out) noexcept {
    const bool confirms = m.kind == frame_kind::confirm;
    const publication* const there = find(m.ref);
    recipient_record* const r = book_.records.find(m.ref, m.recipient ? m.recipient : peer.who ? peer.who : peer.anonymous);
    if (r == nullptr || m.nonce == 0 || r->nonce != m.nonce || (r->anonymous && r->link != peer.number))
      return confirms && refuse(out, there == nullptr ? status::unknown_reference : there->now == publication::state::withdrawn ? status::withdrawn : status::bad_request);
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
    book_.change(*slot, *r, !comparable ? recipient_state::completed_unverified : m.digest == published ? recipient_state::completed : recipient_state::failed);
    return true;
  }
  /// What a recipient that ended before is told when it confirms (again).
  static status verdict_on(const recipient_record& r, const frame& m) noexcept {
    switch (r.state) {
      case recipient_state::completed: return !m.flag || m.digest == (r.subset ? r.subset_digest : r.version) ? status::ok : status::digest_mismatch;
      case recipient_state::completed_unverified: return status::ok;
      case recipient_state::failed: return status::digest_mismatch;
      default: return status::already_final;
    }
  }

  nonce_source nonce_;
  std::uint32_t links_ = 0;
  subset_digests<Hash, Limits> subsets_{};
};

}  // namespace tensorpull
