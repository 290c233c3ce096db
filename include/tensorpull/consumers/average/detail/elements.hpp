// The elements of an average: how every dtype becomes a sum, and a sum an element again; and the loops that do it for
// many.
//
// The small float formats become float32 exactly, and are rounded to nearest even on the way back.
// F16, BF16: IEEE 754 and bfloat16. F8_E5M2, F8_E4M3: OCP "8-bit Floating Point Specification" 1.0 (E4M3 is torch's
// float8_e4m3fn). The FNUZ variants: arXiv 2206.02915 (no infinity, no negative zero, one NaN). Values above the
// largest become what torch makes of them: infinity if the format has one, NaN otherwise.
//
// Sums are float32 for FP8, F16, BF16, F32 and C64, float64 for F64 and for integers (exact up to 2^53). Averages of
// integers are rounded to nearest even and saturated. BOOL, the packed types and F8_E8M0 (scales of block formats:
// their mean scales nothing) have none.
#pragma once

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/core/dtype.hpp>

#include <bit>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

namespace tensorpull::detail {

/// Which codes are not numbers: IEEE 754's infinities and NaNs; NaN if all bits but the sign are set; NaN where
/// negative zero was.
enum class float_specials : std::uint8_t {
  ieee,
  nan_is_all_ones,
  nan_is_negative_zero,
};

template <class Storage, unsigned ExponentBits, unsigned MantissaBits, int Bias, float_specials Specials>
struct float_format {
  using storage = Storage;

  static constexpr std::uint32_t sign = 1u << (ExponentBits + MantissaBits);
  static constexpr std::uint32_t infinity = sign - (1u << MantissaBits);
  static constexpr std::uint32_t largest = [] {
    switch (Specials) {
      case float_specials::ieee: return infinity - 1;
      case float_specials::nan_is_all_ones: return sign - 2;
      default: return sign - 1;
    }
  }();
  static constexpr std::uint32_t not_a_number = [] {
    switch (Specials) {
      case float_specials::ieee: return infinity | 1u << (MantissaBits - 1);
      case float_specials::nan_is_all_ones: return sign - 1;
      default: return sign;
    }
  }();

  /// Masks instead of branches, so that g++ vectorises a loop over it; subnormals by an exact conversion, not by float
  /// subnormals, so that a process that treats those as zero reads the same.
  static constexpr float decode(Storage code) noexcept {
    if constexpr (Bias == 127) {
      return std::bit_cast<float>(std::uint32_t{code} << shift);
    } else {
      const std::uint32_t magnitude = code & (sign - 1);
      const float small = static_cast<float>(static_cast<std::int32_t>(magnitude)) * smallest;
      const std::uint32_t normal = (magnitude << shift) + (static_cast<std::uint32_t>(127 - Bias) << 23);
      const std::uint32_t is_small = mask(magnitude < (1u << MantissaBits));
      std::uint32_t bits = (std::bit_cast<std::uint32_t>(small) & is_small) | (normal & ~is_small);
      if constexpr (Specials == float_specials::ieee) bits |= mask(magnitude >= infinity) & 0x7f800000;
      if constexpr (Specials == float_specials::nan_is_all_ones) bits |= mask(magnitude == not_a_number) & 0x7fc00000;
      if constexpr (Specials == float_specials::nan_is_negative_zero) bits |= mask(code == not_a_number) & 0x7fc00000;
      return std::bit_cast<float>(bits | (code & sign) << (31 - ExponentBits - MantissaBits));
    }
  }

  static constexpr Storage encode(float value) noexcept {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value), magnitude = bits & 0x7fffffff;
    const std::uint32_t negative = bits >> 31 << (ExponentBits + MantissaBits);
    std::uint32_t code = magnitude > 0x7f800000 ? not_a_number : round(magnitude);
    if (code > largest && code != not_a_number) code = Specials == float_specials::ieee ? infinity : not_a_number;
    if constexpr (Specials == float_specials::nan_is_negative_zero)
      return static_cast<Storage>(code == 0 || code == not_a_number ? code : code | negative);
    else return static_cast<Storage>(code | negative);
  }

