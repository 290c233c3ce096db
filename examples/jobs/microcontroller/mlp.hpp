// The model that the microcontroller, the clients and the server share: a perceptron 196-39-10 with ReLU, on digits of
// 14 x 14 pixels. Every float is computed in the same order everywhere and no function of a mathematics library is
// called, so all of them find the same digits right, and the same training gives the same bytes.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace microcontroller {

inline constexpr std::size_t pooled_pixels = 196;
inline constexpr std::size_t hidden_units = 39;
inline constexpr std::size_t digit_classes = 10;

/// 8,083 floats in 32,332 bytes. Weights lie as those of torch's Linear layers: out x in.
struct mlp {
  float hidden_weight[hidden_units][pooled_pixels];
  float hidden_bias[hidden_units];
  float output_weight[digit_classes][hidden_units];
  float output_bias[digit_classes];
};

/// A digit whose 28 x 28 pixels were averaged two by two.
struct pooled_digit {
  std::uint8_t label;
  std::array<std::uint8_t, pooled_pixels> pixels;
};
static_assert(sizeof(pooled_digit) == 197 && alignof(pooled_digit) == 1);

namespace detail {

/// e to the power of x, for x <= 0; the relative error is below 1e-6.
constexpr float exp_of_negative(float x) noexcept {
  if (!(x > -87.0f)) return 0;
  const int n = static_cast<int>(x * 1.44269504f - 0.5f);
  // n ln 2 in two parts
  const float r = (x - static_cast<float>(n) * 0.693359375f) + static_cast<float>(n) * 2.12194440e-4f;
  float p = 1.0f / 720;
  for (const float c : {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) p = p * r + c;
  return p * std::bit_cast<float>(static_cast<std::uint32_t>(n + 127) << 23);
}

}  // namespace detail

/// Infers with a model, and trains it one digit at a time. It is the working memory of both: 1.4 KB.
class perceptron {
 public:
  /// The model's answer.
  std::size_t classify(const mlp& model, const pooled_digit& digit) noexcept {
    scores_of(model, digit);
    std::size_t best = 0;
    for (std::size_t k = 1; k < digit_classes; ++k)
      if (scores_[k] > scores_[best]) best = k;
    return best;
  }

  /// One step of gradient descent on the softmax cross-entropy. All errors are computed before a weight changes.
  void train(mlp& model, const pooled_digit& digit, float learning_rate) noexcept {
    scores_of(model, digit);
    float largest = scores_[0], sum = 0;
    for (const float s : scores_) largest = s > largest ? s : largest;
    for (float& s : scores_) sum += s = detail::exp_of_negative(s - largest);
    for (float& s : scores_) s /= sum;
    scores_[digit.label] -= 1.0f;

    for (std::size_t j = 0; j < hidden_units; ++j) {
      if (hidden_[j] <= 0) continue;  // ReLU's gradient is 0 if its output was 0
      float error = 0;
      for (std::size_t k = 0; k < digit_classes; ++k) error += scores_[k] * model.output_weight[k][j];
      const float step = -learning_rate * error;
      for (std::size_t i = 0; i < lit_; ++i) model.hidden_weight[j][at_[i]] += step * value_[i];
      model.hidden_bias[j] += step;
    }
    for (std::size_t k = 0; k < digit_classes; ++k) {
      const float step = -learning_rate * scores_[k];
      for (std::size_t j = 0; j < hidden_units; ++j) model.output_weight[k][j] += step * hidden_[j];
      model.output_bias[k] += step;
    }
  }

 private:
  void scores_of(const mlp& model, const pooled_digit& digit) noexcept {
    lit_ = 0;
    for (std::size_t i = 0; i < pooled_pixels; ++i)
      if (digit.pixels[i] != 0) {
        at_[lit_] = static_cast<std::uint8_t>(i);
        value_[lit_++] = static_cast<float>(digit.pixels[i]) * (1.0f / 255);
      }
    for (std::size_t j = 0; j < hidden_units; ++j) {
      float sum = model.hidden_bias[j];
      for (std::size_t i = 0; i < lit_; ++i) sum += model.hidden_weight[j][at_[i]] * value_[i];
      hidden_[j] = sum > 0 ? sum : 0;
    }
    for (std::size_t k = 0; k < digit_classes; ++k) {
      float sum = model.output_bias[k];
      for (std::size_t j = 0; j < hidden_units; ++j) sum += model.output_weight[k][j] * hidden_[j];
      scores_[k] = sum;
    }
  }

  std::size_t lit_ = 0;  // pixels that are not black: the others cost nothing
  std::array<std::uint8_t, pooled_pixels> at_;
  std::array<float, pooled_pixels> value_;
  std::array<float, hidden_units> hidden_;
  std::array<float, digit_classes> scores_;
};

inline constexpr float learning_rate = 0.05f;

/// How many of `count` digits the model finds right. `between()` is called after each.
template <class Between>
std::size_t count_right(perceptron& with, const mlp& model, const pooled_digit* digits, std::size_t count,
                        Between between) noexcept {
  std::size_t right = 0;
  for (std::size_t i = 0; i < count; ++i) {
    right += with.classify(model, digits[i]) == digits[i].label ? 1 : 0;
    between();
  }
  return right;
}

/// One pass over `count` digits. `between()` is called after each.
template <class Between>
void train(perceptron& with, mlp& model, const pooled_digit* digits, std::size_t count, Between between) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    with.train(model, digits[i], learning_rate);
    between();
  }
}

}  // namespace microcontroller
