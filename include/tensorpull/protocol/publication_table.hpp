// What an owner has published: slots in memory that is handed in, under a lock that is handed in.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/protocol/lock.hpp>
#include <tensorpull/protocol/pending_reply.hpp>
#include <tensorpull/protocol/publication.hpp>

#include <span>
#include <type_traits>

namespace tensorpull {

template <class Lock = no_lock>
class publication_table {
 public:
  using lock_type = Lock;

  explicit publication_table(std::span<publication> slots) noexcept : slots_(slots) {}

  /// Publishes an image. The memory behind it must not change or go away until withdraw() or settlement.
  /// `version`: XXH3-64 of the image where `verifiable`, otherwise random; not 0. table_full: no slot is free; busy: called from
  /// within a callback while this very image is read.
  result<ref_id> publish(const source_view& image, std::uint64_t version, bool verifiable, ref_id id, std::uint32_t recipients) noexcept {
    const hold_lock hold(lock_);
    if (!id || version == 0) return failure(errc::invalid_argument);
    publication* slot = find(id);
    if (slot == nullptr) slot = vacant();
    if (slot == nullptr) return failure(errc::table_full, slots_.size());
    if (pinned_here(*slot)) return failure(errc::busy);
    slot->now = publication::state::withdrawn;  // nobody pins it anew while we wait
    await_unpinned(*slot);
    *slot = {id, image, version, {}, slot->generation + 1, recipients, 0, publication::state::published, verifiable};
    return id;
  }

  /// After this returns nothing reads the image's memory any more. busy: as above. Recipients are told `withdrawn`; the slot stays until it is needed.
  result<void> withdraw(ref_id id) noexcept {
    const hold_lock hold(lock_);
    publication* const slot = find(id);
    if (slot == nullptr || slot->now != publication::state::published) return failure(errc::unknown_reference);
    if (pinned_here(*slot)) return failure(errc::busy);
    slot->now = publication::state::withdrawn;
    ++slot->generation;
    await_unpinned(*slot);
    slot->image = {};
    return {};
  }

  result<publication_status> status_of(ref_id id) const noexcept {
    const hold_lock hold(lock_);
    if (const publication* const p = find(id); p != nullptr) return p->counts;
    return failure(errc::unknown_reference);
  }

  /// Every expected recipient is final. False for an unknown number of recipients, and for an unknown reference.
  bool settled(ref_id id) const noexcept {
    const hold_lock hold(lock_);
    const publication* const p = find(id);
    return p != nullptr && p->recipients != 0 && p->counts.final() >= p->recipients;
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

 protected:
  // The lock is held by whoever calls these.
  publication* find(ref_id id) const noexcept {
    for (std::size_t i = 0; i < slots_.size(); ++i)
      if (publication& p = slots_[i]; p.now != publication::state::empty && p.id == id) return &p;
    return nullptr;
  }
  /// An empty slot, or else the withdrawn one that nobody reads.
  publication* vacant() noexcept {
    publication* candidate = nullptr;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      publication& p = slots_[i];
      if (p.now == publication::state::empty) return &p;
      if (p.now == publication::state::withdrawn && p.pins == 0) candidate = &p;
    }
    return candidate;
  }
  /// Without threads a pin is our caller's: a consumer's callback runs while the memory that it is sent from is read. Waiting would
  /// never end.
  static constexpr bool pinned_here(const publication& p) noexcept { return std::is_same_v<Lock, no_lock> && p.pins != 0; }
  void await_unpinned(publication& p) noexcept {
    while (p.pins != 0) {  // only another thread's non-blocking send can hold a pin
      lock_.unlock();
      lock_.relax();
      lock_.lock();
    }
  }

  std::span<publication> slots_;
  [[no_unique_address]] mutable Lock lock_{};
};

}  // namespace tensorpull
