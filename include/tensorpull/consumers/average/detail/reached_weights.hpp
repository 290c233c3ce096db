// How much weight has reached each byte of a model, in memory that does not depend on the model or on the number of updates.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull::detail {

/// Updates arrive from byte 0 on, so one that stopped at k reached exactly [0, k): a sorted list of stops says it all. Borrows its memory.
class reached_weights {
 public:
  struct stop {
    std::uint64_t at = 0;
    double weight = 0;
  };

  reached_weights() noexcept = default;
  explicit reached_weights(std::span<stop> memory) noexcept : stops_(memory) {}

  void clear() noexcept {
    count_ = 0;
    whole_ = 0;
  }
  void add_whole(double weight) noexcept { whole_ += weight; }
  double whole() const noexcept { return whole_; }

  /// False: a stop at another place has no room.
  bool add_partial(std::uint64_t at, double weight) noexcept {
    const auto first = stops_.begin(), last = first + static_cast<std::ptrdiff_t>(count_);
    const auto place = std::lower_bound(first, last, at, [](const stop& s, std::uint64_t value) { return s.at < value; });
    if (place != last && place->at == at) return place->weight += weight, true;
    if (count_ == stops_.size()) return false;
    std::move_backward(place, last, last + 1);
    *place = {at, weight};
    ++count_;
    return true;
  }

  /// The bytes [0, reached(size)) have had some weight.
  std::uint64_t reached(std::uint64_t size) const noexcept { return whole_ > 0 ? size : count_ > 0 ? stops_[count_ - 1].at : 0; }

  /// f(begin, end, weight) for the ranges of [0, size) with one weight each, in order; at most one more than there are stops.
  template <class F>
  void for_each_range(std::uint64_t size, F&& f) const {
    std::uint64_t begin = 0;
    for (std::size_t i = 0; i <= count_; ++i) {
      const std::uint64_t end = i < count_ ? std::min(stops_[i].at, size) : size;
      double weight = whole_;
      for (std::size_t k = count_; k-- > i;) weight += stops_[k].weight;  // summed anew: subtracting would leave rounding errors
      if (begin < end) f(begin, end, weight);
      begin = end;
    }
  }

 private:
  std::span<stop> stops_{};
  std::size_t count_ = 0;
  double whole_ = 0;
};

}  // namespace tensorpull::detail
