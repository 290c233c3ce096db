// Differences in 8 bits: a scale for each block of N elements, and an integer of -127 to 127 for each element.
//
// For differences only. Weights in 8 bits lose most of what a late round learned; their difference to what the other
// side has keeps it. So there is no function here that narrows without a base.
#pragma once

#include <tensorpull/core/error.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/differences/scheme/moved.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull {

/// Whether a scale that came from outside may be used: zero, or positive, finite and not subnormal. -0.0 may not.
constexpr bool is_scale(float scale) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(scale);
  return bits == 0 || (bits >= 0x800000 && bits < 0x7f800000);
}

/// The scheme. N elements share a scale; with 256, an F32 model travels in 0.254 of its bytes. Everything works on one
/// block of 1 to N elements and allocates nothing.
template <std::size_t N = 256>
struct blocks_of_8_bits {
  static_assert(N > 0, "tensorpull: a block has at least one element");
  static constexpr std::size_t block_elements = N;  ///< that share a scale

  /// How many scales a tensor has.
  static constexpr std::uint64_t blocks(std::uint64_t elements) noexcept {
    return elements / N + (elements % N != 0 ? 1 : 0);
  }

  /// The scale of a block: the largest difference by 127, rounded to a float. 0 if that were subnormal: the block stays
  /// as it is. Requires spans of equal length.
  /// invalid_argument: an element of either is NaN or infinite, or (F64) a difference is too large for a scale; the
  /// error's offset is the element's index in the block, or the block's length if no single one is to blame.
  template <movable_element T>
  [[nodiscard]] static result<float> scale(std::span<const T> model, std::span<const T> base) noexcept {
    constexpr std::uint64_t infinity = 0x7ff0000000000000;
    std::uint64_t largest = 0, largest_value = 0;
    for (std::size_t i = 0; i < model.size(); ++i) {
      const double to = detail::widened(model[i]), from = detail::widened(base[i]);
      const std::uint64_t difference = magnitude(to - from);
      const std::uint64_t value = magnitude(to) > magnitude(from) ? magnitude(to) : magnitude(from);
      largest_value = value > largest_value ? value : largest_value;
      largest = difference > largest ? difference : largest;
    }
    if (largest_value >= infinity) {
      for (std::size_t i = 0; i < model.size(); ++i)
        if (magnitude(detail::widened(model[i])) >= infinity || magnitude(detail::widened(base[i])) >= infinity)
          return failure(errc::invalid_argument, i);
    }
    if (largest >= infinity) return failure(errc::invalid_argument, model.size());
    const auto made = detail::rounded_double<8, 23>(std::bit_cast<double>(largest) / 127.0);
    if (made >= 0x7f800000) return failure(errc::invalid_argument, model.size());
    return made < 0x800000 ? 0.0f : std::bit_cast<float>(made);
  }

  /// The codes of a block, with the scale that scale() gave. Requires spans of equal length.
  template <movable_element T>
  static void narrow(std::span<const T> model, std::span<const T> base, float scale,
                     std::span<std::int8_t> codes) noexcept {
    const double by = scale_or_one(scale);
    const int keep = std::bit_cast<std::uint32_t>(scale) == 0 ? 0 : 127;
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const double difference = detail::widened(model[i]) - detail::widened(base[i]);
      codes[i] = nearest(difference / by, keep);
    }
  }

  /// Moves a block in place. Requires is_scale(scale) and spans of equal length. Every code has a meaning, -128 too.
  /// The same bits at both ends (moved.hpp).
  template <movable_element T>
  static void move(std::span<T> base, float scale, std::span<const std::int8_t> codes) noexcept {
    const double by = detail::widened(scale);
    for (std::size_t i = 0; i < base.size(); ++i) base[i] = moved(base[i], by * static_cast<double>(codes[i]));
  }

  /// What the sender does with its own base after it sent: narrows the block and moves `base` by that, so that it has
  /// the bits of those who received it. The scale, or the error of scale(); then nothing has moved.
  template <movable_element T>
  [[nodiscard]] static result<float> advance(std::span<const T> model, std::span<T> base) noexcept {
    const auto by = scale<T>(model, base);
    if (!by) return by;
    for (std::size_t i = 0; i < base.size(); ++i) {
      std::int8_t code = 0;
      narrow<T>(model.subspan(i, 1), base.subspan(i, 1), *by, {&code, 1});
      move<T>(base.subspan(i, 1), *by, {&code, 1});
    }
    return by;
  }

 private:
  static constexpr std::uint64_t magnitude(double value) noexcept {
    return std::bit_cast<std::uint64_t>(value) & 0x7fffffffffffffff;
  }
  static constexpr double scale_or_one(float scale) noexcept {
    return std::bit_cast<std::uint32_t>(scale) == 0 ? 1.0 : detail::widened(scale);
  }
  /// Rounded to nearest even on bits, so that no flag makes two readings of one element differ.
  static constexpr std::int8_t nearest(double value, int most) noexcept {
    const std::uint64_t bits = std::bit_cast<std::uint64_t>(value), exponent = bits >> 52 & 0x7ff;
    if (exponent < 1022) return 0;
    std::int64_t rounded = 128;
    if (exponent < 1030)
      rounded = static_cast<std::int64_t>(
          detail::cut_double((bits & 0xfffffffffffff) | 0x10000000000000, static_cast<unsigned>(1075 - exponent)));
    if (rounded > most) rounded = most;
    return static_cast<std::int8_t>(bits >> 63 != 0 ? -rounded : rounded);
  }
};

}  // namespace tensorpull
