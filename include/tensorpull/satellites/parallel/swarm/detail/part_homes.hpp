// Which member of a swarm asks the owner for which part, and who has which parts.
#pragma once

#include <tensorpull/core/splitmix64.hpp>
#include <tensorpull/satellites/parallel/swarm/detail/swarm_messages.hpp>
#include <tensorpull/std/chrono.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull::detail {

/// A member's knowledge of its group. Source 0 is the owner, and the others have the seats 1 to 15. It has no clock: it
/// is told the time.
///
/// Each part has a home, which asks the owner for it: the listed members take turns. If that one is gone, has lied, or
/// tells nothing new for too long, another has its turn, and as much time: the next by a hash of its number and the
/// part's, so that all others share its parts. Nobody waits in a circle: each waits for one that is before it in the
/// same order. Two that have different lists for a moment may wait for each other, until they lose patience.
class part_homes {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  static constexpr std::size_t most_parts = swarm::most_parts;
  static constexpr std::size_t seats = swarm::most_members;  ///< the owner's included
  static constexpr std::uint8_t owner = 0;

  /// A new pull. The members are forgotten.
  void begin(time_point now) noexcept {
    *this = {};
    begun_ = now_ = now;
  }
  /// The image has so many parts of 2^shift bytes.
  void cut(std::size_t parts, std::uint8_t shift, time_point now) noexcept {
    parts_ = std::min(parts, most_parts);
    own_ = {.shift = shift};
    begun_ = now_ = now;
    rank();
  }
  std::size_t parts() const noexcept { return parts_; }
  /// The parts that this member has, as it tells others.
  const swarm::parts& own() const noexcept { return own_; }
  bool has_all() const noexcept { return parts_ > 0 && own_count_ == parts_; }

  /// This member's number, by the door's word.
  void numbered(std::uint64_t self) noexcept {
    known_ = true;
    if (std::exchange(self_, self) != self) rank();
  }
  /// A member has a seat.
  void seat(std::uint8_t source, std::uint64_t number) noexcept {
    others_[source] = {.number = number, .since = now_, .heard = now_};
    rank();
  }
  /// It is no longer listed.
  void leave(std::uint8_t source) noexcept {
    if (source == owner || others_[source].number == 0) return;
    others_[source] = {};
    rank();
  }
  /// It is gone, or has lied. The others may not know that yet, so it stays in the order.
  void drop(std::uint8_t source) noexcept {
    member& m = others_[source];
    if (m.number == 0 || std::exchange(m.gone, true)) return;
    rank();
  }
  /// The number of the member on a seat; 0: nobody has it.
  std::uint64_t number_of(std::uint8_t source) const noexcept { return others_[source].number; }
  /// It tells what it has. Parts of another length are none of ours.
  void heard(std::uint8_t source, const swarm::parts& of) noexcept {
    member& m = others_[source];
    if (m.number == 0 || of.shift != own_.shift) return;
    bool news = false;
    for (std::size_t i = 0; i < of.proved.size(); ++i) {
      news = news || (of.proved[i] & ~m.has.proved[i]) != 0;
      m.has.proved[i] |= of.proved[i];  // nobody has less than before
    }
    if (!news) return;
    m.heard = now_;
    count_holders();
  }
  /// It does not give what it has told: after three times it is asked for nothing.
  void refused(std::uint8_t source) noexcept {
    ++others_[source].refusals;
    rank();
  }

  /// A part is right. `source`: who gave it.
  void right(std::uint8_t source, std::size_t part) noexcept {
    if (own_.has(part) || part >= parts_) return;
    own_.add(part);
    ++own_count_;
    if (source == owner) interval_ = (now_ - begun_) / ++from_owner_;
    if (is_ours_[part]) --left_;
  }
  /// Parts that each of so many lines asks for ahead: all of them together what a long path holds, and no more, since
  /// others may have a part before a busy one gives it. One while others arrive, whose parts these may be in a moment.
  std::size_t most_claimed(std::size_t lines) const noexcept {
    return now_ - begun_ < std::chrono::milliseconds(300)
               ? 1
               : std::max<std::size_t>(1, seats / std::max<std::size_t>(1, lines));
  }
  /// Tells it the time.
  void tick(time_point now) noexcept {
    now_ = now;
    if (now - ranked_ >= std::chrono::milliseconds(50)) rank();
  }

