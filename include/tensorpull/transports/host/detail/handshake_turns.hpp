// The order in which connections shake hands with a host, where only so many may at a time.
#pragma once

#include <tensorpull/std/chrono.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace tensorpull::detail {

/// Each address has as many handshakes as any other, as far as it wants them. The caller has the lock.
class handshake_turns {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  /// Of one connection, which may not move or go from begins() to ends().
  class turn {
   public:
    /// `neighbours`: as neighbours_of.
    explicit turn(std::uint8_t neighbours) noexcept : neighbours_(neighbours) {}
    /// As it was given.
    std::uint8_t neighbours() const noexcept { return neighbours_; }

   private:
    friend handshake_turns;
    turn *older_ = nullptr, *newer_ = nullptr;
    time_point since_{};  // it shakes hands
    std::uint8_t neighbours_;
    bool known_ = false, shakes_ = false;
  };

  /// How many may shake hands at a time.
  explicit handshake_turns(std::size_t most) noexcept : most_(most) {}

  /// Whether it shakes hands. If not, it waits until ends() gives it.
  bool begins(turn& t, time_point now) noexcept {
    if (t.known_) return t.shakes_;
    t.known_ = true;
    t.older_ = newest_;
    (newest_ != nullptr ? newest_->newer_ : oldest_) = &t;
    newest_ = &t;
    ++waiting_of_[t.neighbours_];
    if (shaking_ < most_) shake(t, now);
    return t.shakes_;
  }
  /// It neither shakes hands nor waits any more. The one that does instead, of those that wait the oldest of the
  /// address that has the fewest; nullptr: nobody.
  turn* ends(turn& t, time_point now) noexcept {
    if (!t.known_) return nullptr;
    (t.older_ != nullptr ? t.older_->newer_ : oldest_) = t.newer_;
    (t.newer_ != nullptr ? t.newer_->older_ : newest_) = t.older_;
    const bool shook = t.shakes_;
    --(shook ? of_ : waiting_of_)[t.neighbours_];
    shaking_ -= shook;
    t = turn(t.neighbours_);
    turn* next = nullptr;
    if (!shook) return next;
    for (turn* w = oldest_; w != nullptr; w = w->newer_)
      if (!w->shakes_ && (next == nullptr || of_[w->neighbours_] < of_[next->neighbours_])) next = w;
    if (next != nullptr) shake(*next, now);
    return next;
  }
  /// Calls `end(turn)` for those that are ended, the oldest first, because others wait whose address has no more.
  template <class End>
  void make_room(time_point now, End end) const noexcept {
    auto of = of_, waiting_of = waiting_of_;
    for (turn* t = oldest_; t != nullptr; t = t->newer_) {
      if (!t->shakes_ || now - t->since_ < courtesy) continue;
      std::size_t least = of.size();
      for (std::size_t i = 0; i < of.size(); ++i)
        if (waiting_of[i] > 0 && (least == of.size() || of[i] < of[least])) least = i;
      if (least == of.size()) return;
      if (of[least] > of[t->neighbours_]) continue;
      --of[t->neighbours_];
      ++of[least];
      --waiting_of[least];
      end(*t);
    }
  }

 private:
  /// How long a handshake may take while others wait: several round trips, and a second for a packet that is lost.
  static constexpr std::chrono::seconds courtesy{3};

  void shake(turn& t, time_point now) noexcept {
    t.shakes_ = true;
    t.since_ = now;
    --waiting_of_[t.neighbours_];
    ++of_[t.neighbours_];
    ++shaking_;
  }

  std::size_t most_, shaking_ = 0;
  turn *oldest_ = nullptr, *newest_ = nullptr;
  std::array<std::uint32_t, 256> of_{}, waiting_of_{};  // by neighbours
};

}  // namespace tensorpull::detail
