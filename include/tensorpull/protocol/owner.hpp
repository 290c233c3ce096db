// The owner's state machine: publications, and answers to requests about them. No I/O, no clock, no heap: slots, random numbers and the
// lock are handed in. It gives payloads as ranges of an image; the endpoint turns them into spans when the transport can take them.
#pragma once

#include <tensorpull/core/checked.hpp>
#include <tensorpull/core/limits.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/image/gather.hpp>
#include <tensorpull/integrity/concept.hpp>
#include <tensorpull/protocol/lock.hpp>
#include <tensorpull/protocol/messages.hpp>
#include <tensorpull/protocol/publication.hpp>
#include <tensorpull/protocol/serve_table.hpp>
#include <tensorpull/protocol/subset.hpp>

#include <algorithm>
#include <array>
#include <span>

namespace tensorpull {

/// An answer that waits to be sent: enough to write its frame again at any time, since a partly sent frame is produced anew.
struct pending_reply {
  message_kind kind = message_kind::nothing;
  tensorpull::status status = status::ok;
  std::uint32_t id = 0;
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  std::uint32_t length = 0;
  ref_id ref{};
  std::uint64_t version = 0;
  std::uint64_t offset = 0;
  std::uint64_t nonce = 0;
  std::uint64_t digest = 0;
};

/// `Hash` computes digests of chunks and subsets; `Lock` is no_lock or a mutex with relax(); `Limits` caps what one peer may cause.
template <hash Hash, class Limits = default_limits, class Lock = no_lock>
class owner {
 public:
  using link = serve_table<Limits>;
  using lock_type = Lock;
  /// Answers that one connection may have waiting: a full window, and what is refused or confirmed meanwhile.
  static constexpr std::size_t waiting_replies = Limits::pipelined_requests + 2;

  /// `slots`: memory for the publications, borrowed, as long as the owner lives. `random(): uint64` must be unguessable.
  template <class Random>
  owner(std::span<publication> slots, Random random) noexcept : slots_(slots), nonces_{random(), random()} {}

  /// Publishes an image. The memory behind it must not change or go away until withdraw() or settlement.
  /// `version`: XXH3-64 of the image where `verifiable`, otherwise random; not 0. table_full: no slot is free.
  result<ref_id> publish(const source_view& image, std::uint64_t version, bool verifiable, ref_id id, std::uint32_t recipients) noexcept {
    const hold_lock hold(lock_);
    if (!id || version == 0) return failure(errc::invalid_argument);
    publication* slot = find(id);
    if (slot == nullptr) slot = vacant();
    if (slot == nullptr) return failure(errc::table_full, slots_.size());
    await_unpinned(*slot);
    *slot = {id, image, version, {}, slot->generation + 1, recipients, 0, publication::state::published, verifiable};
    return id;
  }

  /// After this returns nothing reads the image's memory any more. Recipients are told `withdrawn`; the slot stays until it is needed.
  result<void> withdraw(ref_id id) noexcept {
    const hold_lock hold(lock_);
    publication* const slot = find(id);
    if (slot == nullptr || slot->now != publication::state::published) return failure(errc::unknown_reference);
    slot->now = publication::state::withdrawn;
    ++slot->generation;
    await_unpinned(*slot);
    slot->image = {};
    return {};
  }

  result<publication_status> status_of(ref_id id) const noexcept {
    const hold_lock hold(lock_);
    for (const publication& p : slots_)
      if (p.now != publication::state::empty && p.id == id) return p.counts;
    return failure(errc::unknown_reference);
  }

  /// Every expected recipient is final. False for an unknown number of recipients, and for an unknown reference.
  bool settled(ref_id id) const noexcept {
    const hold_lock hold(lock_);
    for (const publication& p : slots_)
      if (p.now != publication::state::empty && p.id == id) return p.recipients != 0 && p.counts.final() >= p.recipients;
    return false;
  }

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
    for (const byte_range& r : answer.ranges)
      if (r.begin != r.end) entry->subset_end = r.end;
  }

  /// The connection is gone: what it had not finished is counted as lost.
  void forget(link& peer) noexcept {
    const hold_lock hold(lock_);
    for (serve& s : peer.all())
      if (s.open() && slots_[s.slot].generation == s.generation) ++slots_[s.slot].counts.lost;
    peer.clear();
  }

  /// The image behind a chunk's answer, pinned so that withdraw() waits; nullptr if it is not published any more. Pair with unpin().
  const source_view* pin(const pending_reply& r) noexcept {
    const hold_lock hold(lock_);
    publication& p = slots_[r.slot];
    if (p.generation != r.generation || p.now != publication::state::published) return nullptr;
    ++p.pins;
    return &p.image;
  }
  void unpin(const pending_reply& r, std::uint64_t payload_bytes_sent) noexcept {
    const hold_lock hold(lock_);
    slots_[r.slot].counts.bytes_sent += payload_bytes_sent;
    --slots_[r.slot].pins;
  }

