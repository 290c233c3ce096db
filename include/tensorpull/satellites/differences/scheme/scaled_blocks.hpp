// Quantised differences in 8 or 4 bits (blockwise int8 and int4): a scale for each block of N elements, and an integer
// of -127 to 127, or -7 to 7, for each element.
//
// For differences only. Weights in 8 bits lose most of what a late round learned; their difference to what the other
// side has keeps it. So no function here narrows without a base. In 4 bits, a sender whose base does not become what it
// sent also needs error_feedback.hpp.
#pragma once

#include <tensorpull/core/dtype.hpp>
#include <tensorpull/core/error.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/satellites/differences/scheme/moved.hpp>
#include <tensorpull/satellites/differences/scheme/narrowed_tensors.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

namespace tensorpull {

/// Whether a scale from outside may be used: zero, or positive, finite and not subnormal. -0.0 may not.
constexpr bool is_scale(float scale) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(scale);
  return bits == 0 || (bits >= 0x800000 && bits < 0x7f800000);
}

/// The scheme. N elements share a scale; with 256, an F32 model takes 0.254 of its bytes in 8 bits, and 0.129 in 4.
/// Everything works on one block of 1 to N elements and allocates nothing. In 4 bits a byte has two codes in two's
/// complement, the first in the lower half; a block begins with a byte, so N is even. `Which`: the tensors that are
/// narrowed; others travel whole.
template <std::size_t N, unsigned Bits, tensor_filter Which = matrices>
struct scaled_blocks {
  static_assert(N > 0, "tensorpull: a block has at least one element");
  static_assert(Bits == 8 || (Bits == 4 && N % 2 == 0),
                "tensorpull: codes have 8 bits, or 4 in blocks of an even number of elements");
  static constexpr std::size_t block_elements = N;  ///< that share a scale
  static constexpr std::size_t byte_elements = 8 / Bits;  ///< whose codes are in one byte
  static constexpr int most = (1 << (Bits - 1)) - 1;  ///< the largest code that is sent, and less the smallest
  /// A byte of codes.
  using code_type = std::conditional_t<Bits == 8, std::int8_t, std::uint8_t>;
  static constexpr dtype code_dtype = Bits == 8 ? dtype::i8 : dtype::u8;  ///< of the tensor that has them
  /// The metadata key for N.
  static constexpr std::string_view key = Bits == 8 ? "tensorpull.blocks_of_8_bits" : "tensorpull.blocks_of_4_bits";

  /// Whether a tensor is narrowed: otherwise it travels whole.
  static constexpr bool narrows(std::string_view name, dtype type, std::span<const std::uint64_t> shape) noexcept {
    return detail::is_narrowed(type) && Which::narrows(name, shape, N);
  }
  /// Bytes of the codes of so many elements.
  static constexpr std::uint64_t code_bytes(std::uint64_t elements) noexcept {
    return elements / byte_elements + (elements % byte_elements != 0 ? 1 : 0);
  }
  /// Scales of so many elements.
  static constexpr std::uint64_t blocks(std::uint64_t elements) noexcept {
    return elements / N + (elements % N != 0 ? 1 : 0);
  }

