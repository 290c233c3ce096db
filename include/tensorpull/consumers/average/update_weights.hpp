// The words for the worth of an update: what is known of the updates of a round before they are weighed, and the
// weights that a function of the program's gives them (robust aggregation; norm clipping). weighing.hpp calls the
// function.
#pragma once

#include <tensorpull/consumers/average/update_key.hpp>
#include <tensorpull/image/view.hpp>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <limits>
#include <span>

namespace tensorpull {

/// One whole update, as it is weighed. Its elements are borrowed.
struct whole_update {
  update_peer peer{};  ///< whose it is; each peer has one
  double weight = 0;  ///< its own weight, such as its number of samples: finite, above 0
  source_view model{};  ///< its elements, in plain memory: a model that it landed in, or a mapped safetensors file
};

/// The facts about N updates before they are weighed, in the order of their peers' numbers, however they arrived.
struct update_differences {
  std::span<const whole_update> updates;  ///< N: whose they are, with their own weights
  std::span<const double> norms;  ///< N: the Euclidean norm of update less old model, without counters (weighing)
  std::span<const double> products;  ///< N * N, row by row: the Gram matrix, the dot products of the differences
  double median_weight;  ///< of their own weights; of an even number the lower one in the middle

  /// The dot product of the differences of updates i and j.
  double product(std::size_t i, std::size_t j) const noexcept { return products[i * updates.size() + j]; }
  /// The own weight of update i, but no more than the median: a number of samples is its sender's word, and a sender
  /// with 10^9 of them would decide the mean whatever its norm is.
  double capped_weight(std::size_t i) const noexcept { return std::min(updates[i].weight, median_weight); }
};

/// The worth that a function of the program's gives each update: the result is the old model + sum of weight * scale *
/// difference, divided by the sum of the weights.
struct update_weights {
  std::span<double> weights;  ///< N, to be set: finite, at least 0, not all of them 0
  std::span<double> scales;  ///< N: finite, at least 0; 1 if nothing else is set

  /// A function for weighing.
  template <class F>
  static constexpr bool set_by = std::invocable<F&, const update_differences&, const update_weights&>;
};

/// A difference that is longer than `longest` is shortened to that, and a weight above `heaviest` counts as that.
/// Without them they are the median norm and the median weight (of an even number: the lower one in the middle), so
/// fewer than half of the updates cannot lengthen the step beyond that of an honest one, nor decide where it leads. A
/// norm that is not finite, if such are let through, has weight 0.
struct clip_norms {
  double longest = 0;  ///< 0: the median norm; below 0 and NaN are an error of finish (invalid_argument, without a
                       ///< name)
  double heaviest = 0;  ///< 0: the median weight; infinity: weights are the program's own; others as above

  void operator()(const update_differences& of, const update_weights& to) const noexcept {
    if (!(longest >= 0) || !(heaviest >= 0)) return;  // no weight is set: the program's mistake, and no peer's
    double most = longest;
    const double heavy = heaviest == 0 ? of.median_weight : heaviest;
    if (most == 0) {  // scales are room for as many numbers; they are set below
      std::ranges::transform(of.norms, to.scales.begin(), [](double norm) {
        return std::isfinite(norm) ? norm : std::numeric_limits<double>::infinity();  // NaN has no position in an order
      });
      const auto middle = to.scales.begin() + static_cast<std::ptrdiff_t>((to.scales.size() - 1) / 2);
      std::ranges::nth_element(to.scales, middle);
      most = *middle;
    }
    for (std::size_t i = 0; i < of.norms.size(); ++i) {
      to.weights[i] = std::isfinite(of.norms[i]) ? std::min(of.updates[i].weight, heavy) : 0;
      to.scales[i] = of.norms[i] <= most || !std::isfinite(of.norms[i]) ? 1 : most / of.norms[i];
    }
  }
};

}  // namespace tensorpull