 private:
  static constexpr std::uint32_t mask(bool all) noexcept { return 0u - static_cast<std::uint32_t>(all); }

  static constexpr unsigned shift = 23 - MantissaBits;
  /// the value of the smallest positive code
  static constexpr float smallest = Bias == 127
                                        ? 0.0f
                                        : std::bit_cast<float>(
                                              static_cast<std::uint32_t>(128 - Bias - static_cast<int>(MantissaBits))
                                              << 23);

  /// Adding a half (less one unit if the result would be odd) and cutting off rounds to nearest even; a carry into the
  /// exponent is right as it is.
  static constexpr std::uint32_t cut(std::uint32_t mantissa, unsigned by) noexcept {
    return (mantissa + (1u << (by - 1)) - 1 + (mantissa >> by & 1)) >> by;
  }
  static constexpr std::uint32_t round(std::uint32_t magnitude) noexcept {
    constexpr std::uint32_t rebias = static_cast<std::uint32_t>(127 - Bias);
    const std::uint32_t exponent = magnitude >> 23;
    if (Bias == 127 || exponent > rebias) return cut(magnitude, shift) - (rebias << MantissaBits);
    const unsigned by = shift + 1 + (rebias - exponent);
    return by > 25 ? 0 : cut((magnitude & 0x7fffff) | 0x800000, by);
  }
};

using f16_format = float_format<std::uint16_t, 5, 10, 15, float_specials::ieee>;
using bf16_format = float_format<std::uint16_t, 8, 7, 127, float_specials::ieee>;
using f8_e5m2_format = float_format<std::uint8_t, 5, 2, 15, float_specials::ieee>;
using f8_e4m3_format = float_format<std::uint8_t, 4, 3, 7, float_specials::nan_is_all_ones>;
using f8_e5m2fnuz_format = float_format<std::uint8_t, 5, 2, 16, float_specials::nan_is_negative_zero>;
using f8_e4m3fnuz_format = float_format<std::uint8_t, 4, 3, 8, float_specials::nan_is_negative_zero>;

static_assert(f16_format::decode(0x3c00) == 1.0f && f16_format::encode(65520.0f) == 0x7c00 &&
              f16_format::decode(1) == 0x1p-24f);
static_assert(f8_e4m3_format::decode(0x7e) == 448.0f && f8_e4m3fnuz_format::decode(0x7f) == 240.0f &&
              f8_e5m2_format::decode(0x7b) == 57344.0f);

/// The number whose bytes lie at `at` as an image has them.
template <class T>
T load(const std::byte* at) noexcept {
  T value;
  if constexpr (little_endian_machine) {
    std::memcpy(&value, at, sizeof value);
  } else {
    std::byte reversed[sizeof value];
    for (std::size_t i = 0; i < sizeof value; ++i) reversed[i] = at[sizeof value - 1 - i];
    std::memcpy(&value, reversed, sizeof value);
  }
  return value;
}

/// An averaged element type E: `sum` is the type of its sums, `parts` how many of them an element has, `bytes` the size
/// of a part; read() gives a part of an image as a sum, write() rounds a quotient and writes it in the machine's byte
/// order.
template <std::floating_point T, std::size_t Parts = 1>
struct native_float {
  using sum = T;
  static constexpr std::size_t bytes = sizeof(T), parts = Parts;
  static T read(const std::byte* at) noexcept { return load<T>(at); }
  static void write(std::byte* at, double value) noexcept {
    const T rounded = static_cast<T>(value);
    std::memcpy(at, &rounded, sizeof rounded);
  }
};

template <class Format>
struct small_float {
  using sum = float;
  static constexpr std::size_t bytes = sizeof(typename Format::storage), parts = 1;
  static float read(const std::byte* at) noexcept { return Format::decode(load<typename Format::storage>(at)); }
  static void write(std::byte* at, double value) noexcept {
    const auto code = Format::encode(static_cast<float>(value));
    std::memcpy(at, &code, sizeof code);
  }
};

