// Functions for weighing::finish that look at the Gram matrix of the updates' differences only: no further pass over
// the elements, however often they iterate. A distance that is no number, because an update has NaN or is too large, is
// infinite: that update has weight 0. Own weights are capped at their median, since they are the peers' word.
#pragma once

#include <tensorpull/consumers/average/weighing.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace examples {

using tensorpull::update_differences;
using tensorpull::update_weights;

/// A distance's square, at least 0, of the sum that it is.
inline double squared_distance(double sum) {
  return std::isfinite(sum) ? std::max(sum, 0.0) : std::numeric_limits<double>::infinity();
}
/// That of two updates.
inline double squared_distance(const update_differences& of, std::size_t i, std::size_t j) {
  return squared_distance(of.product(i, i) + of.product(j, j) - 2 * of.product(i, j));
}

/// Krum (Blanchard et al., "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent", 2017): the mean of
/// the `keep` updates that are nearest to their neighbours, if up to `hostile` of N >= 2 * hostile + 3 are hostile.
struct krum {
  std::size_t hostile = 1, keep = 1;

  void operator()(const update_differences& of, const update_weights& to) const {
    const std::size_t n = of.updates.size();
    if (n < 2 * hostile + 3) return;  // no weight is set, which is an error
    std::vector<double> near, score(n);
    for (std::size_t i = 0; i < n; ++i) {
      near.clear();
      for (std::size_t j = 0; j < n; ++j)
        if (j != i) near.push_back(squared_distance(of, i, j));
      std::ranges::sort(near);
      for (std::size_t k = 0; k < n - hostile - 2; ++k) score[i] += near[k];
    }
    std::vector<std::size_t> order(n);
    for (std::size_t i = 0; i < n; ++i) order[i] = i;
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return score[i]; });
    for (std::size_t k = 0; k < n; ++k)
      to.weights[order[k]] = k < keep && std::isfinite(score[order[k]]) ? of.capped_weight(order[k]) : 0;
  }
};

/// The geometric median: the model whose weighted distances to all updates have the least sum. Weiszfeld's iteration
/// from the update that is nearest to all others, so that none that is far away leads to it; the model is a mean of the
/// updates at every step, so its distances follow from the Gram matrix.
struct geometric_median {
  std::size_t steps = 100;

  void operator()(const update_differences& of, const update_weights& to) const {
    const std::size_t n = of.updates.size();
    std::vector<double> across(n), norms(of.norms.begin(), of.norms.end());
    std::ranges::nth_element(norms, norms.begin() + static_cast<std::ptrdiff_t>(n / 2), {}, [](double norm) {
      return squared_distance(norm);  // NaN is infinity
    });
    // an update that is the median has no distance: bounded below, as Weiszfeld's iteration needs it
    const double least = std::max(norms[n / 2] * 1e-6, 1e-150);
    std::size_t nearest = n;
    for (std::size_t i = 0; i < n; ++i) {
      to.weights[i] = 0;
      for (std::size_t j = 0; j < n && std::isfinite(of.norms[i]); ++j)
        if (std::isfinite(of.norms[j])) across[i] += of.capped_weight(j) * std::sqrt(squared_distance(of, i, j));
      if (std::isfinite(of.norms[i]) && (nearest == n || across[i] < across[nearest])) nearest = i;
    }
    if (nearest == n) return;  // no weight is above 0, which is an error
    to.weights[nearest] = 1;
    for (std::size_t step = 0; step < steps; ++step) {
      double sum = 0, own = 0;
      for (const double w : to.weights) sum += w;
      for (double& w : to.weights) w /= sum;
      for (std::size_t i = 0; i < n; ++i) {
        across[i] = 0;
        for (std::size_t j = 0; j < n; ++j)
          if (to.weights[j] > 0) across[i] += to.weights[j] * of.product(i, j);
      }
      for (std::size_t i = 0; i < n; ++i)
        if (to.weights[i] > 0) own += to.weights[i] * across[i];
      for (std::size_t i = 0; i < n; ++i) {
        const double distance = std::sqrt(squared_distance(of.product(i, i) - 2 * across[i] + own));
        to.weights[i] = of.capped_weight(i) / std::max(distance, least);
      }
    }
  }
};

}  // namespace examples
