// Lets one thread at a time handle the events of an object, without a lock and without allocating. A thread that comes
// while another one is handling them leaves its event to that one and returns. (Asio's own strand allocates, and calls
// std::terminate if it cannot.)
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

namespace tensorpull::detail {

template <bool Threads>
class event_gate {
 public:
  using events = std::uint32_t;  ///< bits whose meaning the user chooses, except the highest

  /// Calls act(events) on this thread, or leaves the events to the thread that is already inside act(), which may be
  /// this one. act() sees what a thread wrote before it left an event.
  template <class Act>
  void pass(events what, Act act) noexcept {
    if (add(what | busy) & busy) return;
    do act(take());
    while (!leave());
  }

 private:
  static constexpr events busy = 1u << 31;

  events add(events what) noexcept {
    if constexpr (Threads) return state_.fetch_or(what, std::memory_order_acq_rel);
    const events before = state_;
    state_ = before | what;
    return before;
  }
  events take() noexcept {
    if constexpr (Threads) return state_.exchange(busy, std::memory_order_acq_rel) & ~busy;
    const events before = state_ & ~busy;
    state_ = busy;
    return before;
  }
  /// False: there are new events.
  bool leave() noexcept {
    events expected = busy;
    if constexpr (Threads) return state_.compare_exchange_strong(expected, 0, std::memory_order_acq_rel);
    if (state_ == busy) state_ = 0;
    return state_ == 0;
  }

  std::conditional_t<Threads, std::atomic<events>, events> state_{0};
};

}  // namespace tensorpull::detail
