// A bottleneck in virtual time, and a TCP flow that shares it with others: CUBIC (RFC 9438) with slow start, selective
// acknowledgements and one reduction for each round trip, which is what decides how two flows share a line.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

namespace test {

/// The sender of a line: what it does not carry at once waits in a queue, and what does not fit there is dropped.
struct bottleneck {
  using microseconds = std::chrono::microseconds;

  double bytes_per_second = 0;  ///< 0: it carries everything at once
  std::size_t queue_bytes = 0;
  microseconds free{0}, longest_wait{0};
  std::uint64_t dropped = 0, carried_bytes = 0;

  /// When the last byte of a packet has left; nothing: it is dropped.
  std::optional<microseconds> departs(microseconds now, std::size_t bytes) {
    if (bytes_per_second <= 0) return now;
    const microseconds wait = std::max(microseconds(0), free - now);
    if (static_cast<double>(wait.count()) * bytes_per_second > 1e6 * static_cast<double>(queue_bytes)) {
      ++dropped;
      return std::nullopt;
    }
    longest_wait = std::max(longest_wait, wait);
    carried_bytes += bytes;
    const double takes = 1e6 * static_cast<double>(bytes) / bytes_per_second;
    return free = std::max(free, now) + microseconds(static_cast<long>(takes));
  }
};

/// Bytes that are pushed over a bottleneck for ever.
class tcp_flow {
 public:
  using microseconds = std::chrono::microseconds;
  static constexpr std::size_t packet_bytes = 1500, payload_bytes = 1448;

  /// `round_trip`: without the queue.
  tcp_flow(bottleneck& line, microseconds round_trip) : line_(line), round_trip_(round_trip) {}

  /// When it has something to do.
  microseconds next() const { return acknowledged_.empty() ? started_ : acknowledged_.begin()->first; }
  /// Does what is due.
  void step(microseconds now) {
    if (started_ == microseconds::max()) return;
    while (!acknowledged_.empty() && acknowledged_.begin()->first <= now) {
      const std::uint64_t packet = acknowledged_.begin()->second;
      acknowledged_.erase(acknowledged_.begin());
      acknowledge(packet, now);
    }
    if (acknowledged_.empty() && !out_.empty()) {  // everything was lost
      out_.clear();
      threshold_ = std::max(window_ / 2, 2.0);
      window_ = 1;
    }
    while (static_cast<double>(out_.size()) < window_) {
      out_.insert(packet_);
      if (const auto left = line_.departs(now, packet_bytes)) acknowledged_.emplace(*left + round_trip_, packet_);
      ++packet_;
    }
    if (acknowledged_.empty()) acknowledged_.emplace(now + 5 * round_trip_, ~std::uint64_t{0});
  }
  void start(microseconds now) { started_ = now; }
  /// Payload that has arrived.
  std::uint64_t delivered() const { return delivered_; }

 private:
  void acknowledge(std::uint64_t packet, microseconds now) {
    if (out_.erase(packet) == 0) return;
    delivered_ += payload_bytes;
    if (window_ < threshold_) window_ += 1;
    else window_ += std::max(cubic(now), reno());
    while (!out_.empty() && *out_.begin() + 3 < packet) {
      const std::uint64_t lost = *out_.begin();
      out_.erase(out_.begin());
      if (lost >= recover_) reduce(now);
    }
  }
  void reduce(microseconds now) {
    recover_ = packet_;
    most_ = window_ < most_ ? 0.85 * window_ : window_;  // fast convergence
    threshold_ = window_ = std::max(0.7 * window_, 2.0);
    since_ = now;
    from_ = window_;
  }
  double cubic(microseconds now) const {
    const double t = static_cast<double>((now - since_ + round_trip_).count()) * 1e-6;
    const double k = std::cbrt((most_ - from_) / 0.4), target = 0.4 * (t - k) * (t - k) * (t - k) + most_;
    return target > window_ ? std::min((target - window_) / window_, 0.5) : 0.01 / window_;
  }
  double reno() const { return 3 * 0.3 / 1.7 / window_; }

  bottleneck& line_;
  microseconds round_trip_, started_ = microseconds::max(), since_{0};
  double window_ = 10, threshold_ = 1e9, most_ = 0, from_ = 0;
  std::uint64_t packet_ = 0, recover_ = 0, delivered_ = 0;
  std::set<std::uint64_t> out_;
  std::multimap<microseconds, std::uint64_t> acknowledged_;
};

}  // namespace test
