// The elements of an average: how every dtype becomes a sum, and a sum an element again; and the loops that do it for
// many.
//
// Sums are float32 for FP8, F16, BF16, F32 and C64, float64 for F64 and for integers (exact up to 2^53). Averages of
// integers are rounded to nearest even and saturated. BOOL, the packed types and F8_E8M0 (scales of block formats:
// their mean scales nothing) have none.
#pragma once

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/core/detail/float_format.hpp>
#include <tensorpull/core/dtype.hpp>

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

namespace tensorpull::detail {

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
