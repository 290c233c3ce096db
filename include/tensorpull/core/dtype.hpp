// The element types of a tensor: those of safetensors 0.8, in the order that the reference library sorts by.
#pragma once

#include <tensorpull/core/detail/float_format.hpp>
#include <tensorpull/std/optional.hpp>

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>

namespace tensorpull {

/// An element type. The values are in the order of the reference library's own enumeration, since an image lists
/// tensors by descending value. Values are also hashed into fingerprints, so a value never changes its meaning.
enum class dtype : std::uint8_t {
  boolean,
  f4,
  f6_e2m3,
  f6_e3m2,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  f8_e8m0,
  f8_e4m3fnuz,
  f8_e5m2fnuz,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  c64,
  f64,
  i64,
  u64,
};

/// How many element types there are.
inline constexpr std::size_t dtype_count = 22;

namespace detail {
struct dtype_row {
  std::string_view name;
  unsigned bits;
};
// clang-format off: a table
inline constexpr dtype_row dtype_rows[dtype_count] = {
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6},     {"F6_E3M2", 6},     {"U8", 8},   {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8},     {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
    {"I16", 16},    {"U16", 16},    {"F16", 16},        {"BF16", 16},       {"I32", 32}, {"U32", 32},
    {"F32", 32},    {"C64", 64},    {"F64", 64},        {"I64", 64},        {"U64", 64},
};
// clang-format on
}  // namespace detail

/// Whether this is one of the enumerators, for a value that came from outside.
constexpr bool is_valid(dtype type) noexcept { return static_cast<std::size_t>(type) < dtype_count; }

/// Bits of one element: 4 or 6 for the packed types, otherwise a multiple of 8; 0 for a value that is no enumerator.
constexpr unsigned bits(dtype type) noexcept {
  return is_valid(type) ? detail::dtype_rows[static_cast<std::size_t>(type)].bits : 0;
}

/// Bytes of the numbers that an element consists of, if these are more than one: their order is then not the same on
/// every machine. 4 for c64, which is two numbers; 0 for types without such numbers.
constexpr unsigned number_bytes(dtype type) noexcept {
  const unsigned n = type == dtype::c64 ? 32 : bits(type);
  return n >= 16 ? n / 8 : 0;
}

/// The name that a safetensors header uses, such as "F32"; "?" for a value that is no enumerator.
constexpr std::string_view to_string(dtype type) noexcept {
  return is_valid(type) ? detail::dtype_rows[static_cast<std::size_t>(type)].name : std::string_view("?");
}

/// The inverse of to_string; nothing for a name that is not known.
constexpr optional<dtype> dtype_from_string(std::string_view name) noexcept {
  for (std::size_t i = 0; i < dtype_count; ++i)
    if (detail::dtype_rows[i].name == name) return static_cast<dtype>(i);
  return {};
}

// Storage for the types that C++ lacks. Those of 16 bits become a float exactly wherever one is wanted, and a float
// becomes one of them, rounded to nearest even: infinity above the largest, NaN stays NaN. Nothing else becomes one of
// them, so that no integer is taken for bits and no double is rounded twice.
/// IEEE 754 binary16.
struct float16 {
  std::uint16_t bits;  ///< as stored

  float16() = default;
  template <std::same_as<float> F>
  constexpr float16(F value) noexcept : bits(detail::f16_format::encode(value)) {}  ///< rounds
  constexpr operator float() const noexcept { return detail::f16_format::decode(bits); }  ///< exact
};
/// The upper half of a float.
struct bfloat16 {
  std::uint16_t bits;  ///< as stored

