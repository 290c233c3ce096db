// Virtual time: a clock that only the simulation moves, and a queue of events. Events of the same time keep the order
// in which they were added, so nothing depends on addresses or on the machine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace tensorpull::testing {

/// The clock of one simulation.
class virtual_clock {
 public:
  /// Microseconds since the simulation began.
  std::uint64_t now() const noexcept { return now_; }
  /// Moves the clock to `at_us`; it never goes back.
  void advance_to(std::uint64_t at_us) noexcept { now_ = std::max(now_, at_us); }

 private:
  std::uint64_t now_ = 0;
};

/// A queue of events by time. `Event` is a small value. Borrows the clock; allocates for the events that it holds.
template <class Event>
class event_queue {
 public:
  /// Borrows the clock.
  explicit event_queue(virtual_clock& clock) noexcept : clock_(clock) {}

  /// Adds an event at `at_us`, or now if that time is past.
  void at(std::uint64_t at_us, const Event& what) {
    heap_.push_back({std::max(at_us, clock_.now()), order_++, what});
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  /// Adds an event `delay_us` microseconds from now.
  void after(std::uint64_t delay_us, const Event& what) { at(clock_.now() + delay_us, what); }

  /// Takes the next event and moves the clock to its time; nothing if there is none.
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
  static bool later(const entry& a, const entry& b) noexcept {
    return a.at_us != b.at_us ? a.at_us > b.at_us : a.order > b.order;
  }

  virtual_clock& clock_;
  std::vector<entry> heap_;
  std::uint64_t order_ = 0;
};

}  // namespace tensorpull::testing
