// The peers of an end that serves many over one link. Nobody sends a goodbye on such a link, so peers age.
#pragma once

#include <tensorpull/core/detail/linked_queue.hpp>
#include <tensorpull/links/posix/wait.hpp>
#include <tensorpull/std/chrono.hpp>
#include <tensorpull/std/memory.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

namespace tensorpull {

/// When a peer loses its entry, on the monotonic clock. A recipient that returns goes on where it was.
struct peer_budgets {
  /// A peer that has not asked for anything that is published for so long, nor confirmed, nor sent a message that was
  /// taken.
  std::chrono::milliseconds idle = std::chrono::seconds(60);
  /// The same while others find the table full. A peer that has made progress within this time is never pushed out.
  std::chrono::milliseconds idle_if_full = std::chrono::seconds(3);
};

/// A table of at most `capacity` peers, found by address. All its memory is one allocation. `Peer` is the record of
/// each; it need not be movable, and stays at its address as long as it is in the table. Only peers that have made
/// progress count. They are a queue, with the one first that has been silent for longest, so that each call costs the
/// same however many there are, unless addresses were chosen so that their hashes collide: only proved addresses are in
/// the table, and the cost is at most one comparison for each.
template <class Address, class Peer>
class peer_table {
 public:
  using time_point = std::chrono::steady_clock::time_point;  ///< of the clock that the driver hands in

  /// One peer.
  class entry {
   public:
    /// Where it is.
    const Address& address() const noexcept { return address_; }
    Peer peer;  ///< what is kept of it

   private:
    friend peer_table;
    friend detail::linked_queue<entry>;
    template <class... Arguments>
    explicit entry(const Address& a, Arguments&&... arguments)
        : peer(std::forward<Arguments>(arguments)...), address_(a) {}
    Address address_;
    time_point progress_{};
    entry *before_ = nullptr, *after_ = nullptr, *chain_ = nullptr;
    bool counts_ = false;
  };
  /// Bytes of memory for each peer.
  static constexpr std::size_t peer_bytes = sizeof(entry) + 2 * sizeof(entry*);

  /// Allocates the memory. A table without memory has room for nobody: see has_memory().
  peer_table(std::size_t capacity, const peer_budgets& budgets) noexcept
      : budgets_(budgets), capacity_(capacity), mask_(std::bit_ceil(capacity + 1) - 1),
        memory_(static_cast<slot*>(
            ::operator new((capacity + 1) * sizeof(slot), std::align_val_t{alignof(slot)}, std::nothrow))),
        buckets_(mask_ + 1) {
    if (memory_ == nullptr) return;
    for (std::size_t i = capacity + 1; i > 0; --i) free_ = new (&memory_[i - 1]) slot{.next = free_};
  }
  peer_table(peer_table&&) = delete;
  ~peer_table() {
    clear();
    ::operator delete(memory_, std::align_val_t{alignof(slot)});
  }

  /// Whether the constructor has got its memory.
  bool has_memory() const noexcept { return memory_ != nullptr && buckets_.size() > 0; }
  /// How many peers there are.
  std::size_t size() const noexcept { return size_; }
  /// How many there may be.
  std::size_t capacity() const noexcept { return capacity_; }
  /// How many had to make room for others.
  std::uint64_t pushed_out() const noexcept { return pushed_out_; }

  /// The peer at an address; nullptr: there is none.
  entry* find(const Address& a) noexcept {
    for (entry* e = buckets_.data()[bucket(a)]; e != nullptr; e = e->chain_)
      if (e->address_ == a) return e;
    return nullptr;
  }
  /// A new peer at an address that has none. It does not count yet: call progressed() or remove() before the next
  /// admit(). nullptr: the table is full of peers that are not old enough; tell this one that we are busy.
  template <class... Arguments>
  entry* admit(const Address& a, time_point now, Arguments&&... arguments) noexcept {
    if (size_ == capacity_ && !is_silent(peers_.first, now, budgets_.idle_if_full)) return nullptr;
    slot* const s = std::exchange(free_, free_->next);
    entry* const e = new (s) entry(a, std::forward<Arguments>(arguments)...);
    entry*& head = buckets_.data()[bucket(a)];
    e->chain_ = std::exchange(head, e);
    return e;
  }
  /// The peer has sent something that counts. If it is new and the table is full, the peer that has been silent for
  /// longest makes room: `gone(entry)` is called for it.
  template <class Gone>
  void progressed(entry& e, time_point now, Gone gone) noexcept {
    if (e.counts_) {
      peers_.take_out(e);
    } else {
      if (size_ == capacity_) {
        ++pushed_out_;
        gone(*peers_.first);
        remove(*peers_.first);
      }
      e.counts_ = true;
      ++size_;
    }
    e.progress_ = now;
    peers_.append(e);
  }
  /// Ends peers whose budget is spent, at most `most` of them; `gone(entry)` is called for each. Call it several times
  /// a second.
  template <class Gone>
  void age(time_point now, std::size_t most, Gone gone) noexcept {
    for (; most > 0 && is_silent(peers_.first, now, budgets_.idle); --most) {
      gone(*peers_.first);
      remove(*peers_.first);
    }
  }
  /// Calls `look(entry)` for each.
  template <class Look>
  void for_each(Look look) noexcept {
    for (entry* e = peers_.first; e != nullptr; e = e->after_) look(*e);
  }
  /// Ends one.
  void remove(entry& e) noexcept {
    if (e.counts_) {
      peers_.take_out(e);
      --size_;
    }
    entry** at = &buckets_.data()[bucket(e.address_)];
    while (*at != &e) at = &(*at)->chain_;
    *at = e.chain_;
    e.~entry();
    free_ = new (&e) slot{.next = free_};
  }
  /// Ends all.
  void clear() noexcept {
    while (peers_.first != nullptr) remove(*peers_.first);
  }

 private:
  union slot {
    slot* next;
    alignas(entry) std::byte memory[sizeof(entry)];
  };

  std::size_t bucket(const Address& a) const noexcept { return static_cast<std::size_t>(a.hash()) & mask_; }
  static bool is_silent(const entry* e, time_point now, std::chrono::milliseconds budget) noexcept {
    return e != nullptr && detail::has_passed(now - e->progress_, budget);
  }

  peer_budgets budgets_;
  std::size_t capacity_, mask_, size_ = 0;
  slot *memory_, *free_ = nullptr;
  detail::heap_array<entry*> buckets_;
  detail::linked_queue<entry> peers_;
  std::uint64_t pushed_out_ = 0;
};

}  // namespace tensorpull