  /// The scale of a block: the largest difference by `most`, rounded to a float; 0 if that were subnormal, and the
  /// block stays as it is. Requires spans of equal length. invalid_argument: an element of either is NaN or infinite,
  /// or (F64) a difference is too large for a scale; the error's offset is the element's index in the block, or the
  /// block's length if no single element is to blame.
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
    const auto made = detail::rounded_double<8, 23>(std::bit_cast<double>(largest) / most);
    if (made >= 0x7f800000) return failure(errc::invalid_argument, model.size());
    return made < 0x800000 ? 0.0f : std::bit_cast<float>(made);
  }

  /// The codes of a block, with scale()'s scale: each the nearest, or one less if that led across zero and the model is
  /// not there, so that variances do not become negative. Requires spans of equal length, and code_bytes() of it. In 4
  /// bits they begin at an even element of the block, and the rest of the last byte is zero.
  template <movable_element T>
  static void narrow(std::span<const T> model, std::span<const T> base, float scale,
                     std::span<code_type> codes) noexcept {
    const double by = scale_or_one(scale);
    const int keep = std::bit_cast<std::uint32_t>(scale) == 0 ? 0 : most;
    const auto code_of = [&](std::size_t i) {
      const double to = detail::widened(model[i]), from = detail::widened(base[i]);
      const int code = nearest((to - from) / by, keep);
      const bool crosses = is_beyond_zero(from + by * static_cast<double>(code), code) && !is_beyond_zero(to, code);
      if (code == 0 || !crosses) return code;
      return code < 0 ? code + 1 : code - 1;
    };
    if constexpr (Bits == 8) {
      for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::int8_t>(code_of(i));
    } else {
      for (std::size_t i = 0; i < codes.size(); ++i) {
        const int low = code_of(2 * i), high = 2 * i + 1 < model.size() ? code_of(2 * i + 1) : 0;
        codes[i] = static_cast<std::uint8_t>((low & 15) | (high & 15) << 4);
      }
    }
  }

  /// Moves a block in place. Requires is_scale(scale), and spans as of narrow(). Every code is valid, also -128 or -8.
  /// The same bits at both ends (moved.hpp).
  template <movable_element T>
  static void move(std::span<T> base, float scale, std::span<const code_type> codes) noexcept {
    const double by = detail::widened(scale);
    for (std::size_t i = 0; i < base.size(); ++i) base[i] = moved(base[i], by * static_cast<double>(code_at(codes, i)));
  }

  /// The sender's own move: narrows the block and moves `base` by it, so that it has the recipients' bits. The scale,
  /// or the error of scale(); then nothing has moved.
  template <movable_element T>
  [[nodiscard]] static result<float> advance(std::span<const T> model, std::span<T> base) noexcept {
    const auto by = scale<T>(model, base);
    if (!by) return by;
    for (std::size_t i = 0; i < base.size(); ++i) {
      code_type code = 0;
      narrow<T>(model.subspan(i, 1), base.subspan(i, 1), *by, {&code, 1});
      move<T>(base.subspan(i, 1), *by, {&code, 1});
    }
    return by;
  }

 private:
  static constexpr std::uint64_t magnitude(double value) noexcept {
    return std::bit_cast<std::uint64_t>(value) & 0x7fffffffffffffff;
  }
  /// Whether a number is beyond zero in the direction of a code that is not 0.
  static constexpr bool is_beyond_zero(double number, int code) noexcept {
    return magnitude(number) != 0 && (std::bit_cast<std::uint64_t>(number) >> 63 != 0) == (code < 0);
  }
  static constexpr double scale_or_one(float scale) noexcept {
    return std::bit_cast<std::uint32_t>(scale) == 0 ? 1.0 : detail::widened(scale);
  }
  static constexpr int code_at(std::span<const code_type> codes, std::size_t i) noexcept {
    if constexpr (Bits == 8) return codes[i];
    else return ((codes[i / 2] >> (i % 2 * 4) & 15) ^ 8) - 8;
  }
  /// Rounded to nearest even on bits, so that flags cannot make two readings of one element differ.
  static constexpr int nearest(double value, int at_most) noexcept {
    const std::uint64_t bits = std::bit_cast<std::uint64_t>(value), exponent = bits >> 52 & 0x7ff;
    if (exponent < 1022) return 0;
    std::int64_t rounded = 128;
    if (exponent < 1030)
      rounded = static_cast<std::int64_t>(
          detail::cut_double((bits & 0xfffffffffffff) | 0x10000000000000, static_cast<unsigned>(1075 - exponent)));
    if (rounded > at_most) rounded = at_most;
    return static_cast<int>(bits >> 63 != 0 ? -rounded : rounded);
  }
};

/// One byte for each element.
template <std::size_t N = 256, tensor_filter Which = matrices>
using blocks_of_8_bits = scaled_blocks<N, 8, Which>;
/// Half a byte for each element.
template <std::size_t N = 256, tensor_filter Which = matrices>
using blocks_of_4_bits = scaled_blocks<N, 4, Which>;

}  // namespace tensorpull