  /// Whether a source may be asked for a part that it has not begun: 0: it may not; of others more, the fewer of them
  /// have it, so that they need not ask each other for the same. `freed`: it was taken from one that was too slow.
  unsigned gives(std::uint8_t source, std::size_t part, bool freed) const noexcept {
    if (part >= parts_) return 0;
    if (source != owner) return may_give(others_[source], part) ? seats - holders_[part] : 0;
    if (!known_ && now_ - begun_ < least_patience) return 0;  // the first list is on its way
    return is_ours_[part] && (freed || at_once_[part] || holders_[part] == 0) ? 1 : 0;
  }

 private:
  static constexpr std::chrono::milliseconds least_patience{500};
  struct member {
    std::uint64_t number = 0;
    swarm::parts has{};
    time_point since{}, heard{};  // heard: something new
    unsigned refusals = 0;
    bool gone = false;
  };

  static bool may_give(const member& m, std::size_t part) noexcept {
    return m.number != 0 && !m.gone && m.refusals < 3 && m.has.has(part);
  }
  void count_holders() noexcept {
    for (std::size_t part = 0; part < parts_; ++part) {
      holders_[part] = 0;
      for (const member& m : others_)
        if (may_give(m, part)) ++holders_[part];
    }
  }
  static std::uint64_t weight(const member& m, std::size_t part) noexcept {
    return splitmix64{m.number ^ splitmix64{part + 1}()}();
  }
  /// Which parts this member asks the owner for.
  void rank() noexcept {
    count_holders();
    const member self{.number = self_};
    std::array<const member*, seats> listed{};  // by their numbers
    std::size_t n = 0;
    const auto add = [&](const member& m) {
      std::size_t at = n++;
      for (; at > 0 && listed[at - 1]->number > m.number; --at) listed[at] = listed[at - 1];
      listed[at] = &m;
    };
    add(self);
    for (const member& m : others_)
      if (m.number != 0) add(m);
    // one that has its share already is less patient with others, which may tell something new for ever
    const auto heard = [this](const member& m) {
      return share_.count() == 0 ? m.heard : std::min(m.heard, m.since + 2 * share_);
    };
    const auto patience = std::max<std::chrono::nanoseconds>(least_patience, (left_ > 0 ? 4 : 1) * interval_);
    left_ = 0;
    for (std::size_t part = 0; part < parts_; ++part) {
      const member* m = listed[part % n];
      auto turn = begun_;
      for (std::uint64_t before = ~std::uint64_t{0}; m != nullptr && m != &self && turn <= now_;) {
        if (!m->gone) turn = std::max(turn, heard(*m)) + patience;
        const member* next = nullptr;
        for (std::size_t i = 0; i < n; ++i)
          if (const auto w = weight(*listed[i], part);
              i != part % n && w < before && (next == nullptr || w > weight(*next, part)))
            next = listed[i];
        if (next != nullptr) before = weight(*next, part);
        m = next;
      }
      is_ours_[part] = turn <= now_ && m != nullptr;
      // others that may have it had their time to give it, too
      at_once_[part] = is_ours_[part] && (turn == begun_ || now_ - turn >= patience);
      left_ += is_ours_[part] && !own_.has(part);
    }
    if (left_ == 0 && from_owner_ > 0 && share_.count() == 0) share_ = now_ - begun_;
    ranked_ = now_;
  }

  std::array<member, seats> others_{};
  std::array<bool, most_parts> is_ours_{}, at_once_{};  // to ask the owner for; whoever has it
  std::array<std::uint8_t, most_parts> holders_{};  // others that may be asked for a part
  swarm::parts own_{};
  std::size_t parts_ = 0, own_count_ = 0, left_ = 0;  // left_: to ask the owner for
  int from_owner_ = 0;
  std::uint64_t self_ = 0;
  std::chrono::nanoseconds interval_{};  // between two parts from the owner
  std::chrono::nanoseconds share_{};  // the time until it had its share of them; 0: it has not
  time_point begun_{}, ranked_{}, now_{};
  bool known_ = false;
};

}  // namespace tensorpull::detail
