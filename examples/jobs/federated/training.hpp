// A client's local training: mini-batch gradient descent on softmax cross-entropy, in plain loops that vectorise.
#pragma once

#include "perceptron.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace federated {

inline constexpr std::size_t batch_images = 20;

struct training_settings {
  unsigned epochs = 5;
  float learning_rate = 0.3f;
  std::uint64_t seed = 1;
};

/// The working memory of one training at a time (about 100 KB): make it once, for the largest share of images, and use
/// it for every client, so that training allocates nothing.
struct training_scratch {
  explicit training_scratch(std::size_t images_max) : order(images_max) {}

  std::array<pixel_vector, batch_images> input;
  std::array<hidden_vector, batch_images> hidden;
  std::array<hidden_vector, batch_images> hidden_error;
  std::array<class_vector, batch_images> output_error;
  std::vector<std::uint32_t> order;
};

namespace detail {

/// Turns scores into the gradient of the cross-entropy with respect to them: softmax minus the wanted distribution.
inline void softmax_error(class_vector& scores, std::size_t label) {
  const float largest = *std::max_element(scores.begin(), scores.end());
  float sum = 0;
  for (float& score : scores) sum += score = std::exp(score - largest);
  for (float& score : scores) score /= sum;
  scores[label] -= 1.0f;
}

/// One step with the images that `order` names. All errors are computed before a weight changes, so no gradient is
/// stored.
inline void train_batch(perceptron& model, std::span<const digit> images, std::span<const std::uint32_t> order,
                        training_scratch& scratch, float learning_rate) {
  const std::size_t count = order.size();
  for (std::size_t b = 0; b < count; ++b) scale_pixels(images[order[b]], scratch.input[b]);
  for (std::size_t j = 0; j < hidden_units; ++j)
    for (std::size_t b = 0; b < count; ++b)
      scratch.hidden[b][j] = std::max(0.0f, dot(model.hidden_weight[j], scratch.input[b]) + model.hidden_bias[j]);

  for (std::size_t b = 0; b < count; ++b) {
    output_scores(model, scratch.hidden[b], scratch.output_error[b]);
    softmax_error(scratch.output_error[b], images[order[b]].label);
    scratch.hidden_error[b].fill(0);
    for (std::size_t k = 0; k < digit_classes; ++k)
      add_scaled(scratch.hidden_error[b], scratch.output_error[b][k], model.output_weight[k]);
  }

  const float step = -learning_rate / static_cast<float>(count);
  for (std::size_t b = 0; b < count; ++b)
    for (std::size_t k = 0; k < digit_classes; ++k) {
      add_scaled(model.output_weight[k], step * scratch.output_error[b][k], scratch.hidden[b]);
      model.output_bias[k] += step * scratch.output_error[b][k];
    }
  for (std::size_t j = 0; j < hidden_units; ++j)
    for (std::size_t b = 0; b < count; ++b) {
      if (scratch.hidden[b][j] <= 0) continue;  // ReLU's gradient is 0 if its output was 0
      add_scaled(model.hidden_weight[j], step * scratch.hidden_error[b][j], scratch.input[b]);
      model.hidden_bias[j] += step * scratch.hidden_error[b][j];
    }
}

}  // namespace detail

/// Trains in place on one client's images. Allocates only if there are more images than `scratch` was made for.
inline void train(perceptron& model, std::span<const digit> images, training_scratch& scratch,
                  const training_settings& settings) {
  if (scratch.order.size() < images.size()) scratch.order.resize(images.size());
  const std::span<std::uint32_t> order = std::span{scratch.order}.first(images.size());
  std::iota(order.begin(), order.end(), 0u);
  training_random random{derived_seed(settings.seed, 3)};
  for (unsigned epoch = 0; epoch < settings.epochs; ++epoch) {
    shuffle(order, random);
    for (std::size_t begin = 0; begin < order.size(); begin += batch_images)
      detail::train_batch(model, images, order.subspan(begin, std::min(batch_images, order.size() - begin)), scratch,
                          settings.learning_rate);
  }
}

}  // namespace federated
