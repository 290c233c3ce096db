// NumPy's name of an element type, and which dtype that is here. Decides which of NumPy's types can travel.
#pragma once

#include <tensorpull/core/dtype.hpp>
#include <tensorpull/core/result.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tensorpull {

/// The dtype of an array, and how its numbers lie in memory.
struct numpy_format {
  /// The dtype here.
  dtype type = dtype::u8;
  /// Bytes of each number that lies in the other byte order; 0: all as on this machine. 4 for a swapped complex64: two
  /// numbers.
  std::uint8_t swap_bytes = 0;
};

namespace detail {

struct numpy_type_row {
  std::string_view kind;  // with the size, as dtype.str has it after the byte order
  char character;  // dtype.char, which numpy.dtype takes as well; '\0': none
  std::string_view name;  // dtype.name
  dtype type;
  std::uint8_t number_bytes;
};
inline constexpr numpy_type_row numpy_types[] = {
    {"b1", '?', "bool", dtype::boolean, 1},
    {"u1", 'B', "uint8", dtype::u8, 1},
    {"i1", 'b', "int8", dtype::i8, 1},
    {"i2", 'h', "int16", dtype::i16, 2},
    {"u2", 'H', "uint16", dtype::u16, 2},
    {"f2", 'e', "float16", dtype::f16, 2},
    {"i4", 'i', "int32", dtype::i32, 4},
    {"u4", 'I', "uint32", dtype::u32, 4},
    {"f4", 'f', "float32", dtype::f32, 4},
    {"c8", 'F', "complex64", dtype::c64, 4},
    {"f8", 'd', "float64", dtype::f64, 8},
    {"i8", 'q', "int64", dtype::i64, 8},
    {"u8", 'Q', "uint64", dtype::u64, 8},
    // Types of the package ml_dtypes: NumPy's own description of them is "<V2" or "|V1", so only the name tells them
    // apart.
    {{}, '\0', "bfloat16", dtype::bf16, 2},
    {{}, '\0', "float8_e5m2", dtype::f8_e5m2, 1},
    {{}, '\0', "float8_e4m3fn", dtype::f8_e4m3, 1},
    {{}, '\0', "float8_e8m0fnu", dtype::f8_e8m0, 1},
    {{}, '\0', "float8_e4m3fnuz", dtype::f8_e4m3fnuz, 1},
    {{}, '\0', "float8_e5m2fnuz", dtype::f8_e5m2fnuz, 1},
};

/// The text behind the byte order: one character, or a kind and a size, which NumPy reads as C's strtol does ("f04" is
/// "f4").
constexpr std::optional<numpy_type_row> numpy_type_of(std::string_view text) noexcept {
  if (text.empty()) return std::nullopt;
  std::size_t at = 1;
  while (at < text.size() && (text[at] == ' ' || (text[at] >= '\t' && text[at] <= '\r'))) ++at;
  if (at < text.size() && text[at] == '+') ++at;
  while (at + 1 < text.size() && text[at] == '0') ++at;
  const std::string_view size = text.substr(at);
  for (const numpy_type_row& row : numpy_types) {
    if (row.kind.empty()) continue;
    if (text.size() == 1 ? text[0] == row.character : text[0] == row.kind[0] && size == row.kind.substr(1)) return row;
  }
  return std::nullopt;
}

}  // namespace detail

/// The format that `numpy.dtype(descr)` has: descr is a dtype's `str` ("<f4", ">i8", "|b1"), `char` ("f"; but not "l"
/// and "p", whose size is the platform's) or `name` ("float32", "bfloat16"). Without a byte order: this machine's.
/// Errors: unsupported_dtype, for what NumPy has and tensorpull does not (objects, strings, dates, structures, long
/// double, complex128, void), and for text that names no type.
[[nodiscard]] constexpr result<numpy_format> parse_numpy_descr(std::string_view descr) noexcept {
  for (const detail::numpy_type_row& row : detail::numpy_types)
    if (descr == row.name) return numpy_format{row.type, 0};
  const char order = descr.empty() ? '\0' : descr[0];
  const bool has_order = order == '<' || order == '>' || order == '=' || order == '|';
  const auto row = detail::numpy_type_of(has_order ? descr.substr(1) : descr);
  if (!row) return failure(errc::unsupported_dtype);
  const bool other = order == (std::endian::native == std::endian::little ? '>' : '<');
  return numpy_format{row->type, other && row->number_bytes > 1 ? row->number_bytes : std::uint8_t{0}};
}

/// The name that `numpy.dtype` takes for this type in the machine's byte order; for the types of ml_dtypes, their name
/// there. Empty for the packed types (F4, F6): no NumPy array holds them as they travel.
[[nodiscard]] constexpr std::string_view numpy_name(dtype type) noexcept {
  for (const detail::numpy_type_row& row : detail::numpy_types)
    if (row.type == type) return row.name;
  return {};
}

static_assert(parse_numpy_descr(std::endian::native == std::endian::little ? ">c8" : "<c8")->swap_bytes == 4 &&
              parse_numpy_descr("|b1")->type == dtype::boolean && !parse_numpy_descr("<c16"));

}  // namespace tensorpull
