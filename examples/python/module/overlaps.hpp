// Whether tensors that are to be landed in share memory, with themselves or with each other, whatever their strides.
//
// Tensors whose intervals of addresses are apart cost O(n log n) of their number. Only tensors that lie between each
// other's elements (the columns of one matrix) are looked at element by element: one bit for each, in a window of 4 MiB
// that moves over the memory, so the cost is linear in what is landed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <tuple>
#include <vector>

namespace tensorpull::python {

/// The elements of one tensor as runs of bytes: of `run` bytes each, at `begin` plus any sum of multiples of the
/// strides. Strides are positive and sorted, the longest first.
struct footprint {
  struct dimension {
    std::uint64_t extent, stride;
  };
  std::size_t index = 0;  ///< the tensor's place in the caller's list
  std::uint64_t space = 0;  ///< which memory: the CPU's or a device's
  std::uint64_t begin = 0, end = 0, run = 0;
  std::vector<dimension> dimensions;
  bool repeats = false;  ///< one element is at several indices
  bool nested = true;  ///< each stride is at least as long as all that is within it, so no two elements meet

  /// Of a tensor that has elements. `strides` in bytes; none: C order.
  footprint(std::size_t i, std::uint64_t where, std::uintptr_t address, std::uint64_t item,
            std::span<const std::uint64_t> shape, std::span<const std::int64_t> strides)
      : index(i), space(where), begin(address), run(item) {
    if (strides.empty()) {
      for (const std::uint64_t extent : shape) run *= extent;
    } else {
      for (std::size_t d = 0; d < shape.size(); ++d) {
        if (shape[d] == 1) continue;
        const std::uint64_t length = strides[d] < 0 ? 0 - static_cast<std::uint64_t>(strides[d])
                                                    : static_cast<std::uint64_t>(strides[d]);
        if (strides[d] < 0) begin -= (shape[d] - 1) * length;
        repeats = repeats || length == 0;
        dimensions.push_back({shape[d], length});
      }
      std::sort(dimensions.begin(), dimensions.end(),
                [](const dimension& a, const dimension& b) { return a.stride > b.stride; });
      for (; !dimensions.empty() && dimensions.back().stride == run; dimensions.pop_back())
        run *= dimensions.back().extent;
    }
    std::uint64_t within = run;
    for (std::size_t d = dimensions.size(); d-- > 0;) {
      nested = nested && dimensions[d].stride >= within;
      within += (dimensions[d].extent - 1) * dimensions[d].stride;
    }
    end = begin + within;
  }
};

/// Looks for shared memory. `stopped()` is asked often; the answer is then of no use.
template <class Stopped>
class overlap_search {
 public:
  static constexpr std::size_t none = ~std::size_t{0};

  explicit overlap_search(Stopped stopped) : stopped_(stopped) {}

  /// Gives the index of a tensor that shares memory with itself or with another one, or `none`. Sorts the list.
  std::size_t find(std::span<footprint> all) {
    for (const footprint& one : all)
      if (one.repeats) return one.index;
    const auto before = [](const footprint& a, const footprint& b) {
      return std::tie(a.space, a.begin, a.index) < std::tie(b.space, b.begin, b.index);
    };
    std::sort(all.begin(), all.end(), before);
    for (std::size_t first = 0; first < all.size();) {
      std::size_t last = first + 1;
      std::uint64_t end = all[first].end;
      for (; last < all.size() && all[last].space == all[first].space && all[last].begin < end; ++last)
        end = std::max(end, all[last].end);
      if (last - first > 1 || !all[first].nested)
        if (const std::size_t found = between(all.subspan(first, last - first), end); found != none) return found;
      if (stopped_()) return none;
      first = last;
    }
    return none;
  }

 private:
  static constexpr std::uint64_t window_bits = std::uint64_t{1} << 25;

  /// Of tensors whose intervals meet. `end`: of all of them. They are sorted by where they begin.
  std::size_t between(std::span<const footprint> some, std::uint64_t end) {
    const std::uint64_t begin = some[0].begin;
    granule_ = some[0].run;
    for (const footprint& one : some) {
      granule_ = std::gcd(std::gcd(granule_, one.run), one.begin - begin);
      for (const auto& d : one.dimensions) granule_ = std::gcd(granule_, d.stride);
    }
    const std::uint64_t window = window_bits * granule_;
    taken_.assign(static_cast<std::size_t>((std::min((end - begin) / granule_ + 1, window_bits) + 63) / 64), 0);
    for (low_ = begin; low_ < end; low_ += window) {
      high_ = std::min(end, low_ + window);
      if (low_ != begin) std::fill(taken_.begin(), taken_.end(), 0);
      for (const footprint& one : some) {
        if (one.begin >= high_) break;
        if (one.end > low_ && !mark(one, 0, one.begin, one.end - one.begin)) return one.index;
        if (ended_) return none;
      }
    }
    return none;
  }

  /// Marks the part from dimension d on that begins at `at` and spans `span` bytes, as far as it is in the window.
  /// False: something was there.
  bool mark(const footprint& one, std::size_t d, std::uint64_t at, std::uint64_t span) {
    if (d == one.dimensions.size()) return mark_run(std::max(at, low_), std::min(at + one.run, high_));
    const auto [extent, stride] = one.dimensions[d];
    const std::uint64_t inner = span - (extent - 1) * stride;
    std::uint64_t i = at + inner > low_ ? 0 : (low_ - at - inner) / stride + 1;
    for (at += i * stride; i < extent && at < high_; ++i, at += stride)
      if (!mark(one, d + 1, at, inner)) return false;
    return true;
  }
  bool mark_run(std::uint64_t from, std::uint64_t to) {
    if (from >= to) return true;
    if ((++marked_ & 0xffff) == 0 && !ended_) ended_ = stopped_();
    if (ended_) return true;
    std::uint64_t bit = (from - low_) / granule_;
    for (std::uint64_t left = (to - from) / granule_; left > 0;) {
      const std::uint64_t n = std::min(left, 64 - bit % 64);
      const std::uint64_t mask = (n == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1) << (bit % 64);
      std::uint64_t& word = taken_[static_cast<std::size_t>(bit / 64)];
      if ((word & mask) != 0) return false;
      word |= mask;
      bit += n;
      left -= n;
    }
    return true;
  }

  Stopped stopped_;
  std::vector<std::uint64_t> taken_;
  std::uint64_t granule_ = 1, low_ = 0, high_ = 0, marked_ = 0;
  bool ended_ = false;
};

}  // namespace tensorpull::python
