// The owner's state machine: publications, and answers to requests about them. No I/O, no clock, no heap: slots, random numbers and the
// lock are handed in. It gives payloads as ranges of an image; the endpoint turns them into spans when the transport can take them.
#pragma once

#include <tensorpull/core/checked.hpp>
#include <tensorpull/core/limits.hpp>
#include <tensorpull/core/min_max.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/image/gather.hpp>
#include <tensorpull/integrity/concept.hpp>
#include <tensorpull/protocol/lock.hpp>
#include <tensorpull/protocol/messages.hpp>
#include <tensorpull/protocol/pending_reply.hpp>
#include <tensorpull/protocol/publication_table.hpp>
#include <tensorpull/protocol/serve_table.hpp>
#include <tensorpull/protocol/subset.hpp>

#include <array>
#include <span>

namespace tensorpull {

/// `Hash` computes digests of chunks and subsets; `Lock` is no_lock or a mutex with relax(); `Limits` caps what one peer may cause.
template <hash Hash, class Limits = default_limits, class Lock = no_lock>
class owner : public publication_table<Lock> {
  using table = publication_table<Lock>;
  using table::find;
  using table::lock_;
  using table::slots_;

 public:
  using link = serve_table<Limits>;
  static constexpr bool owns = true;
  /// Answers that one connection may have waiting: a full window, and what is refused or confirmed meanwhile.
  static constexpr std::size_t waiting_replies = Limits::pipelined_requests + 2;

  /// `slots`: memory for the publications, borrowed, as long as the owner lives. `random(): uint64` must be unguessable.
  template <class Random>
  owner(std::span<publication> slots, Random random) noexcept : table(slots), nonces_{random(), random()} {}

  /// Answers one request. False: nothing is to be sent (a cancellation). Locate requests are answered by locate().
  bool handle(link& peer, const message& m, pending_reply& out) noexcept {
    const hold_lock hold(lock_);
    out = {message_kind::refused, status::bad_request, m.id, 0, 0, 0, m.ref, m.version, m.offset, 0, 0};
    publication* const slot = find(m.ref);
    if (slot == nullptr) return refuse(out, status::unknown_reference);
    if (m.kind == message_kind::confirm || m.kind == message_kind::cancel) return settle(peer, *slot, m, out);
    if (slot->now == publication::state::withdrawn) return refuse(out, status::withdrawn);
    const std::uint64_t expected = m.version;
    out.version = slot->version;
    if (expected != 0 && expected != slot->version) return refuse(out, status::stale);
    out.slot = static_cast<std::uint32_t>(slot - slots_.data());
    out.generation = slot->generation;
    serve* const entry = use(peer, *slot);
    if (entry == nullptr) return refuse(out, status::busy);
    out.nonce = entry->nonce;
    switch (m.kind) {
      case message_kind::describe:  // a transfer begins, of the whole image unless a locate follows
        entry->subset = false;
        out.kind = message_kind::description;
        return true;
      case message_kind::schema: out.kind = message_kind::schema_page; return true;
      case message_kind::pull: return answer_pull(*slot, *entry, m, out);
      default: return refuse(out, status::unsupported);
    }
  }

  /// Answers a request for named tensors into `answer`, whose ranges lie in `ranges` (at least as many as there are names).
  void locate(link& peer, const message& m, std::span<byte_range> ranges, message& answer) noexcept {
    const hold_lock hold(lock_);
    answer = {};
    answer.kind = message_kind::refused;
    answer.id = m.id;
    answer.ref = m.ref;
    publication* const slot = find(m.ref);
    answer.status = slot == nullptr ? status::unknown_reference : slot->now == publication::state::withdrawn ? status::withdrawn : status::ok;
    if (answer.status != status::ok) return;
    answer.version = slot->version;
    if (m.version != 0 && m.version != slot->version) answer.status = status::stale;
    else if (m.names.empty() || m.names.size() > ranges.size()) answer.status = status::bad_request;
    if (answer.status != status::ok) return;
    serve* const entry = use(peer, *slot);
    if (entry == nullptr) {
      answer.status = status::busy;
      return;
    }
    const auto found = find_subset<Hash>(slot->image, m.names, ranges);
    if (!found) {
      answer.status = status::bad_request;
      answer.offset = found.error().at;
      return;
    }
    answer.kind = message_kind::located;
    answer.nonce = entry->nonce;
    answer.digest = entry->subset_digest = found->digest;
    answer.fingerprint = found->fingerprint;
    answer.ranges = ranges.first(m.names.size());
    entry->subset = true;
    entry->subset_end = 0;  // where the last byte that can be asked for ends
    for (std::size_t i = 0; i < m.names.size(); ++i)
      if (ranges[i].begin != ranges[i].end) entry->subset_end = ranges[i].end;
  }

