// Virtual time: one clock that only the simulation moves, and the queue of what will happen. Equal times keep the order of their making,
// so nothing depends on addresses or on the machine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace tensorpull::testing {

/// Microseconds since the simulation began.
class virtual_clock {
 public:
  std::uint64_t now() const noexcept { return now_; }
  /// Never goes back.
  void advance_to(std::uint64_t at_us) noexcept { now_ = std::max(now_, at_us); }

 private:
  std::uint64_t now_ = 0;
};

/// `Event` is a small value. Popping moves the clock.
template <class Event>
class event_queue {
 public:
  explicit event_queue(virtual_clock& clock) noexcept : clock_(clock) {}

  void at(std::uint64_t at_us, const Event& what) {
    heap_.push_back({std::max(at_us, clock_.now()), order_++, what});
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  void after(std::uint64_t delay_us, const Event& what) { at(clock_.now() + delay_us, what); }

  std::optional<Event> pop() noexcept {
    if (heap_.empty()) return std::nullopt;
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const entry e = heap_.back();
    heap_.pop_back();
    clock_.advance_to(e.at_us);
    return e.what;
  }

 private:
  struct entry {
    std::uint64_t at_us, order;
    Event what;
  };
  static bool later(const entry& a, const entry& b) noexcept { return a.at_us != b.at_us ? a.at_us > b.at_us : a.order > b.order; }

  virtual_clock& clock_;
  std::vector<entry> heap_;
  std::uint64_t order_ = 0;
};

}  // namespace tensorpull::testing
