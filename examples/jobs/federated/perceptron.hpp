// The model: a multilayer perceptron 784-128-10 with ReLU, laid out as torch's Linear layers (out x in).
#pragma once

#include "digits.hpp"
#include "training_random.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

namespace federated {

inline constexpr std::size_t hidden_units = 128;

using pixel_vector = std::array<float, digit_pixels>;
using hidden_vector = std::array<float, hidden_units>;
using class_vector = std::array<float, digit_classes>;

/// 101,770 floats in 407,080 bytes. Too large for the stack.
struct perceptron {
  std::array<std::array<float, digit_pixels>, hidden_units> hidden_weight;
  std::array<float, hidden_units> hidden_bias;
  std::array<std::array<float, hidden_units>, digit_classes> output_weight;
  std::array<float, digit_classes> output_bias;
};

/// Uniform within 1/sqrt(inputs), which is torch's default for Linear.
inline void initialise(perceptron& model, std::uint64_t seed) {
  training_random random{derived_seed(seed, 2)};
  const auto fill = [&random](auto& weight, auto& bias) {
    const float bound = 1.0f / std::sqrt(static_cast<float>(weight[0].size()));
    for (auto& row : weight)
      for (float& value : row) value = bound * random.symmetric();
    for (float& value : bias) value = bound * random.symmetric();
  };
  fill(model.hidden_weight, model.hidden_bias);
  fill(model.output_weight, model.output_bias);
}

namespace detail {

/// Sixteen sums side by side: a compiler may not reorder one float sum, but it can keep these in vector registers.
template <std::size_t Size>
float dot(const std::array<float, Size>& a, const std::array<float, Size>& b) {
  constexpr std::size_t lanes = 16;
  static_assert(Size % lanes == 0);
  std::array<float, lanes> sums{};
  for (std::size_t i = 0; i < Size; i += lanes)
    for (std::size_t lane = 0; lane < lanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  for (std::size_t width = lanes / 2; width > 0; width /= 2)
    for (std::size_t lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
  return sums[0];
}

template <std::size_t Size>
void add_scaled(std::array<float, Size>& sum, float factor, const std::array<float, Size>& addend) {
  for (std::size_t i = 0; i < Size; ++i) sum[i] += factor * addend[i];
}

inline void scale_pixels(const digit& image, pixel_vector& input) {
  for (std::size_t i = 0; i < digit_pixels; ++i) input[i] = static_cast<float>(image.pixels[i]) * (1.0f / 255.0f);
}

inline void output_scores(const perceptron& model, const hidden_vector& hidden, class_vector& scores) {
  for (std::size_t k = 0; k < digit_classes; ++k)
    scores[k] = dot(model.output_weight[k], hidden) + model.output_bias[k];
}

}  // namespace detail

/// The share of `images` that the model classifies correctly, from 0 to 1. Allocates nothing.
inline double accuracy(const perceptron& model, std::span<const digit> images) {
  pixel_vector input;
  hidden_vector hidden;
  class_vector scores;
  std::size_t right = 0;
  for (const digit& image : images) {
    detail::scale_pixels(image, input);
    for (std::size_t j = 0; j < hidden_units; ++j)
      hidden[j] = std::max(0.0f, detail::dot(model.hidden_weight[j], input) + model.hidden_bias[j]);
    detail::output_scores(model, hidden, scores);
    if (std::max_element(scores.begin(), scores.end()) - scores.begin() == image.label) ++right;
  }
  return images.empty() ? 0.0 : static_cast<double>(right) / static_cast<double>(images.size());
}

}  // namespace federated