  /// The connection is gone: what it had not finished is counted as lost.
  void forget(link& peer) noexcept {
    const hold_lock hold(lock_);
    peer.clear([this](const serve& s) {
      if (s.open() && slots_[s.slot].generation == s.generation) ++slots_[s.slot].counts.lost;
    });
  }

  /// The message behind a control answer. `rows` is memory for a schema page.
  message expand(const pending_reply& r, std::span<schema_row> rows) const noexcept {
    const hold_lock hold(lock_);
    const publication& p = slots_[r.slot];
    const bool there = p.generation == r.generation && p.now == publication::state::published;
    return expand_reply<Limits>(r, there ? &p : nullptr, rows);
  }

  /// Turns an answer that cannot be given any more into the refusal that says why.
  void refuse_gone(pending_reply& r) const noexcept {
    const hold_lock hold(lock_);
    const publication& p = slots_[r.slot];
    const bool again = p.now == publication::state::published && p.id == r.ref;
    refuse(r, again ? status::stale : status::withdrawn);
    if (again) r.version = p.version;
  }

 private:
  /// The connection's entry for a publication. nullptr: it has too many transfers open.
  serve* use(link& peer, publication& slot) noexcept {
    const auto gone = [this](const serve& s) { return slots_[s.slot].generation != s.generation; };
    const auto number = static_cast<std::uint32_t>(&slot - slots_.data());
    return peer.acquire(number, slot.generation, gone, [&](bool again) { return slot.counts.acquired += again ? 0 : 1, nonce(); });
  }

  bool answer_pull(publication& slot, serve& entry, const message& m, pending_reply& out) noexcept {
    const image_schema& schema = *slot.image.schema;
    if (m.fingerprint != 0 && m.fingerprint != schema.fingerprint) return refuse(out, status::schema_mismatch);
    if (m.offset > schema.image_bytes) return refuse(out, status::out_of_range);
    const std::uint64_t left = schema.image_bytes - m.offset;
    if (left == 0) return out.kind = message_kind::end, true;
    if (m.length == 0) return refuse(out, status::bad_request);
    out.kind = message_kind::chunk;
    out.length = static_cast<std::uint32_t>(std::min(std::min<std::uint64_t>(m.length, left), std::min(Limits::chunk_cap_bytes, max_payload_bytes)));
    const std::uint64_t end = m.offset + out.length;
    if (end == schema.image_bytes || (entry.subset && end >= entry.subset_end)) entry.provisional = true;
    if (m.flag) out.digest = range_digest<Hash>(slot.image, m.offset, out.length);
    return true;
  }

  /// A confirmation counts once, for the serve whose nonce it repeats, after that serve reached the end. Anything else changes nothing.
  bool settle(link& peer, publication& slot, const message& m, pending_reply& out) noexcept {
    const auto number = static_cast<std::uint32_t>(&slot - slots_.data());
    serve* const entry = peer.find(number, slot.generation, m.nonce);
    if (entry == nullptr) return m.kind == message_kind::confirm && refuse(out, slot.now == publication::state::withdrawn ? status::withdrawn : status::bad_request);
    out.kind = message_kind::confirmed;
    out.nonce = m.nonce;
    out.version = slot.version;
    if (entry->final) return m.kind == message_kind::confirm && (out.status = status::already_final, true);
    if (m.kind == message_kind::cancel) {
      entry->final = true;
      recount(slot.counts, *entry, serve::count::cancelled);
      return false;
    }
    const bool nothing_to_serve = entry->subset && entry->subset_end == 0;
    if (!entry->provisional && !nothing_to_serve) return refuse(out, status::bad_request);
    entry->final = true;
    out.status = status::ok;
    const std::uint64_t published = entry->subset ? entry->subset_digest : slot.version;
    if (!m.flag || !(slot.verifiable || entry->subset)) recount(slot.counts, *entry, serve::count::completed_unverified);
    else if (m.digest == published) recount(slot.counts, *entry, serve::count::completed);
    else recount(slot.counts, *entry, serve::count::failed), out.status = status::digest_mismatch;
    return true;
  }
  static void recount(publication_status& counts, serve& entry, serve::count now) noexcept {
    const auto counter = [&](serve::count c) -> std::uint32_t& {
      return c == serve::count::completed ? counts.completed : c == serve::count::completed_unverified ? counts.completed_unverified
             : c == serve::count::failed  ? counts.failed    : counts.cancelled;
    };
    if (entry.counted != serve::count::none) --counter(entry.counted);
    ++counter(now);
    entry.counted = now;
  }

  /// splitmix64 over an unguessable start: a nonce tells serves apart, it does not authenticate.
  std::uint64_t nonce() noexcept {
    std::uint64_t z = nonces_[0] += nonces_[1] | 1;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return z != 0 ? z : 1;
  }

  std::uint64_t nonces_[2];
};

}  // namespace tensorpull
