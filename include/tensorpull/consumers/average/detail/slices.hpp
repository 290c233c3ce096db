// Slices of many models side by side: elements become doubles, as many at a time as stay in the cache, and what is
// computed of them: products, and an order by a network of comparisons.
#pragma once

#include <tensorpull/consumers/average/detail/elements.hpp>
#include <tensorpull/image/schema.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <span>

namespace tensorpull::detail {

/// Elements of a slice of one model: 4 KiB as doubles, so that those of ten models stay in a first-level cache. A
/// multiple of sum_block.
inline constexpr std::size_t slice_elements = 512;

/// f(element, index of the tensor, byte within it, parts) for each slice of these tensors, in order, while it returns
/// true.
template <class F>
void for_each_slice(std::span<const tensor_entry> tensors, F&& f) noexcept {
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const auto call = [&]<class E>(E element) {
      const auto parts = static_cast<std::size_t>(tensors[t].size_bytes() / E::bytes);
      for (std::size_t i = 0; i < parts; i += slice_elements)
        if (!f(element, t, i * E::bytes, std::min(slice_elements, parts - i))) return false;
      return true;
    };
    if (!with_element(tensors[t].type, call, false)) return;
  }
}

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

/// A dot product in four sums side by side: element k is in sum k % 4, and they are added as (0 + 1) + (2 + 3). In
/// vectors of two, which g++ keeps in registers at -O2 too; it keeps an array of sums in memory.
class four_sums {
 public:
  using pair [[gnu::vector_size(2 * sizeof(double))]] = double;

  static pair pair_at(const double* at) noexcept {
    pair x;
    std::memcpy(&x, at, sizeof x);
    return x;
  }
  /// The products of four elements, of which two pairs are at hand.
  void add(const pair& first, const pair& second, const double* others) noexcept {
    low_ += first * pair_at(others);
    high_ += second * pair_at(others + 2);
  }
  double value() const noexcept { return (low_[0] + low_[1]) + (high_[0] + high_[1]); }

 private:
  pair low_{}, high_{};
};

/// to[c].add(the dot product of the slice `a` and slice c of those that begin at `b`), for so many slices; n is a
/// multiple of 4. The sums of four slices are formed at a time, so that `a` is read once for them. A product has the
/// same bits in whatever company.
inline void add_products(compensated_sum* to, const double* a, const double* b, std::size_t slices,
                         std::size_t n) noexcept {
  for (; slices >= 4; slices -= 4, b += 4 * slice_elements) {
    four_sums s0, s1, s2, s3;
    for (std::size_t k = 0; k < n; k += 4) {
      const auto first = four_sums::pair_at(a + k), second = four_sums::pair_at(a + k + 2);
      s0.add(first, second, b + k);
      s1.add(first, second, b + slice_elements + k);
      s2.add(first, second, b + 2 * slice_elements + k);
      s3.add(first, second, b + 3 * slice_elements + k);
    }
    for (const four_sums& s : {s0, s1, s2, s3}) (to++)->add(s.value());
  }
  for (; slices > 0; --slices, b += slice_elements) {
    four_sums s;
    for (std::size_t k = 0; k < n; k += 4) s.add(four_sums::pair_at(a + k), four_sums::pair_at(a + k + 2), b + k);
    (to++)->add(s.value());
  }
}

/// Makes an element from x and an old one: f(to, x, old), for n of them, in blocks of a constant length first. `Held`:
/// how x is read, here and below: E::held, or E::read from an image.
template <class E, auto Held = &E::held, class F>
void for_each_in_slice(double* __restrict to, const std::byte* __restrict from, const double* __restrict old,
                       std::size_t n, F f) noexcept {
  for (std::size_t left = n / sum_block; left > 0; --left, to += sum_block, from += sum_block * E::bytes) {
    for (std::size_t j = 0; j < sum_block; ++j)
      to[j] = f(to[j], static_cast<double>(Held(from + j * E::bytes)), old[j]);
    old += sum_block;
  }
  for (std::size_t j = 0; j < n % sum_block; ++j)
    to[j] = f(to[j], static_cast<double>(Held(from + j * E::bytes)), old[j]);
}

/// to[i] = element i.
template <class E, auto Held = &E::held>
void read_slice(double* __restrict to, const std::byte* __restrict from, std::size_t n) noexcept {
  for (std::size_t left = n / sum_block; left > 0; --left, to += sum_block, from += sum_block * E::bytes)
    for (std::size_t j = 0; j < sum_block; ++j) to[j] = static_cast<double>(Held(from + j * E::bytes));
  for (std::size_t j = 0; j < n % sum_block; ++j) to[j] = static_cast<double>(Held(from + j * E::bytes));
}

/// The share of an element in a norm where its old value is no number: 0, or NaN if the new one is another that is
/// none, which would spoil the mean.
inline double no_difference(double now, double old) noexcept {
  return now == old || (now != now && old != old) ? 0 : now * 0;
}
inline bool all_finite(const double* of, std::size_t n) noexcept {
  return std::all_of(of, of + n, [](double v) { return std::isfinite(v); });
}
/// to[i] = element i less old[i], as norms count it; `numbers`: all old ones are finite. Zeros follow, up to a multiple
/// of 4, which is returned.
template <class E, auto Held = &E::held>
std::size_t read_step(double* to, const std::byte* from, const double* old, std::size_t n, bool numbers) noexcept {
  if (numbers) {
    for_each_in_slice<E, Held>(to, from, old, n, [](double, double x, double was) { return x - was; });
  } else {
    read_slice<E, Held>(to, from, n);
    for (std::size_t k = 0; k < n; ++k) to[k] = std::isfinite(old[k]) ? to[k] - old[k] : no_difference(to[k], old[k]);
  }
  const std::size_t whole = (n + 3) / 4 * 4;
  std::fill(to + n, to + whole, 0.0);
  return whole;
}

/// to[i] += by * (element i less old[i]).
template <class E>
void add_differences(double* to, const std::byte* from, const double* old, std::size_t n, double by) noexcept {
  for_each_in_slice<E>(to, from, old, n, [by](double sum, double x, double was) { return sum + by * (x - was); });
}

/// f(i, j), i < j, for the comparisons that order n values: Batcher's network of merges by odd and even positions
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
