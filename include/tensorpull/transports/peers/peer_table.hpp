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

/// When a peer loses its entry, on the monotonic clock. Afterwards it counts as a newcomer; a recipient that returns
/// goes on where it was.
struct peer_budgets {
  /// A newcomer that has not asked for anything that is published.
  std::chrono::milliseconds accept = std::chrono::seconds(10);
  /// Any peer that has not asked for anything that is published for so long, nor confirmed, nor sent a message that was
  /// taken.
  std::chrono::milliseconds idle = std::chrono::seconds(60);
  /// The same two while others find the table full. A peer that has made progress within this time is never pushed out.
  std::chrono::milliseconds accept_if_full = std::chrono::seconds(1);
  /// As above.
  std::chrono::milliseconds idle_if_full = std::chrono::seconds(3);
};

/// A table of at most `capacity` peers, found by address. All its memory is one allocation, made by make(). `Peer` is
/// the record of each; it need not be movable, and stays at its address as long as it is in the table. Peers that have
/// made progress and newcomers are two queues, each with the one first that has been silent for longest, so that each
/// call costs the same however many there are, unless addresses were chosen so that their hashes collide: only proved
/// addresses are in the table, and the cost is at most one comparison for each.
template <class Address, class Peer>
class peer_table {
 public:
  using time_point = std::chrono::steady_clock::time_point;  ///< of the clock that the driver hands in

  /// One peer.
  class entry {
   public:
    /// Where it is.
    const Address& address() const noexcept { return address_; }
    /// Whether it has made progress since it began.
    bool known() const noexcept { return known_; }
    Peer peer;  ///< what is kept of it

   private:
    friend peer_table;
    friend detail::linked_queue<entry>;
    template <class... Arguments>
    explicit entry(const Address& a, time_point now, Arguments&&... arguments)
        : peer(std::forward<Arguments>(arguments)...), address_(a), progress_(now) {}
    Address address_;
    time_point progress_;
    entry *before_ = nullptr, *after_ = nullptr, *chain_ = nullptr;
    bool known_ = false;
  };
  /// Bytes of memory for each peer.
  static constexpr std::size_t peer_bytes = sizeof(entry) + 2 * sizeof(entry*);

  /// Allocates the memory. A table without memory has room for nobody: see has_memory().
  peer_table(std::size_t capacity, const peer_budgets& budgets) noexcept
      : budgets_(budgets), capacity_(capacity), mask_(std::bit_ceil(capacity + 1) - 1),
        memory_(
            static_cast<slot*>(::operator new(capacity * sizeof(slot), std::align_val_t{alignof(slot)}, std::nothrow))),
        buckets_(mask_ + 1) {
    if (memory_ == nullptr) return;
    for (std::size_t i = capacity; i > 0; --i) free_ = new (&memory_[i - 1]) slot{.next = free_};
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
  /// A new peer at an address that has none. `gone(entry)` is called for a peer that has to make room. nullptr: the
  /// table is full of peers that are not old enough; tell this one that we are busy.
  template <class Gone, class... Arguments>
  entry* admit(const Address& a, time_point now, Gone gone, Arguments&&... arguments) noexcept {
    if (free_ == nullptr) {
      entry* const out = goes_first(now);
      if (out == nullptr) return nullptr;
      ++pushed_out_;
      gone(*out);
      remove(*out);
    }
    slot* const s = std::exchange(free_, free_->next);
    entry* const e = new (s) entry(a, now, std::forward<Arguments>(arguments)...);
    entry*& head = buckets_.data()[bucket(a)];
    e->chain_ = std::exchange(head, e);
    newcomers_.append(*e);
    ++size_;
    return e;
  }
  /// The peer has sent something that counts.
  void progressed(entry& e, time_point now) noexcept {
    (e.known_ ? known_ : newcomers_).take_out(e);
    e.known_ = true;
    e.progress_ = now;
    known_.append(e);
  }
  /// Ends peers whose budget is spent, at most `most` of them; `gone(entry)` is called for each. Call it several times
  /// a second.
  template <class Gone>
  void age(time_point now, std::size_t most, Gone gone) noexcept {
    const auto end = [&](queue& q, std::chrono::milliseconds budget) {
      for (; most > 0 && is_silent(q.first, now, budget); --most) {
        gone(*q.first);
        remove(*q.first);
      }
    };
    end(newcomers_, budgets_.accept);
    end(known_, budgets_.idle);
  }
  /// Calls `look(entry)` for each.
  template <class Look>
  void for_each(Look look) noexcept {
    for (entry* e = newcomers_.first; e != nullptr; e = e->after_) look(*e);
    for (entry* e = known_.first; e != nullptr; e = e->after_) look(*e);
  }
  /// Ends one.
  void remove(entry& e) noexcept {
    (e.known_ ? known_ : newcomers_).take_out(e);
    entry** at = &buckets_.data()[bucket(e.address_)];
    while (*at != &e) at = &(*at)->chain_;
    *at = e.chain_;
    e.~entry();
    free_ = new (&e) slot{.next = free_};
    --size_;
  }
  /// Ends all.
  void clear() noexcept {
    while (newcomers_.first != nullptr) remove(*newcomers_.first);
    while (known_.first != nullptr) remove(*known_.first);
  }

 private:
  union slot {
    slot* next;
    alignas(entry) std::byte memory[sizeof(entry)];
  };
  using queue = detail::linked_queue<entry>;

  std::size_t bucket(const Address& a) const noexcept { return static_cast<std::size_t>(a.hash()) & mask_; }
  /// The peer that makes room for another; nullptr: none is old enough.
  entry* goes_first(time_point now) const noexcept {
    if (is_silent(newcomers_.first, now, budgets_.accept_if_full)) return newcomers_.first;
    return is_silent(known_.first, now, budgets_.idle_if_full) ? known_.first : nullptr;
  }
  static bool is_silent(const entry* e, time_point now, std::chrono::milliseconds budget) noexcept {
    return e != nullptr && detail::has_passed(now - e->progress_, budget);
  }

  peer_budgets budgets_;
  std::size_t capacity_, mask_, size_ = 0;
  slot *memory_, *free_ = nullptr;
  detail::heap_array<entry*> buckets_;
  queue newcomers_, known_;
  std::uint64_t pushed_out_ = 0;
};

}  // namespace tensorpull
