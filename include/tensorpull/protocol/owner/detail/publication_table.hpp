// Which image is published under which reference.
#pragma once

#include <tensorpull/protocol/owner/owner_memory.hpp>

#include <cstdint>
#include <span>

namespace tensorpull::detail {

/// The slots of what is, or was last, published. At most one slot is published under an ID, beside one that was
/// replaced and stays for those who have begun with it. Not thread-safe: the owner has the lock.
class publication_table {
 public:
  explicit publication_table(std::span<publication> slots) noexcept : slots_(slots) {}

  std::span<publication> all() const noexcept { return slots_; }
  publication& at(std::uint32_t i) const noexcept { return slots_[i]; }
  std::uint32_t index(const publication& p) const noexcept { return static_cast<std::uint32_t>(&p - slots_.data()); }

  /// The publication under a key, or else what stays if it is of the version that is named, or else the latest that
  /// was; nullptr: nothing is known under it.
  publication* find(publication_key which) const noexcept {
    publication* last = nullptr;
    const auto stays = [which](const publication& p) {
      return which.version != 0 && p.now == publication::state::published;
    };
    for (publication& p : slots_) {
      // an ID is a key: how long this takes does not say how much of one is right
      const std::uint64_t differs = (p.id.high ^ which.id.high) | (p.id.low ^ which.id.low);
      if (p.now == publication::state::empty || differs != 0) continue;
      if (which.version != 0 && which.version != p.version) continue;
      if (p.now == publication::state::published && !p.replaced) return &p;
      if (last == nullptr || (stays(p) != stays(*last) ? stays(p) : p.order > last->order)) last = &p;
    }
    return last;
  }
  /// The publication that was replaced under this ID and stays; nullptr: there is none.
  publication* replaced(const ref_id& id) const noexcept {
    for (publication& p : slots_)
      if (p.replaced && p.now == publication::state::published && p.id == id) return &p;
    return nullptr;
  }
  /// Whether the publication that a reply or a digest is of is not published any more.
  template <class Of>
  bool gone(const Of& of) const noexcept {
    const publication& p = slots_[of.slot];
    return p.generation != of.generation || p.now != publication::state::published;
  }

  /// An empty slot, or else the oldest that is over, not read, and not `needed(publication)`; nullptr: there is none.
  template <class Needed>
  publication* vacant(Needed needed) const noexcept {
    publication* candidate = nullptr;
    for (publication& p : slots_) {
      if (p.now == publication::state::empty) return &p;
      const bool over = p.now == publication::state::withdrawn && p.pins == 0 && !needed(p);
      if (over && (candidate == nullptr || p.order < candidate->order)) candidate = &p;
    }
    return candidate;
  }
  /// Publishes an image in a slot that is vacant.
  void occupy(publication& slot, const transaction_image& image, bool verifiable, transaction_id in,
              bool beside = false) noexcept {
    slot = {
        .id = image.as.id,
        .image = image.image,
        .version = image.as.version,
        .order = ++orders_,
        .transaction = in,
        .generation = slot.generation + 1,
        .now = publication::state::published,
        .verifiable = verifiable,
        .beside = beside,
        .tensors = static_cast<std::uint32_t>(image.image.schema->tensor_count),
        .image_bytes = image.image.schema->image_bytes,
    };
  }

 private:
  std::span<publication> slots_;
  std::uint64_t orders_ = 0;
};

}  // namespace tensorpull::detail
