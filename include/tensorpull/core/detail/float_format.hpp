// The small float formats. They become float32 exactly, and are rounded to nearest even on the way back; NaN stays NaN.
//
// F16, BF16: IEEE 754 and bfloat16. F8_E5M2, F8_E4M3: OCP "8-bit Floating Point Specification" 1.0 (E4M3 is torch's
// float8_e4m3fn). The FNUZ variants: arXiv 2206.02915 (no infinity, no negative zero, one NaN). Values above the
// largest become what torch makes of them: infinity if the format has one, NaN otherwise.
#pragma once

#include <bit>
#include <cstdint>

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
    std::uint32_t code = round(magnitude);
    if (code > largest) code = Specials == float_specials::ieee ? infinity : not_a_number;
    if (magnitude > 0x7f800000) code = not_a_number;
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

}  // namespace tensorpull::detail