  bfloat16() = default;
  template <std::same_as<float> F>
  constexpr bfloat16(F value) noexcept : bits(detail::bf16_format::encode(value)) {}  ///< rounds
  constexpr operator float() const noexcept { return std::bit_cast<float>(std::uint32_t{bits} << 16); }  ///< exact
};
// Those of 8 bits hold the bits and have no arithmetic.
/// 5 bits of exponent, 2 of mantissa.
struct float8_e5m2 {
  std::uint8_t bits;  ///< as stored
};
/// 4 bits of exponent, 3 of mantissa; no infinities.
struct float8_e4m3 {
  std::uint8_t bits;  ///< as stored
};
/// 8 bits of exponent and nothing else: a scale.
struct float8_e8m0 {
  std::uint8_t bits;  ///< as stored
};
/// 4 bits of exponent, 3 of mantissa; one zero, no infinities.
struct float8_e4m3fnuz {
  std::uint8_t bits;  ///< as stored
};
/// 5 bits of exponent, 2 of mantissa; one zero, no infinities.
struct float8_e5m2fnuz {
  std::uint8_t bits;  ///< as stored
};

namespace detail {
template <class T>
concept plain_integer = std::integral<T> && !std::same_as<T, bool> && !std::same_as<T, char> &&
                        !std::same_as<T, wchar_t> && !std::same_as<T, char8_t> && !std::same_as<T, char16_t> &&
                        !std::same_as<T, char32_t> && sizeof(T) <= 8;

/// std::complex<float>, recognised by its members: <complex> would bring the streams into every file.
template <class T>
concept complex_of_float = std::same_as<typename T::value_type, float> && sizeof(T) == 8 && requires(const T& z) {
  { z.real() } -> std::same_as<float>;
  { z.imag() } -> std::same_as<float>;
};

template <class T>
constexpr dtype integer_dtype() noexcept {
  constexpr bool is_signed = std::is_signed_v<T>;
  if constexpr (sizeof(T) == 1) return is_signed ? dtype::i8 : dtype::u8;
  else if constexpr (sizeof(T) == 2) return is_signed ? dtype::i16 : dtype::u16;
  else if constexpr (sizeof(T) == 4) return is_signed ? dtype::i32 : dtype::u32;
  else return is_signed ? dtype::i64 : dtype::u64;
}
}  // namespace detail

/// dtype_of<T>::value is the dtype that T stores. There is no `value` for types that store none: characters, std::byte,
/// pointers, enumerations. Specialise it for a type of your own that has exactly the bits of one element.
template <class T>
struct dtype_of {};
// By size, since on some targets int32_t is long and int is a different type of the same size.
template <detail::plain_integer T>
struct dtype_of<T> : std::integral_constant<dtype, detail::integer_dtype<T>()> {};
template <>
struct dtype_of<bool> : std::integral_constant<dtype, dtype::boolean> {};
template <>
struct dtype_of<float> : std::integral_constant<dtype, dtype::f32> {};
template <>
struct dtype_of<double> : std::integral_constant<dtype, dtype::f64> {};
template <detail::complex_of_float T>
struct dtype_of<T> : std::integral_constant<dtype, dtype::c64> {};
template <>
struct dtype_of<float16> : std::integral_constant<dtype, dtype::f16> {};
template <>
struct dtype_of<bfloat16> : std::integral_constant<dtype, dtype::bf16> {};
// The compiler's own, if it has them: std::float16_t is _Float16. On AArch64 GCC 12 has the macro, and the type in C
// only.
#if defined(__FLT16_MANT_DIG__) && (defined(__clang__) || defined(__x86_64__) || defined(__i386__) || __GNUC__ >= 13)
template <>
struct dtype_of<_Float16> : std::integral_constant<dtype, dtype::f16> {};
#endif
#if defined(__STDCPP_BFLOAT16_T__)
template <>
struct dtype_of<decltype(0.0bf16)> : std::integral_constant<dtype, dtype::bf16> {};
#endif
template <>
struct dtype_of<float8_e5m2> : std::integral_constant<dtype, dtype::f8_e5m2> {};
template <>
struct dtype_of<float8_e4m3> : std::integral_constant<dtype, dtype::f8_e4m3> {};
template <>
struct dtype_of<float8_e8m0> : std::integral_constant<dtype, dtype::f8_e8m0> {};
template <>
struct dtype_of<float8_e4m3fnuz> : std::integral_constant<dtype, dtype::f8_e4m3fnuz> {};
template <>
struct dtype_of<float8_e5m2fnuz> : std::integral_constant<dtype, dtype::f8_e5m2fnuz> {};

/// A type whose objects are elements of a tensor.
template <class T>
concept tensor_scalar = requires {
  { dtype_of<T>::value } -> std::convertible_to<dtype>;
} && std::is_trivially_copyable_v<T> && sizeof(T) * 8 == bits(dtype_of<T>::value);

static_assert(sizeof(bool) == 1 && sizeof(float) == 4 && std::numeric_limits<float>::is_iec559,
              "tensorpull needs IEEE 754 floats");
static_assert(tensor_scalar<float> && tensor_scalar<bfloat16> && !tensor_scalar<std::byte> && !tensor_scalar<char>);

}  // namespace tensorpull