template <std::integral T>
struct integer {
  using sum = double;
  static constexpr std::size_t bytes = sizeof(T), parts = 1;
  static double read(const std::byte* at) noexcept { return static_cast<double>(load<T>(at)); }
  static void write(std::byte* at, double value) noexcept {
    constexpr double least = static_cast<double>(std::numeric_limits<T>::min());
    // one above the largest: a power of two, so exact, unlike the largest itself
    constexpr double past = static_cast<double>(std::numeric_limits<T>::max() / 2 + 1) * 2;
    const double rounded = std::nearbyint(value);
    T result = std::numeric_limits<T>::min();
    if (rounded >= past) result = std::numeric_limits<T>::max();
    else if (rounded > least) result = static_cast<T>(rounded);
    std::memcpy(at, &result, sizeof result);
  }
};

/// Calls f with the element type of a dtype; gives `otherwise` if it cannot be averaged.
template <class F, class R>
constexpr R with_element(dtype type, F&& f, R otherwise) noexcept {
  switch (type) {
    case dtype::f32: return f(native_float<float>{});
    case dtype::f64: return f(native_float<double>{});
    case dtype::c64: return f(native_float<float, 2>{});
    case dtype::f16: return f(small_float<f16_format>{});
    case dtype::bf16: return f(small_float<bf16_format>{});
    case dtype::f8_e5m2: return f(small_float<f8_e5m2_format>{});
    case dtype::f8_e4m3: return f(small_float<f8_e4m3_format>{});
    case dtype::f8_e5m2fnuz: return f(small_float<f8_e5m2fnuz_format>{});
    case dtype::f8_e4m3fnuz: return f(small_float<f8_e4m3fnuz_format>{});
    case dtype::u8: return f(integer<std::uint8_t>{});
    case dtype::i8: return f(integer<std::int8_t>{});
    case dtype::u16: return f(integer<std::uint16_t>{});
    case dtype::i16: return f(integer<std::int16_t>{});
    case dtype::u32: return f(integer<std::uint32_t>{});
    case dtype::i32: return f(integer<std::int32_t>{});
    case dtype::u64: return f(integer<std::uint64_t>{});
    case dtype::i64: return f(integer<std::int64_t>{});
    case dtype::boolean:
    case dtype::f4:
    case dtype::f6_e2m3:
    case dtype::f6_e3m2:
    case dtype::f8_e8m0: break;
  }
  return otherwise;
}

/// Bytes of the sums of one element; 0: this dtype cannot be averaged.
constexpr std::size_t sum_bytes(dtype type) noexcept {
  return with_element(type, []<class E>(E) { return sizeof(typename E::sum) * E::parts; }, std::size_t{0});
}

/// sums[i] += weight * element i, for n parts. Blocks of a constant length, so that compilers vectorise it at -O2 too:
/// there g++ 12 leaves every loop alone whose count it does not know.
template <class E>
void add_weighted(typename E::sum* __restrict sums, const std::byte* __restrict from, std::size_t n,
                  typename E::sum weight) noexcept {
  constexpr std::size_t block = 16;
  for (std::size_t left = n / block; left > 0; --left, sums += block, from += block * E::bytes)
    for (std::size_t j = 0; j < block; ++j) sums[j] += weight * E::read(from + j * E::bytes);
  for (std::size_t j = 0; j < n % block; ++j) sums[j] += weight * E::read(from + j * E::bytes);
}

/// Element i = sums[i] / weight, for n parts; the quotient is a double, rounded once to float32 and, for smaller types,
/// from there.
template <class E>
void write_quotients(std::byte* __restrict to, const typename E::sum* __restrict sums, std::size_t n,
                     double weight) noexcept {
  for (std::size_t i = 0; i < n; ++i) E::write(to + i * E::bytes, static_cast<double>(sums[i]) / weight);
}

static_assert(sum_bytes(dtype::f16) == 4 && sum_bytes(dtype::c64) == 8 && sum_bytes(dtype::i8) == 8 &&
              sum_bytes(dtype::boolean) == 0);

}  // namespace tensorpull::detail
