// How an image is put under a reference, and taken away.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/protocol/owner/detail/transaction_table.hpp>
#include <tensorpull/std/mutex.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tensorpull::detail {

/// Tells no progress events.
struct tells_nobody {
  bool operator()() const noexcept { return false; }
};

/// Publishes and withdraws. An error leaves everything as it was; and once a call has returned without one, nothing
/// reads an image that it took away. The caller has the owner's lock, which is released while others are awaited that
/// read such an image, and while the program is told how recipients have ended.
template <class Lock>
class placement {
 public:
  placement(transaction_table& transactions, Lock& lock) noexcept : transactions_(transactions), lock_(lock) {}

  /// As owner::publish.
  template <class Tell>
  result<ref_id> publish(const transaction_image& image, bool verifiable, transaction_id in, Tell tell,
                         bool beside = false, bool replaced_stays = false) noexcept {
    const ref_id id = image.as.id;
    if (!id || image.as.version == 0) return failure(errc::invalid_argument);
    for (;;) {
      publication* const old = slots().find(id);
      if (const auto ok = room().admits(in, old, beside); !ok) return failure(ok.error());
      // not the old one's, if there is another: its transaction still has to tell how its recipients ended
      publication* slot = vacant();
      if (slot == nullptr && old != nullptr && !room().shares(*old)) slot = old;
      if (slot == nullptr) return failure(errc::table_full, slots().all().size());
      const bool may_stay = replaced_stays && old != nullptr && slot != nullptr && slot != old &&
                            old->version != image.as.version && slots().replaced(id) == nullptr &&
                            room().admits(in, nullptr, beside).has_value();
      if (old != nullptr && !may_stay && pinned_here(*old)) return failure(errc::busy);
      if (told(in, beside ? 0 : 1, tell)) continue;
      const bool there = old != nullptr && old->now == publication::state::published;
      const bool stays = there && may_stay && transactions_.stays(*old);
      if (there && !stays) {
        if (pinned_here(*old)) return failure(errc::busy);
        transactions_.take(*old);  // nobody pins it anew while we wait
      }
      if (slot == old && await_unpinned(*old)) continue;  // everything may have changed after a wait
      occupy(*slot, image, verifiable, in, beside);
      if (old != nullptr && !stays) await_unpinned(*old);
      return id;
    }
  }
  /// As owner::publish_all.
  template <class Images, class Tell>
  result<void> publish_all(const Images& images, bool verifiable, transaction_id in, Tell tell) noexcept {
    do {
      if (const auto ok = room().admits_all(in, images); !ok) return ok;
    } while (told(in, images.size(), tell));
    for (std::size_t i = 0; i < images.size(); ++i)
      if (const publication* const old = slots().find(images[i].as.id); old != nullptr && pinned_here(*old))
        return failure(errc::busy, i);
    for (std::size_t i = 0; i < images.size(); ++i)  // all, so that a transaction that ends by that makes room
      if (publication* const old = slots().find(images[i].as.id);
          old != nullptr && old->now == publication::state::published)
        transactions_.take(*old);
    for (std::size_t i = 0; i < images.size(); ++i)
      // there is a slot: admits_all has counted them, and what is taken keeps its own; the records were counted, too
      occupy(*vacant(), images[i], verifiable, in);
    for (publication& p : slots().all()) {
      if (p.pins == 0 || p.now != publication::state::withdrawn) continue;
      for (std::size_t k = 0; k < images.size(); ++k)
        if (images[k].as.id == p.id) await_unpinned(p);
    }
    return {};
  }
  /// Ends all that is published under a key by `take(publication)`: also what was replaced and stays. Gives the
  /// transaction of the latest. Errors: as owner::withdraw.
  template <class Take>
  result<transaction_id> end(publication_key which, Take take) noexcept {
    const publication* const last = slots().find(which);
    if (last == nullptr) return failure(errc::unknown_reference);
    const transaction_id of = last->transaction;
    const auto meant = [which](const publication& p) {
      return p.now != publication::state::empty && p.id == which.id &&
             (which.version == 0 || which.version == p.version);
    };
    for (const publication& p : slots().all())
      if (meant(p) && pinned_here(p)) return failure(errc::busy);
    for (publication& p : slots().all())  // the same content may be there twice: what stays, and what is the newest
      if (meant(p) && p.now == publication::state::published) take(p);
    for (publication& p : slots().all())
      if (meant(p) && p.now == publication::state::withdrawn) await_unpinned(p);
    return of;
  }

 private:
  publication_table& slots() noexcept { return transactions_.publications; }
  table_room room() noexcept { return table_room(transactions_); }
  publication* vacant() noexcept {
    return slots().vacant([this](const publication& p) { return room().needs(p); });
  }
  void occupy(publication& slot, const transaction_image& image, bool verifiable, transaction_id in,
              bool beside = false) noexcept {
    slots().occupy(slot, image, verifiable, in, beside);
    if (!beside) transactions_.attach(slot);
  }
  /// Has it told how recipients have ended whose records are needed by so many references that join. True: there was
  /// something to tell, so everything may have changed.
  template <class Tell>
  bool told(transaction_id in, std::size_t references, Tell& tell) noexcept {
    const transaction* const t = transactions_.find(in);
    if (t == nullptr || !room().forgets_ends(std::uint64_t{references} * t->options.named.size())) return false;
    lock_.unlock();
    const bool any = tell();
    lock_.lock();
    return any;
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

  transaction_table& transactions_;
  Lock& lock_;
};

}  // namespace tensorpull::detail
