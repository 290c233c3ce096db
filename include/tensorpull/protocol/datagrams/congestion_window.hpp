// How many requests may be on their way, and when the next may leave: a model of the path, as BBR (Cardwell et al.,
// draft-cardwell-iccrg-bbr-congestion-control-00) has it at the sender, held by the end that asks.
//
// Two numbers are measured: how fast answers arrive at best, and how long one takes at least. Their product is what the
// path holds without a queue. As much as twice that is asked for, paced at the rate that was measured, so a queue is
// bounded by what the path holds. Eight round trips make a cycle: in one of them more is asked for, to see whether more
// arrives, in the next one less, so that a queue which that has made is gone.
//
// A loss means little by itself: a radio loses a share of all datagrams however few are sent, and a window that is
// halved for each of them carries nothing. One while answers take longer than they need means that the queue of the
// path is full, and that others fill it: from then on the window is at most what CUBIC (RFC 9438) would have, until the
// queue is gone. So a flow of TCP beside it keeps its share. Where more than an eighth is lost in two rounds, and more
// than usual, the rate falls to that of the answers.
#pragma once

#include <tensorpull/protocol/datagrams/round_trip.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/chrono.hpp>

#include <array>
#include <cstdint>
#include <utility>

namespace tensorpull {

/// The window of one pull, in requests. Requests are small and their answers long, so it bounds the answers that are on
/// their way.
class congestion_window {
 public:
  /// Points in time, and durations.
  using time = std::chrono::microseconds;

  /// `least`: the least that it falls to; at least 1. It begins there, or with ten from four on (RFC 9002, 7.2).
  /// `most`: the largest. If both are the same the window stays, and only its requests are spread over the round trip.
  constexpr congestion_window(std::uint32_t least, std::uint32_t most) noexcept
      : least_(std::max(std::min(least, most), std::uint32_t{1})), most_(std::max(most, std::uint32_t{1})),
        window_(least_ < 4 ? least_ : std::min(std::max(least_, std::uint32_t{10}), most_)), bound_(most_) {}

  /// Requests that may be on their way.
  constexpr std::uint32_t size() const noexcept { return window_; }
  /// The least that it falls to.
  constexpr std::uint32_t least() const noexcept { return least_; }
  /// The measured rate of the path: answers in a second at best; 0: nothing yet.
  constexpr std::uint32_t rate() const noexcept { return std::max(best_[0], best_[1]); }

  /// Whether others fill the queue of the path, so that bursts would be lost.
  constexpr bool shares() const noexcept { return bound_ != most_; }

  /// A request was answered. `id`: its number; `next`: that of the next request; `in_flight`: those on their way
  /// before; `more`: there is more to ask for.
  constexpr void answered(const round_trip& trip, std::uint32_t id, std::uint32_t next, std::uint32_t in_flight,
                          bool more, time now) noexcept {
    ++answered_;
    fullest_ = std::max(fullest_, in_flight);
    idle_ = idle_ || !more;
    if (fixed()) return;
    see_shortest(trip, in_flight, now);
    if (mode_ == mode::startup && window_ < most_ && window_ <= 2 * fullest_) ++window_;
    if (!round_known_) begin_round(next, now);
    else if (static_cast<std::int32_t>(id - round_) >= 0) end_round(trip, next, now);
    adapt(in_flight);
  }
  /// A request or its answer was lost.
  constexpr void lost() noexcept { ++lost_; }
  /// Nothing at all arrived in time: the measurements of the path may be wrong.
  constexpr void timed_out() noexcept {
    window_ = least_;
    bound_ = most_;
    queued_ = quiet_ = 0;
    best_ = {};
    mode_ = mode::startup;
    stale_rounds_ = phase_ = usual_loss_ = 0;
    round_known_ = much_ = false;
    answered_ = lost_ = fullest_ = 0;
  }

  /// Whether a request may leave now; if not, at the time that it gives: requests are spread over the round trip, so
  /// that their answers do not arrive in one burst. The requests of two milliseconds may leave at once, since no clock
  /// of a driver is finer.
  constexpr time release() const noexcept { return release_; }
  /// A request leaves.
  constexpr void left(const round_trip& trip, time now) noexcept {
    using fine = std::chrono::nanoseconds;
    if (!trip.known() || trip.fastest() < clock) return;
    const fine each = apart(trip);
    due_ = std::max(due_, fine(now) - std::max<fine>(fine(2 * clock), (shares() ? 2 : 8) * each)) + each;
    release_ = std::chrono::duration_cast<time>(due_);
  }