  /// The message behind a control answer. `rows` is memory for a schema page.
  message expand(const pending_reply& r, std::span<schema_row> rows) const noexcept {
    const hold_lock hold(lock_);
    message m;
    m.kind = r.kind;
    m.status = r.status;
    m.id = r.id;
    m.ref = r.ref;
    m.version = r.version;
    m.offset = r.offset;
    m.nonce = r.nonce;
    m.digest = r.digest;
    m.length = r.length;
    if (r.kind == message_kind::refused || r.kind == message_kind::confirmed || r.kind == message_kind::chunk) return m;
    const publication& p = slots_[r.slot];
    if (p.generation != r.generation || p.now != publication::state::published) {
      m.kind = message_kind::refused;
      m.status = status::withdrawn;
      return m;
    }
    const image_schema& schema = *p.image.schema;
    m.image_bytes = schema.image_bytes;
    m.tensors = schema.tensor_count;
    if (r.kind == message_kind::schema_page) {
      m.rows = schema_rows(schema, r.offset, rows, Limits::control_frame_bytes);
    } else if (r.kind == message_kind::description) {
      m.fingerprint = schema.fingerprint;
      m.data_start = schema.header_bytes;
      m.length = static_cast<std::uint32_t>(std::min(Limits::chunk_cap_bytes, max_payload_bytes));
      m.window = static_cast<std::uint16_t>(std::min<std::size_t>(Limits::pipelined_requests, Limits::window));
      m.flag = p.verifiable;
    }
    return m;
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
    return peer.acquire(static_cast<std::uint32_t>(&slot - slots_.data()), slot.generation, gone, [&] { return ++slot.counts.acquired, nonce(); });
  }
  static bool refuse(pending_reply& out, status why) noexcept {
    out.kind = message_kind::refused;
    out.status = why;
    return true;
  }

  bool answer_pull(publication& slot, serve& entry, const message& m, pending_reply& out) noexcept {
    const image_schema& schema = *slot.image.schema;
    if (m.fingerprint != 0 && m.fingerprint != schema.fingerprint) return refuse(out, status::schema_mismatch);
    if (m.offset > schema.image_bytes) return refuse(out, status::out_of_range);
    const std::uint64_t left = schema.image_bytes - m.offset;
    if (left == 0) return out.kind = message_kind::end, true;
    if (m.length == 0) return refuse(out, status::bad_request);
    out.kind = message_kind::chunk;
    out.length = static_cast<std::uint32_t>(std::min({std::uint64_t{m.length}, left, Limits::chunk_cap_bytes, max_payload_bytes}));
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
      ++slot.counts.cancelled;
      return false;
    }
    const bool nothing_to_serve = entry->subset && entry->subset_end == 0;
    if (!entry->provisional && !nothing_to_serve) return refuse(out, status::bad_request);
    entry->final = true;
    out.status = status::ok;
    const std::uint64_t published = entry->subset ? entry->subset_digest : slot.version;
    if (!m.flag || !(slot.verifiable || entry->subset)) ++slot.counts.completed_unverified;
    else if (m.digest == published) ++slot.counts.completed;
    else ++slot.counts.failed, out.status = status::digest_mismatch;
    return true;
  }

  publication* find(ref_id id) noexcept {
    for (publication& p : slots_)
      if (p.now != publication::state::empty && p.id == id) return &p;
    return nullptr;
  }
  /// An empty slot, or else the withdrawn one that nobody reads.
  publication* vacant() noexcept {
    publication* candidate = nullptr;
    for (publication& p : slots_) {
      if (p.now == publication::state::empty) return &p;
      if (p.now == publication::state::withdrawn && p.pins == 0) candidate = &p;
    }
    return candidate;
  }
  void await_unpinned(publication& p) noexcept {
    while (p.pins != 0) {  // only another thread's non-blocking send can hold a pin
      lock_.unlock();
      lock_.relax();
      lock_.lock();
    }
  }
  /// splitmix64 over an unguessable start: a nonce tells serves apart, it does not authenticate.
  std::uint64_t nonce() noexcept {
    std::uint64_t z = nonces_[0] += nonces_[1] | 1;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return z != 0 ? z : 1;
  }

  std::span<publication> slots_;
  std::array<std::uint64_t, 2> nonces_;
  [[no_unique_address]] mutable Lock lock_{};
};

}  // namespace tensorpull
