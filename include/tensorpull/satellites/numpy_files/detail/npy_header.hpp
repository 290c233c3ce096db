// The header of an npy file. An npy file is whatever NumPy's own reader accepts.
//
// The reference is numpy.lib.format.read_array(allow_pickle=False): versions 1, 2 and 3; at most 10,000 characters of
// header; bytes behind the array are ignored. The text is a Python literal, so it can be spelt in several ways.
#pragma once

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/core/checked.hpp>
#include <tensorpull/image/utf8.hpp>
#include <tensorpull/satellites/numpy_files/detail/python_literal.hpp>
#include <tensorpull/tensors/numpy/numpy_descr.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

namespace tensorpull {

struct npy_header {
  numpy_format format;
  /// The first index changes fastest in the file.
  bool fortran_order = false;
  std::uint8_t rank = 0;
  std::array<std::uint64_t, detail::literal_parser::most_integers> shape{};
  /// The array's bytes are [data_offset, data_offset + data_bytes) of the file.
  std::uint64_t data_offset = 0, data_bytes = 0;

  constexpr std::span<const std::uint64_t> extents() const noexcept { return {shape.data(), rank}; }
};

/// NumPy's limit, against headers that take long to evaluate.
inline constexpr std::size_t npy_header_characters = 10'000;
/// The most bytes of a header: magic string, version, length, and the characters in UTF-8.
inline constexpr std::size_t npy_header_most_bytes = 12 + 4 * npy_header_characters;
/// A shorter file is not an npy file.
inline constexpr std::size_t npy_header_least_bytes = 12;

namespace detail {

inline constexpr std::string_view npy_magic = "\x93NUMPY";

/// The dict of an npy header. Errors: bad_file, unsupported_dtype.
class npy_dict {
 public:
  constexpr npy_dict(std::string_view text, unsigned version) noexcept : in_(text, version < 3), version_(version) {}

  constexpr result<void> read(npy_header& out) noexcept {
    int brackets = 0;
    if (!skip_to_first_line()) return failure(errc::bad_file);
    while (in_.take('('))
      if (++brackets > literal_parser::most_brackets || !in_.skip_space()) return failure(errc::bad_file);
    if (const auto done = read_pairs(brackets + 1, out); !done) return done;
    for (; brackets > 0; --brackets)
      if (!in_.skip_space() || !in_.take(')')) return failure(errc::bad_file);
    if (!only_blank_lines_left() || seen_ != 7) return failure(errc::bad_file);
    return {};
  }

 private:
  /// Outside brackets an indented line is an error in Python, but for blanks at the start of the text, which are
  /// stripped from it.
  constexpr bool skip_to_first_line() noexcept {
    while (in_.take(' ') || in_.take('\t')) {
    }
    for (;;) {
      const bool indented = skip_blanks();
      if (in_.peek() == '#') in_.skip_comment();
      if (in_.at_end()) return false;
      if (in_.take_line_end()) continue;
      if (indented) return false;
      if (!in_.take('\\')) return true;
      if (!in_.take_line_end()) return false;
    }
  }
  constexpr bool only_blank_lines_left() noexcept {
    for (bool first = true;; first = false) {
      const bool indented = skip_blanks();
      const bool comment = in_.peek() == '#';
      if (comment) in_.skip_comment();
      // a last line of blanks without an end: NumPy mends that (only) in the versions that Python 2 wrote
      if (in_.at_end()) return first || comment || !indented || version_ < 3;
      if (!in_.take_line_end()) return false;
    }
  }
  /// Whether the line is indented then: a form feed starts the count anew.
  constexpr bool skip_blanks() noexcept {
    for (bool indented = false;;) {
      if (in_.take('\f')) indented = false;
      else if (in_.take(' ') || in_.take('\t')) indented = true;
      else return indented;
    }
  }

  /// The bit of a field, or 0.
  static constexpr unsigned field_of(std::string_view name) noexcept {
    if (name == "descr") return 1;
    if (name == "fortran_order") return 2;
    return name == "shape" ? 4 : 0;
  }
  constexpr result<void> read_pairs(int brackets, npy_header& out) noexcept {
    if (brackets > literal_parser::most_brackets || !in_.take('{') || !in_.skip_space()) return failure(errc::bad_file);
    while (!in_.take('}')) {
      const auto key = in_.value(brackets);
      if (!key || key->kind != literal_kind::text) return failure(errc::bad_file);
      const std::string_view name = in_.string().view();
      const unsigned field = field_of(name);
      if (field == 0 || !in_.take(':') || !in_.skip_space()) return failure(errc::bad_file);
      if (field == 1 && in_.peek() == '[') return failure(errc::unsupported_dtype);  // a structure
      const auto value = in_.value(brackets);
      if (!value) return failure(errc::bad_file);
      if (const auto done = take_field(field, *value, out); !done) return done;
      seen_ |= field;
      if (in_.take('}')) break;
      if (!in_.take(',') || !in_.skip_space()) return failure(errc::bad_file);
    }
    return {};
  }

