// The elements of an average: how every dtype becomes a sum, and a sum an element again; and the loops that do it for
// many.
//
// Sums are float32 for FP8, F16, BF16, F32 and C64, float64 for F64 and for integers (exact up to 2^53). Averages of
// integers are rounded to nearest even and saturated. BOOL, the packed types and F8_E8M0 (scales of block formats:
// their mean scales nothing) have none.
//
// The sums are of an element's distance from an origin: from zero, or from what the model held before (`old_model`).
#pragma once

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/core/detail/float_format.hpp>
#include <tensorpull/core/dtype.hpp>

#include <array>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

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

/// The number whose bytes lie at `at` as this machine has them.
template <class T>
T load_own(const std::byte* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

/// An averaged element type E: `sum` is the type of its sums, `parts` how many of them an element has, `bytes` the size
/// of a part; read() gives a part of an image as a sum, held() one in the machine's byte order, write() rounds a
/// quotient and writes it in the machine's byte order.
template <std::floating_point T, std::size_t Parts = 1>
struct native_float {
  using sum = T;
  static constexpr std::size_t bytes = sizeof(T), parts = Parts;
  static T read(const std::byte* at) noexcept { return load<T>(at); }
  static T held(const std::byte* at) noexcept { return load_own<T>(at); }
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
  static float held(const std::byte* at) noexcept { return Format::decode(load_own<typename Format::storage>(at)); }
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
  static double held(const std::byte* at) noexcept { return static_cast<double>(load_own<T>(at)); }
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

/// Whether the elements are integers.
template <class E>
inline constexpr bool is_integer = false;
template <class T>
inline constexpr bool is_integer<integer<T>> = true;
constexpr bool has_integers(dtype type) noexcept {
  return with_element(type, []<class E>(E) { return is_integer<E>; }, false);
}

/// The unsigned integer of as many bytes.
template <std::size_t Bytes>
using word_of = std::conditional_t<
    Bytes == 1, std::uint8_t,
    std::conditional_t<Bytes == 2, std::uint16_t, std::conditional_t<Bytes == 4, std::uint32_t, std::uint64_t>>>;

/// By its bits, and by a mask instead of a branch, so that g++ vectorises a loop over it.
template <std::floating_point T>
T finite_or_zero(T value) noexcept {
  using bits = word_of<sizeof(T)>;
  constexpr bits infinity = std::bit_cast<bits>(std::numeric_limits<T>::infinity());
  const bits is = std::bit_cast<bits>(value);
  return std::bit_cast<T>(is & (bits{0} - static_cast<bits>((is & infinity) != infinity)));
}

/// Elements of a block. Blocks of a constant length, so that compilers vectorise them at -O2 too: there g++ 12 leaves
/// every loop alone whose count it does not know.
inline constexpr std::size_t sum_block = 16;

/// An origin of sums: difference() is element i of a block that begins at `x` in an image, less what it is at the
/// origin; advance() goes on to the next block; write() writes element i, for the sum of weight * difference and the
/// sum of the weights. Here: zero.
struct no_old_model {
  template <class E>
  static typename E::sum difference(const std::byte* x, std::size_t i) noexcept {
    return E::read(x + i * E::bytes);
  }
  static void advance(std::size_t) noexcept {}
  template <class E, class Sum>
  static void write(std::byte* to, const Sum* sums, std::size_t n, double weight) noexcept {
    for (std::size_t j = 0; j < n; ++j) E::write(to + j * E::bytes, static_cast<double>(sums[j]) / weight);
  }
};

/// The elements before, in the machine's byte order, from `first` on. An element that is equal to its old value adds 0,
/// whatever the weight is and with or without contraction, so the sum is 0 and the old bits are written: also of -0.0.
/// An old infinity or NaN has no distance, so such an element is summed from zero; its old bits are written if it is
/// NaN still.
struct old_model {
  const std::byte* __restrict first;

  template <class E>
  typename E::sum difference(const std::byte* x, std::size_t i) const noexcept {
    return E::read(x + i * E::bytes) - finite_or_zero(E::held(first + i * E::bytes));
  }
  void advance(std::size_t bytes) noexcept { first += bytes; }
  /// The old elements may lie where the new ones go.
  template <class E, class Sum>
  void write(std::byte* to, const Sum* sums, std::size_t n, double weight) const noexcept {
    if (n == sum_block) return write_block<E>(to, sums, first, weight);
    std::array<Sum, sum_block> few{};
    std::array<std::byte, sum_block * E::bytes> old{}, is;
    std::memcpy(few.data(), sums, n * sizeof(Sum));
    std::memcpy(old.data(), first, n * E::bytes);
    write_block<E>(is.data(), few.data(), old.data(), weight);
    std::memcpy(to, is.data(), n * E::bytes);
  }

 private:
  /// In steps that compilers vectorise one by one.
  template <class E, class Sum>
  static void write_block(std::byte* to, const Sum* sums, const std::byte* from, double weight) noexcept {
    using mask = word_of<sizeof(Sum)>;
    using bits = word_of<E::bytes>;
    std::array<Sum, sum_block> old;
    std::array<mask, sum_block> stays;
    std::array<bits, sum_block> was, is;
    std::array<std::byte, sum_block * E::bytes> moved;
    for (std::size_t j = 0; j < sum_block; ++j) old[j] = E::held(from + j * E::bytes);
    // the old bits are the mean if nothing has moved, or if it is NaN as before: NaN is unequal to itself, an infinity
    // to what it is summed from
    for (std::size_t j = 0; j < sum_block; ++j)
      stays[j] = (mask{finite_or_zero(old[j]) == old[j]} & mask{sums[j] == 0}) |
                 (mask{old[j] != old[j]} & mask{sums[j] != sums[j]});
    for (std::size_t j = 0; j < sum_block; ++j)
      E::write(&moved[j * E::bytes],
               static_cast<double>(finite_or_zero(old[j])) + static_cast<double>(sums[j]) / weight);
    std::memcpy(was.data(), from, sizeof was);
    std::memcpy(is.data(), moved.data(), sizeof is);
    for (std::size_t j = 0; j < sum_block; ++j) {
      const bits kept = static_cast<bits>(bits{0} - static_cast<bits>(stays[j]));
      is[j] = static_cast<bits>((was[j] & kept) | (is[j] & static_cast<bits>(~kept)));
    }
    std::memcpy(to, is.data(), sizeof is);
  }
};

/// sums[i] += weight * difference i, for n parts.
template <class E, class Origin = no_old_model>
void add_weighted(typename E::sum* __restrict sums, const std::byte* __restrict from, std::size_t n,
                  typename E::sum weight, Origin origin = {}) noexcept {
  for (std::size_t left = n / sum_block; left > 0; --left, sums += sum_block, from += sum_block * E::bytes) {
    for (std::size_t j = 0; j < sum_block; ++j) sums[j] += weight * origin.template difference<E>(from, j);
    origin.advance(sum_block * E::bytes);
  }
  for (std::size_t j = 0; j < n % sum_block; ++j) sums[j] += weight * origin.template difference<E>(from, j);
}

/// Element i = what is at the origin + sums[i] / weight, for n parts; that is a double, rounded once to float32 and,
/// for smaller types, from there. The sums are of the element's type of sums, or doubles.
template <class E, class Sum, class Origin = no_old_model>
void write_quotients(std::byte* to, const Sum* __restrict sums, std::size_t n, double weight,
                     Origin origin = {}) noexcept {
  for (std::size_t left = n / sum_block; left > 0; --left, sums += sum_block, to += sum_block * E::bytes) {
    origin.template write<E>(to, sums, sum_block, weight);
    origin.advance(sum_block * E::bytes);
  }
  origin.template write<E>(to, sums, n % sum_block, weight);
}

/// The sums' origin has become what lies at `now`, which they have reached: 0, or what is no number and stays so.
template <class E>
void begin_again(typename E::sum* __restrict sums, const std::byte* __restrict now, std::size_t n) noexcept {
  for (std::size_t i = 0; i < n; ++i) {
    const typename E::sum v = E::held(now + i * E::bytes);
    sums[i] = v - finite_or_zero(v);
  }
}

static_assert(sum_bytes(dtype::f16) == 4 && sum_bytes(dtype::c64) == 8 && sum_bytes(dtype::i8) == 8 &&
              sum_bytes(dtype::boolean) == 0);

}  // namespace tensorpull::detail
