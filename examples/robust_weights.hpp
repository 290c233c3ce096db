// Functions for weighing::finish that look at the Gram matrix of the updates' differences only: no further pass over
// the elements, however often they iterate.
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
        if (j != i) near.push_back(of.product(i, i) + of.product(j, j) - 2 * of.product(i, j));
      std::ranges::sort(near);
      for (std::size_t k = 0; k < n - hostile - 2; ++k) score[i] += near[k];
    }
    std::vector<std::size_t> order(n);
    for (std::size_t i = 0; i < n; ++i) order[i] = i;
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return score[i]; });
    for (std::size_t k = 0; k < n; ++k) to.weights[order[k]] = k < keep ? of.updates[order[k]].weight : 0;
  }
};

/// The geometric median: the model whose weighted distances to all updates have the least sum. Weiszfeld's iteration;
/// the model is a mean of the updates at every step, so its distances follow from the Gram matrix.
struct geometric_median {
  std::size_t steps = 100;

  void operator()(const update_differences& of, const update_weights& to) const {
    const std::size_t n = of.updates.size();
    double scale = 0;
    for (const double norm : of.norms) scale = std::max(scale, norm);
    for (std::size_t i = 0; i < n; ++i) to.weights[i] = of.updates[i].weight;
    std::vector<double> across(n);
    for (std::size_t step = 0; step < steps; ++step) {
      double sum = 0, own = 0;
      for (const double w : to.weights) sum += w;
      for (double& w : to.weights) w /= sum;
      for (std::size_t i = 0; i < n; ++i) {
        across[i] = 0;
        for (std::size_t j = 0; j < n; ++j) across[i] += to.weights[j] * of.product(i, j);
      }
      for (std::size_t i = 0; i < n; ++i) own += to.weights[i] * across[i];
      for (std::size_t i = 0; i < n; ++i) {
        const double squared = of.product(i, i) - 2 * across[i] + own;
        // an update that is the median has no distance: bounded below, as Weiszfeld's iteration needs it
        const double distance = std::max(std::sqrt(std::max(squared, 0.0)), scale * 1e-6);
        to.weights[i] = of.updates[i].weight / (distance > 0 ? distance : 1);
      }
    }
  }
};

}  // namespace examples
