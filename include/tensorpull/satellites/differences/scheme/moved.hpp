// An element moved by a step (an applied delta), with the same bits on every machine and with any compiler flags.
//
// moved = round(base + scale * code), with product and sum as doubles, saturated at the largest value. A float times an
// integer of 16 bits or less is exact in a double, so a compiler that contracts multiplication and addition changes
// nothing. All else is done on bits: nothing compares floats, and there are no subnormal doubles. So neither
// -ffast-math nor a processor that treats subnormals as zero changes a bit of F32, F16 and BF16. A subnormal F64 is
// zero on such a processor.
#pragma once

#include <tensorpull/core/dtype.hpp>

#include <bit>
#include <cfloat>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace tensorpull {

/// The elements that a narrowed difference moves.
template <class T>
concept movable_element = std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, float16> ||
                          std::same_as<T, bfloat16>;

namespace detail {

static_assert(std::numeric_limits<double>::is_iec559 && FLT_EVAL_METHOD == 0,
              "tensorpull: differences need doubles of 64 bits that are rounded after each operation");

/// The double with a float's value.
constexpr double widened_float(std::uint32_t bits) noexcept {
  const std::uint32_t magnitude = bits & 0x7fffffff;
  const std::uint64_t sign = std::uint64_t{bits >> 31} << 63;
  // a subnormal is a count of the smallest: exact, and no subnormal in a double
  const double small = static_cast<double>(static_cast<std::int32_t>(magnitude & 0x7fffff)) * 0x1p-149;
  const std::uint64_t special = magnitude >= 0x7f800000 ? std::uint64_t{0x7ff} - 0xff - 896 : 0;
  const std::uint64_t normal = (std::uint64_t{magnitude} << 29) + ((std::uint64_t{896} + special) << 52);
  return std::bit_cast<double>(sign | (magnitude < 0x800000 ? std::bit_cast<std::uint64_t>(small) : normal));
}

constexpr std::uint64_t cut_double(std::uint64_t mantissa, unsigned by) noexcept {
  return (mantissa + (std::uint64_t{1} << (by - 1)) - 1 + (mantissa >> by & 1)) >> by;
}

/// The code of a smaller format nearest to a double, even on a tie; infinity above the largest. A NaN stays one.
template <unsigned ExponentBits, unsigned MantissaBits>
constexpr std::uint32_t rounded_double(double value) noexcept {
  constexpr std::uint64_t rebias = 1023 - ((1u << (ExponentBits - 1)) - 1);
  constexpr unsigned shift = 52 - MantissaBits;
  constexpr std::uint64_t infinity = ((std::uint64_t{1} << ExponentBits) - 1) << MantissaBits;
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const std::uint64_t magnitude = bits & 0x7fffffffffffffff, exponent = magnitude >> 52;
  std::uint64_t code = 0;
  if (exponent > rebias) {
    code = cut_double(magnitude, shift) - (rebias << MantissaBits);
  } else {
    const std::uint64_t by = shift + 1 + (rebias - exponent);
    code = by > 54 ? 0 : cut_double((magnitude & 0xfffffffffffff) | 0x10000000000000, static_cast<unsigned>(by));
  }
  if (code > infinity) code = infinity;
  if (magnitude > 0x7ff0000000000000) code = infinity | std::uint64_t{1} << (MantissaBits - 1);
  return static_cast<std::uint32_t>(code | bits >> 63 << (ExponentBits + MantissaBits));
}

constexpr double widened(float value) noexcept { return widened_float(std::bit_cast<std::uint32_t>(value)); }
constexpr double widened(double value) noexcept { return value; }
constexpr double widened(bfloat16 value) noexcept { return widened_float(std::uint32_t{value.bits} << 16); }
constexpr double widened(float16 value) noexcept {
  const std::uint32_t magnitude = value.bits & 0x7fffu;
  const std::uint32_t sign = std::uint32_t{value.bits & 0x8000u} << 16;
  if (magnitude < 0x400) {
    const double small = static_cast<double>(magnitude) * 0x1p-24;
    return std::bit_cast<double>(std::bit_cast<std::uint64_t>(small) | std::uint64_t{sign} << 32);
  }
  const std::uint32_t rebias = magnitude >= 0x7c00 ? 224u : 112u;
  return widened_float(sign | ((magnitude << 13) + (rebias << 23)));
}

/// A double as the element T, rounded once.
template <movable_element T>
constexpr T narrowed_to(double value) noexcept {
  if constexpr (std::same_as<T, double>) {
    return value;
  } else if constexpr (std::same_as<T, float>) {
    return std::bit_cast<float>(rounded_double<8, 23>(value));
  } else {
    T made{};
    if constexpr (std::same_as<T, float16>) made.bits = static_cast<std::uint16_t>(rounded_double<5, 10>(value));
    else made.bits = static_cast<std::uint16_t>(rounded_double<8, 7>(value));
    return made;
  }
}

/// Calls `f` with an element of the tensor's type if differences of that type are narrowed; otherwise gives `other`.
template <class R, class F>
constexpr R with_movable(dtype type, R other, F&& f) {
  switch (type) {
    case dtype::f32: return f(float{});
    case dtype::f64: return f(double{});
    case dtype::f16: return f(float16{});
    case dtype::bf16: return f(bfloat16{});
    default: return other;
  }
}
constexpr bool is_narrowed(dtype type) noexcept {
  return with_movable(type, false, [](auto) { return true; });
}

template <movable_element T>
using element_bits =
    std::conditional_t<sizeof(T) == 8, std::uint64_t, std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>>;
constexpr bool is_finite(double value) noexcept { return (std::bit_cast<std::uint64_t>(value) >> 52 & 0x7ff) != 0x7ff; }
template <movable_element T>
constexpr bool is_infinite(T value) noexcept {
  using bits = element_bits<T>;
  constexpr bits magnitude = static_cast<bits>(-1) >> 1;
  return (std::bit_cast<bits>(value) & magnitude) ==
         std::bit_cast<bits>(narrowed_to<T>(std::bit_cast<double>(std::uint64_t{0x7ff} << 52)));
}

}  // namespace detail

/// `base` moved by `step`, a finite double. A step of zero keeps all bits, also of -0.0 and of a NaN. A finite value
/// stays finite, although a rounded step may lead beyond the largest.
template <movable_element T>
constexpr T moved(T base, double step) noexcept {
  using bits = detail::element_bits<T>;
  T sum = detail::narrowed_to<T>(detail::widened(base) + step);
  if (detail::is_infinite(sum) && !detail::is_infinite(base))
    sum = std::bit_cast<T>(static_cast<bits>(std::bit_cast<bits>(sum) - 1));
  return std::bit_cast<std::uint64_t>(step) << 1 == 0 ? base : sum;
}

}  // namespace tensorpull
