// How many requests may be on their way, and when the next may leave: AIMD with slow start, as NewReno (RFC 5681, RFC
// 6582) counts segments, told apart from noise, and paced.
//
// A radio or a noisy line loses a share of all datagrams however few are sent, and a window that is halved for each of
// them carries nothing. So a loss counts as congestion only if it exceeds what is lost with half of the window, too:
// that much is noise, and then the halving is undone, as for a retransmission that turned out spurious (RFC 4015). A
// quarter of all requests lost, or any loss while the round trip shows a queue, is never noise.
#pragma once

#include <tensorpull/protocol/datagrams/round_trip.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/chrono.hpp>

#include <cstdint>
#include <utility>

namespace tensorpull {

/// The window of one pull, in requests. Requests are small and their answers long, so it bounds the answers that are on
/// their way.
class congestion_window {
 public:
  /// Points in time, and durations.
  using time = std::chrono::microseconds;

  /// `first`: where it begins, and the least that it falls to; at least 1. `most`: the largest.
  constexpr congestion_window(std::uint32_t first, std::uint32_t most) noexcept
      : least_(std::max(std::min(first, most), std::uint32_t{1})), most_(std::max(most, std::uint32_t{1})),
        window_(least_), threshold_(most_) {}

  /// Requests that may be on their way.
  constexpr std::uint32_t size() const noexcept { return window_; }

  /// A request was answered. `full`: the window was in use, so that it may grow.
  constexpr void answered(const round_trip& trip, bool full) noexcept {
    ++answered_;
    if (full && window_ < threshold_) {
      ++window_;  // slow start
    } else if (full && ++grown_ >= window_) {  // one for each window
      grown_ = 0;
      window_ = std::min(window_ + 1, most_);
    }
    judge(trip);
  }
  /// A request or its answer was lost.
  constexpr void lost(const round_trip& trip) noexcept {
    ++lost_;
    judge(trip);
  }
  /// Nothing at all came in time.
  constexpr void timed_out() noexcept {
    threshold_ = std::max(window_ / 2, least_);
    window_ = least_;
    grown_ = 0;
    reduced_ = settling_ = false;
    begin_epoch();
  }

  /// Whether a request may leave now; if not, at the time that it gives: requests are spread over the round trip, so
  /// that their answers do not come in one burst. What one millisecond brings may leave at once, since no clock of a
  /// driver is finer.
  constexpr time release() const noexcept { return release_; }
  /// A request leaves.
  constexpr void left(const round_trip& trip, time now) noexcept {
    if (!trip.known()) return;
    using fine = std::chrono::nanoseconds;
    const fine apart = fine(trip.smoothed()) * 4 / (5 * std::int64_t{window_}) / (window_ < threshold_ ? 2 : 1);
    const fine slack = std::max<fine>(fine(1'000'000), 8 * apart);
    due_ = std::max(due_, fine(now) - slack) + apart;
    release_ = std::chrono::duration_cast<time>(due_);
  }

 private:
  constexpr void judge(const round_trip& trip) noexcept {
    const std::uint32_t all = answered_ + lost_;
    if (all < epoch_) return;
    if (std::exchange(settling_, false)) return begin_epoch();
    const std::uint32_t share = lost_ * 256 / all;
    const bool queue = trip.smoothed() > 2 * trip.fastest() + time(5000);
    const bool congested = lost_ > 0 && (share > 64 || share > 2 * noise_ + 8 || (queue && share > noise_ / 2));
    if (!reduced_) {
      if (lost_ == 0) noise_ -= (noise_ + 7) / 8;
    } else if (share > noise_) {  // what is lost with half of the window is not our doing
      noise_ = (noise_ + std::min(share, std::uint32_t{64}) + 1) / 2;
    } else {
      noise_ -= (noise_ - share) / 8;
    }
    reduced_ = congested;
    if (congested) {
      if (before_ == 0) undo_ = threshold_;
      before_ = std::max(before_, window_);
      begin_epoch();  // of as many requests as have left already
      settling_ = true;
      window_ = threshold_ = std::max(window_ / 2, least_);
      return;
    }
    if (lost_ > 0 && before_ > window_ && !queue) threshold_ = std::max(undo_, before_);
    before_ = 0;
    begin_epoch();
  }
  /// What is lost is judged once for each window, and for 32 requests at least: of fewer it would be chance.
  constexpr void begin_epoch() noexcept {
    answered_ = lost_ = 0;
    epoch_ = std::max(window_, std::uint32_t{32});
  }

  std::uint32_t least_, most_, window_, threshold_, epoch_ = 32;
  std::uint32_t answered_ = 0, lost_ = 0, grown_ = 0;
  std::uint32_t noise_ = 0, before_ = 0, undo_ = 0;  // in 1/256; the window and its threshold before it was halved
  bool reduced_ = false, settling_ = false;
  std::chrono::nanoseconds due_{};
  time release_{};
};

}  // namespace tensorpull
