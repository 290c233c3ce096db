// How many requests may be on their way, and when the next may leave: CUBIC (RFC 9438) with the slow start of HyStart++
// (RFC 9406) and the recovery of RFC 9002, 7.3, held by the end that asks.
//
// Two things are added. A loss means little on a path that loses a share of all datagrams however few are sent. So a
// loss is no sign of congestion if the answers around it have not waited in any queue, and as long as no more than a
// fiftieth of the requests and of the answers is lost (BBRv2's bound, draft-cardwell-iccrg-bbr-congestion-control-02,
// 4.5.10). And the window grows no more when answers take three and a half times as long as they need, so that the
// queue of a home's router, which may hold seconds, is not filled. If that lasts, the window is that of an empty queue
// for a round, which tells whether the path has become longer.
#pragma once

#include <tensorpull/protocol/datagrams/round_trip.hpp>
#include <tensorpull/protocol/recipient/detail/request_id.hpp>
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

  /// `most`: the largest; at least 1. It begins with ten and falls to two at least (RFC 9002, 7.2). `fixed`: it stays
  /// at `most`, and only its requests are spread over the round trip.
  constexpr explicit congestion_window(std::uint32_t most, bool fixed = false) noexcept
      : most_(std::max(most, std::uint32_t{1})), least_(fixed ? most_ : std::min(most_, std::uint32_t{2})),
        window_(one * (fixed ? most_ : std::min(most_, std::uint32_t{10}))), slow_start_until_(one * most_) {}

  /// Requests that may be on their way.
  constexpr std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(window_ / one); }

  /// A request was answered after `took`; zero: not known. `id`: its number; `next`: that of the next request;
  /// `in_flight`: those on their way before; `more`: there is more to ask for.
  constexpr void answered(const round_trip& trip, time took, std::uint32_t id, std::uint32_t next,
                          std::uint32_t in_flight, bool more, time now) noexcept {
    if (answered_at_ == time{}) round_ = id;
    const time since = now - std::exchange(answered_at_, now);
    count(false);
    if (least_ == most_) return;
    if (took > time{}) {
      timed_out_ = false;
      shortest_ = shortest_ == time{} ? took : std::min(shortest_, took);
      recent_[next_recent_++ % recent_.size()] = took;
      see_round(took, id, next);
      if (probes_ != probe::none) see_probe(took, id, next);
    }
    if (!more || in_flight + in_flight / 4 + 2 < size()) return;  // the window is not what bounds it
    if (timed_out_ || waits_long(next, now)) return;  // timed_out_: how long answers take since is not known
    if (window_ < slow_start_until_) {
      window_ += quick_rounds_ > 0 ? one / 4 : one;
      if (window_ >= slow_start_until_) avoid(window_);
    } else {
      grow(trip.smoothed(), std::min(since, trip.smoothed()));
    }
    window_ = std::min(window_, one * most_);
  }
  /// A request, or its answer, was lost.
  constexpr void lost(std::uint32_t id, std::uint32_t next) noexcept {
    if (least_ == most_) return;
    if (recovers_ && detail::comes_before(id, recovered_)) {  // of an event that was counted
      ++event_;
      return;
    }
    if (is_noise(id)) return;
    end_probe();
    // an event that follows at once is one with the last, which may turn out to be none
    if (!recovers_ || id - recovered_ >= size()) before_ = {window_, full_, slow_start_until_}, event_ = 0;
    recovers_ = true;
    recovered_ = next;
    ++event_;
    const bool starts = window_ < slow_start_until_;
    full_ = window_ < full_ ? window_ * 17 / 20 : window_;
    const bool doubles = starts && quick_rounds_ == 0;
    const std::uint64_t less = std::max(doubles ? window_ / 2 : window_ * 7 / 10, one * least_);
    avoid(starts ? less : full_);
    window_ = slow_start_until_ = less;
    flat_at_ = cube_root((std::max(full_, window_) - window_) * 2'500'000'000 / one);
  }
  /// A request that was counted as lost was answered.
  constexpr void was_not_lost(std::uint32_t id) noexcept {
    if (!recovers_ || !detail::comes_before(id, recovered_) || event_ == 0 || --event_ > 0) return;
    recovers_ = false;  // none of the event was lost (RFC 9438, 4.9)
    window_ = std::max(window_, before_.window);
    full_ = before_.full;
    slow_start_until_ = before_.slow_start_until;
    flat_at_ = time_ = 0;
  }
  /// Nothing at all arrived in time.
  constexpr void timed_out() noexcept {
    end_probe();
    if (!std::exchange(timed_out_, true)) slow_start_until_ = std::max(window_ * 7 / 10, one * least_);
    window_ = one * least_;
    recent_.fill(time::max());
    recovers_ = false;
    quick_rounds_ = 0;
  }

  /// Whether a request may leave now; if not, at the time that it gives: requests are spread over the round trip, so
  /// that their answers do not arrive in one burst. The requests of two milliseconds may leave at once, since no clock
  /// of a driver is finer.
  constexpr time release() const noexcept { return release_; }
  /// Whether requests are spread: not if answers take less than a millisecond.
  static constexpr bool is_paced(const round_trip& trip) noexcept { return trip.known() && trip.fastest() >= clock; }
  /// A request leaves.
  constexpr void left(const round_trip& trip, time now) noexcept {
    using fine = std::chrono::nanoseconds;
    if (!is_paced(trip)) return;
    // a window leaves within half of a round trip, or within 0.8 of it
    const fine each = fine(trip.smoothed()) * 4 / (std::int64_t{size()} * (window_ < slow_start_until_ ? 8 : 5));
    due_ = std::max(due_, fine(now) - std::max<fine>(fine(2 * clock), 2 * each)) + each;
    release_ = std::chrono::duration_cast<time>(due_);
  }

 private:
  /// A window of one request, as windows are counted here.
  static constexpr std::uint64_t one = 65536;
  static constexpr time clock{1000};
  /// As RFC 9406, 4.3, has it: a queue that is shorter is none to end slow start for.
  static constexpr time short_wait{4000};
  struct state {
    std::uint64_t window = 0, full = 0, slow_start_until = 0;
  };

  constexpr void count(bool loss) noexcept {
    (loss ? lost_ : answered_) += 1;
    if (lost_ + answered_ < 1024) return;
    lost_ /= 2;
    answered_ /= 2;
  }
  /// Whether a loss now is one that happens however few requests are on their way. Of those that travelled in one
  /// datagram the first counts.
  constexpr bool is_noise(std::uint32_t id) noexcept {
    if (next_recent_ < recent_.size() || waits()) return false;
    if (id != last_lost_ + 1) count(true);
    last_lost_ = id;
    return lost_ <= 8 + (lost_ + answered_) / 25;
  }
  /// Whether answers have waited in a queue of the path.
  constexpr bool waits() const noexcept { return waited() >= std::max(shortest_ / 16, clock / 4); }
  /// Whether they have waited for so long that the window grows no more. Two requests fill no queue: if answers take as
  /// long then, the path does. If it goes on for ten seconds, a probe tells.
  constexpr bool waits_long(std::uint32_t next, time now) noexcept {
    const time wait = waited(), most = std::max(shortest_ * 5 / 2, short_wait);
    const bool is_long = wait > most, path_does = is_long && size() <= least_;
    if (path_does) shortest_ += wait;
    if (!is_long || path_does) {
      long_since_ = {};
      return false;
    }
    if (long_since_ == time{}) long_since_ = now;
    if (probes_ == probe::none && now - long_since_ >= std::chrono::seconds(10)) {
      probes_ = probe::drains;
      probed_ = next;
      const auto part = [&](time of) noexcept { return static_cast<std::uint64_t>(of * 1024 / (shortest_ + wait)); };
      unprobed_ = std::max(window_ / 1024 * part(shortest_ + most), one * least_);
      window_ = std::max(window_ / 1024 * part(shortest_), one * least_);
    }
    return true;
  }
  /// An answer during a probe. The requests of one round count, after those that were on their way when it began.
  void see_probe(time took, std::uint32_t id, std::uint32_t next) noexcept {
    const bool over = !detail::comes_before(id, probed_);
    if (probes_ == probe::counts) {
      probe_shortest_ = std::min(probe_shortest_, took);
      if (!over) return;
      shortest_ = probe_shortest_;
      end_probe();
    } else if (over) {
      probes_ = probe::counts;
      probed_ = next;
      probe_shortest_ = took;
    }
  }
  constexpr void end_probe() noexcept {
    if (std::exchange(probes_, probe::none) == probe::none) return;
    window_ = unprobed_;
    long_since_ = {};
  }
  constexpr time waited() const noexcept { return std::min(std::min(recent_[0], recent_[1]), recent_[2]) - shortest_; }

  /// RFC 9406, 4.2: slow start ends when the shortest answer of a round takes longer than that of the round before.
  constexpr void see_round(time took, std::uint32_t id, std::uint32_t next) noexcept {
    if (window_ >= slow_start_until_) return;
    if (!detail::comes_before(id, round_)) {
      round_ = next;
      round_before_ = round_shortest_;
      round_shortest_ = time::max();
      samples_ = 0;
      if (quick_rounds_ > 0 && --quick_rounds_ == 0) end_slow_start();
    }
    round_shortest_ = std::min(round_shortest_, took);
    if (++samples_ < 8 || round_before_ == time::max()) return;
    using ms = std::chrono::milliseconds;
    const time more = std::min<time>(std::max<time>(round_before_ / 8, ms(4)), ms(16));
    if (waited() > std::max(shortest_, short_wait)) {
      end_slow_start();
    } else if (quick_rounds_ == 0) {
      if (round_shortest_ < round_before_ + more) return;
      quick_rounds_ = 5;
      base_ = round_shortest_;
    } else if (round_shortest_ < base_) {
      quick_rounds_ = 0;  // it was jitter
    }
  }

  constexpr void end_slow_start() noexcept {
    slow_start_until_ = window_;
    avoid(window_);
  }
  /// Congestion avoidance begins: the window was `full` when the path could take no more.
  constexpr void avoid(std::uint64_t full) noexcept {
    full_ = full;
    flat_at_ = time_ = 0;
    reno_ = 0;
    quick_rounds_ = 0;
  }
  /// RFC 9438, 4.2 and 4.3, for one answer: W(t) = 0.4 (t - K)^3 + full, in seconds, and at least as Reno grows.
  constexpr void grow(time smoothed, time passed) noexcept {
    time_ += passed.count();
    if (reno_ == 0) reno_ = window_;
    reno_ += one * one / window_ * (reno_ < full_ ? 9 : 17) / 17;
    const std::int64_t off = std::min<std::int64_t>((time_ + smoothed.count()) / 1000 - flat_at_, 100'000);
    const std::int64_t target = static_cast<std::int64_t>(full_) + off * off * off / 38'147;  // 65536 * 0.4 / 1000^3
    const auto now = static_cast<std::int64_t>(window_);
    if (off > 0 && !waits()) window_ += one / 8;
    if (target > now) window_ += static_cast<std::uint64_t>(std::min(target - now, now / 2)) * one / window_;
    window_ = std::max(window_, reno_);
  }
  static constexpr std::int64_t cube_root(std::uint64_t of) noexcept {
    std::uint64_t root = 0;
    for (std::uint64_t bit = std::uint64_t{1} << 20; bit > 0; bit /= 2)
      if ((root + bit) * (root + bit) * (root + bit) <= of) root += bit;
    return static_cast<std::int64_t>(root);
  }

  std::uint32_t most_, least_;
  std::uint64_t window_, slow_start_until_, full_ = 0, reno_ = 0;
  state before_{};  // the last congestion event
  std::int64_t time_ = 0, flat_at_ = 0;  // microseconds since that event; milliseconds from it until W(t) is `full`
  std::uint32_t answered_ = 0, lost_ = 0;  // of the last thousand
  std::uint32_t last_lost_ = 0, recovered_ = 0, event_ = 0;  // requests before this one belong to the event; how many
                                                             // of it were lost
  std::uint32_t round_ = 0, samples_ = 0, quick_rounds_ = 0, next_recent_ = 0;
  bool recovers_ = false, timed_out_ = false;
  enum class probe : std::uint8_t {
    none,
    drains,
    counts
  } probes_ = probe::none;
  std::uint32_t probed_ = 0;  // the request that ends this part of the probe
  std::uint64_t unprobed_ = 0;  // the window behind it
  time long_since_{}, probe_shortest_{};
  std::array<time, 3> recent_{};
  time shortest_{}, round_shortest_ = time::max(), round_before_ = time::max(), base_{}, answered_at_{}, release_{};
  std::chrono::nanoseconds due_{};
};

}  // namespace tensorpull