  constexpr result<void> take_field(unsigned field, const literal& value, npy_header& out) noexcept {
    if (field == 1) {
      if (value.kind != literal_kind::text) return failure(errc::unsupported_dtype);
      const auto format = parse_numpy_descr(in_.string().view());
      if (!format) return failure(format.error());
      out.format = *format;
    } else if (field == 2) {
      if (value.kind != literal_kind::truth) return failure(errc::bad_file);
      out.fortran_order = value.truth;
    } else {
      if (value.kind != literal_kind::integers || !in_.integers_fit() || in_.integer_count() > in_.integers().size())
        return failure(errc::bad_file);
      out.rank = static_cast<std::uint8_t>(in_.integer_count());
      out.shape = in_.integers();
    }
    return {};
  }

  literal_parser in_;
  unsigned version_;
  unsigned seen_ = 0;
};

/// Bytes of the array, as NumPy counts them: a dimension of 0 does not excuse others that are too large. Nothing above
/// 2^63 - 1.
constexpr std::optional<std::uint64_t> npy_data_bytes(const npy_header& header) noexcept {
  std::uint64_t bytes = bits(header.format.type) / 8;
  bool empty = false;
  for (const std::uint64_t extent : header.extents()) {
    empty = empty || extent == 0;
    const auto product = checked_multiply(bytes, extent == 0 ? 1 : extent);
    if (!product || *product > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) return std::nullopt;
    bytes = *product;
  }
  return empty ? 0 : bytes;
}

}  // namespace detail

/// The bytes of a file's header, at most npy_header_most_bytes, by its first npy_header_least_bytes.
[[nodiscard]] inline std::size_t npy_header_bytes(std::span<const std::byte, npy_header_least_bytes> start) noexcept {
  const std::uint64_t bytes = start[6] == std::byte{1} ? 10 + load_le16(&start[8]) : 12 + load_le32(&start[8]);
  return static_cast<std::size_t>(std::min<std::uint64_t>(bytes, npy_header_most_bytes));
}

/// `start`: the first bytes of an npy file of `size` bytes, at least its header if it has one. Allocates nothing.
/// Errors: bad_file (NumPy would not read it either; `at`: the first missing byte, if bytes are missing);
/// unsupported_dtype (NumPy may know the type; there is no dtype for it).
[[nodiscard]] inline result<npy_header> parse_npy_header(std::span<const std::byte> start,
                                                         std::uint64_t size) noexcept {
  const std::string_view file(reinterpret_cast<const char*>(start.data()), start.size());
  const auto octet = [&](std::size_t i) { return std::uint64_t{static_cast<unsigned char>(file[i])}; };
  if (!file.starts_with(detail::npy_magic)) return failure(errc::bad_file);
  if (file.size() < 10) return failure(errc::bad_file, file.size());
  const auto version = static_cast<unsigned>(octet(6));
  if (version < 1 || version > 3 || octet(7) != 0) return failure(errc::bad_file, 6);
  const std::size_t text_at = version == 1 ? 10 : 12;
  if (file.size() < text_at) return failure(errc::bad_file, file.size());
  const std::uint64_t length = version == 1 ? load_le16(&file[8]) : load_le32(&file[8]);
  if (!range_within(text_at, length, size)) return failure(errc::bad_file, size);
  if (!range_within(text_at, length, file.size()))
    return failure(errc::bad_file, 8);  // more characters than NumPy reads

  const std::string_view text = file.substr(text_at, static_cast<std::size_t>(length));
  if (version == 3 && !is_utf8(text)) return failure(errc::bad_file, text_at);
  const auto inner = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; };
  const auto characters = text.size() -
                          (version == 3 ? static_cast<std::size_t>(std::count_if(text.begin(), text.end(), inner)) : 0);
  if (characters > npy_header_characters || text.find('\0') != text.npos) return failure(errc::bad_file, text_at);

  npy_header header;
  if (const auto done = detail::npy_dict(text, version).read(header); !done) return failure(done.error().code, text_at);
  const auto bytes = detail::npy_data_bytes(header);
  if (!bytes) return failure(errc::bad_file, text_at);
  header.data_offset = text_at + length;
  header.data_bytes = *bytes;
  if (!range_within(header.data_offset, header.data_bytes, size)) return failure(errc::bad_file, size);
  return header;
}

}  // namespace tensorpull
