// Slices of many models side by side: elements become doubles, as many at a time as stay in the cache, and what is
// computed of them: products, and an order by a network of comparisons.
#pragma once

#include <tensorpull/consumers/average/detail/elements.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace tensorpull::detail {

/// Elements of a slice of one model: 4 KiB as doubles, so that those of ten models stay in a first-level cache. A
/// multiple of sum_block.
inline constexpr std::size_t slice_elements = 512;

/// A sum that keeps what its additions lose (Neumaier, "Rundungsfehleranalyse einiger Verfahren zur Summation endlicher
/// Summen", 1974).
struct compensated_sum {
  double sum = 0, lost = 0;

  void add(double value) noexcept {
    const double next = sum + value;
    lost += std::abs(sum) >= std::abs(value) ? (sum - next) + value : (value - next) + sum;
    sum = next;
  }
  /// An infinity stays one: what it has lost is no number.
  double value() const noexcept { return std::isfinite(sum) ? sum + lost : sum; }
};

/// The dot product of two slices, in `sum_block` sums side by side, which are added in one order.
inline double product(const double* __restrict a, const double* __restrict b, std::size_t n) noexcept {
  double sums[sum_block]{};
  for (std::size_t left = n / sum_block; left > 0; --left, a += sum_block, b += sum_block)
    for (std::size_t j = 0; j < sum_block; ++j) sums[j] += a[j] * b[j];
  for (std::size_t j = 0; j < n % sum_block; ++j) sums[j] += a[j] * b[j];
  double all = 0;
  for (const double s : sums) all += s;
  return all;
}

/// to[i] = element i, as an image in the machine's byte order has it.
template <class E>
void read_slice(double* __restrict to, const std::byte* __restrict from, std::size_t n) noexcept {
  for (std::size_t i = 0; i < n; ++i) to[i] = static_cast<double>(E::held(from + i * E::bytes));
}

/// f(i, j), i < j, for the comparisons that order n values: Batcher's network of merges by odd and even places
/// ("Sorting networks and their applications", 1968).
template <class F>
void for_each_comparison(std::size_t n, F&& f) noexcept {
  for (std::size_t p = 1; p < n; p *= 2)
    for (std::size_t k = p; k >= 1; k /= 2)
      for (std::size_t j = k % p; j + k < n; j += 2 * k)
        for (std::size_t i = 0; i < k && i + j + k < n; ++i)
          if ((i + j) / (2 * p) == (i + j + k) / (2 * p)) f(i + j, i + j + k);
}

/// The smaller of each two into `low`, the greater into `high`: whole slices, so that compilers vectorise it.
inline void order(double* __restrict low, double* __restrict high) noexcept {
  for (std::size_t i = 0; i < slice_elements; i += sum_block) {
    double least[sum_block], most[sum_block];
    for (std::size_t j = 0; j < sum_block; ++j) least[j] = low[i + j] < high[i + j] ? low[i + j] : high[i + j];
    for (std::size_t j = 0; j < sum_block; ++j) most[j] = low[i + j] > high[i + j] ? low[i + j] : high[i + j];
    for (std::size_t j = 0; j < sum_block; ++j) low[i + j] = least[j];
    for (std::size_t j = 0; j < sum_block; ++j) high[i + j] = most[j];
  }
}

}  // namespace tensorpull::detail