 private:
  enum class mode : std::uint8_t {
    startup,  ///< twice as much in each round trip, as long as more arrives
    drain,  ///< until the queue that this has made is gone
    cruise,  ///< cycles of eight round trips
    look,  ///< almost nothing on its way, to see how long an answer takes without a queue of ours
  };
  /// No driver waits for a shorter time, so a path that holds nothing is taken to hold what it brings meanwhile.
  static constexpr time clock{1000};
  /// After so long without a look at the shortest time, one is due, and how long it lasts.
  static constexpr time shortest_holds{10'000'000}, look_lasts{200'000};
  static constexpr std::uint32_t cycle = 8;
  /// A queue that a probe of ours makes is gone before so many rounds are over.
  static constexpr std::uint32_t lasting = 3;

  constexpr bool fixed() const noexcept { return least_ == most_; }
  /// How fast requests leave, in 1/256 of the rate.
  constexpr std::uint32_t pace() const noexcept {
    if (mode_ == mode::drain) return 89;
    if (mode_ == mode::look || phase_ > 1) return 256;
    return phase_ == 0 ? 320 : 192;
  }
  /// The time from one request to the next.
  constexpr std::chrono::nanoseconds apart(const round_trip& trip) const noexcept {
    using fine = std::chrono::nanoseconds;
    const bool starts = mode_ == mode::startup && !fixed();
    if (starts || fixed() || shares())  // the window decides: it leaves within 0.8 or 0.5 of a round trip
      return fine(trip.smoothed()) * 4 / (std::int64_t{window_} * (starts ? 8 : 5));
    const fine measured(256'000'000'000 / (std::int64_t{std::max(rate(), std::uint32_t{1})} * pace()));
    return std::min(measured, fine(shortest_) / least_);
  }
  /// The requests that the path holds without a queue.
  constexpr std::uint32_t held() const noexcept {
    return static_cast<std::uint32_t>(std::uint64_t{rate()} *
                                      static_cast<std::uint64_t>(std::max(shortest_, 2 * clock).count()) / 1'000'000);
  }

  constexpr void see_shortest(const round_trip& trip, std::uint32_t in_flight, time now) noexcept {
    if (!trip.known()) return;
    if (shortest_ == time{} || trip.latest() <= shortest_) {
      shortest_ = trip.latest();
      seen_at_ = now;
    } else if (mode_ == mode::cruise && now - seen_at_ > shortest_holds) {
      mode_ = mode::look;
      looks_until_ = time{};
      looked_ = trip.latest();
    }
    if (mode_ != mode::look) return;
    if (looks_until_ == time{}) {
      if (in_flight > least_) return;
      looks_until_ = now + std::max(look_lasts, trip.latest());
      looked_ = time::max();
    }
    looked_ = std::min(looked_, trip.latest());
    if (now < looks_until_) return;
    shortest_ = looked_;
    seen_at_ = now;
    begin_cruise();
  }
  constexpr void begin_cruise() noexcept {
    mode_ = mode::cruise;
    phase_ = 2;
  }

  constexpr void begin_round(std::uint32_t next, time now) noexcept {
    round_known_ = true;
    round_ = next;
    began_ = now;
    answered_ = lost_ = fullest_ = 0;
    idle_ = false;
  }
  constexpr void end_round(const round_trip& trip, std::uint32_t next, time now) noexcept {
    const auto took = static_cast<std::uint64_t>(std::max(now - began_, time(1)).count());
    const auto came = static_cast<std::uint32_t>(std::uint64_t{answered_} * 1'000'000 / took);
    const std::uint32_t share = lost_ * 256 / std::max(answered_ + lost_, std::uint32_t{1});
    // more than an eighth and more than usual, twice in a row
    const bool much = lost_ >= 8 && share > 32 && share > 2 * usual_loss_;
    const bool congested = std::exchange(much_, much) && much;
    const std::uint32_t before = rate();
    if (!idle_ || came > before) best_[0] = std::max(best_[0], came);
    if (mode_ == mode::startup) {
      stale_rounds_ = came >= before + before / 4 ? 0 : stale_rounds_ + 1;
      const bool overflows = lost_ > 0 && stale_rounds_ > 0 && queued(trip);
      if (stale_rounds_ >= 3 || overflows) mode_ = mode::drain, stale_rounds_ = 0;
    } else if (mode_ == mode::drain) {
      if (++stale_rounds_ >= lasting) begin_cruise();  // the queue is another's
    } else if (mode_ == mode::cruise) {
      if (congested) best_ = {came, came};
      // The answers to the additional requests have arrived as well: there is room, and nobody knows how much.
      if (phase_ == 1 && came >= before + before / 8 && !shares()) mode_ = mode::startup, stale_rounds_ = 0;
      if (++phase_ == cycle) phase_ = 0;
      // the best of one to two cycles counts
      if (phase_ == 0 && best_[0] != 0) best_[1] = std::exchange(best_[0], 0);
    }
    usual_loss_ = (7 * usual_loss_ + share) / 8;
    share_queue(trip, now);
    begin_round(next, now);
  }
  /// Whether an answer has waited in the path.
  constexpr bool queued(const round_trip& trip) const noexcept {
    return trip.latest() > shortest_ + std::max(shortest_ / 4, clock);
  }
  /// Whether others fill the queue of the path, and what they leave. Once in a cycle no more is asked for than the path
  /// holds without a queue: if that is gone then, it was ours.
  constexpr void share_queue(const round_trip& trip, time now) noexcept {
    const bool queue = queued(trip);
    queued_ = queue ? queued_ + 1 : 0;
    const bool settles = std::exchange(settles_, false);  // what was lost before the window fell is counted once
    const bool others = mode_ == mode::cruise && (queued_ > cycle || (lost_ > 0 && queued_ >= lasting));
    if (shares() ? lost_ > 0 && queued_ > 0 && !settles : others) {
      settles_ = true;
      // what was on its way, which is less than it could have been
      full_ = std::max(std::min(shares() ? bound_ : window_, fullest_ + fullest_ / 8), least_);
      reduced_ = now;
      bound_ = full_;
      quiet_ = 0;
    } else if (phase_ == 0 && quiet_++ % 2 == 0 && !queue) {
      bound_ = most_;
    }
    if (!shares()) return;
    // RFC 9438: W(t) = 0.4 (t - K)^3 + full, K = cbrt(0.75 full), in milliseconds; and at least as Reno grows
    const std::int64_t t = std::chrono::duration_cast<std::chrono::milliseconds>(now - reduced_).count();
    const std::int64_t off = std::min<std::int64_t>(t - cube_root(std::uint64_t{full_} * 625'000'000), 100'000);
    const std::int64_t cubic = off * off * off / 2'500'000'000 + full_;
    const std::int64_t reno = full_ * 3 / 4 + (now - reduced_) * 66 / (std::max(trip.smoothed(), time(1)) * 100);
    bound_ = static_cast<std::uint32_t>(
        std::min<std::int64_t>(std::max(std::max(cubic, reno), std::int64_t{least_}), most_));
  }
  static constexpr std::int64_t cube_root(std::uint64_t of) noexcept {
    std::uint64_t root = 0;
    for (std::uint64_t bit = std::uint64_t{1} << 20; bit > 0; bit /= 2)
      if ((root + bit) * (root + bit) * (root + bit) <= of) root += bit;
    return static_cast<std::int64_t>(root);
  }
  constexpr void adapt(std::uint32_t in_flight) noexcept {
    if (mode_ == mode::drain && in_flight <= held()) begin_cruise();
    if (mode_ == mode::startup) return;
    if (mode_ == mode::look) window_ = least_;
    else if (!shares()) window_ = std::min(2 * held() + least_, most_);
    else window_ = phase_ == cycle - 1 && quiet_ % 2 == 0 ? std::min(held() / 2 + least_, bound_) : bound_;
  }

  std::uint32_t least_, most_, window_;
  std::uint32_t bound_, full_ = 0;  // what others leave; the window when the queue was full
  std::uint32_t queued_ = 0, quiet_ = 0;  // rounds with a queue, and cycles without one, in a row
  std::array<std::uint32_t, 2> best_{};  // answers in a second, of this cycle and of the one before
  std::uint32_t round_ = 0, answered_ = 0, lost_ = 0, fullest_ = 0, usual_loss_ = 0;  // the loss in 1/256
  std::uint32_t stale_rounds_ = 0, phase_ = 0;
  mode mode_ = mode::startup;
  bool round_known_ = false;
  bool settles_ = false;
  bool much_ = false;  // was lost in the round before
  bool idle_ = false;  // in this round there was a time with nothing more to ask for
  time began_{}, reduced_{}, shortest_{}, seen_at_{}, looks_until_{}, looked_{};
  std::chrono::nanoseconds due_{};
  time release_{};
};

}  // namespace tensorpull
