// Numbers as digits, and hexadecimal digits as numbers, also in constant evaluation.
#pragma once

#include <tensorpull/std/optional.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tensorpull {

/// The hexadecimal digits of an ID, of a reference or of another number, in lower case, without a terminating zero.
template <std::size_t Digits>
struct digits_text {
  char characters[Digits];  ///< all of them
  constexpr const char* data() const noexcept { return characters; }  ///< valid as long as this object
  static constexpr std::size_t size() noexcept { return Digits; }  ///< how many
  constexpr std::string_view view() const noexcept { return {characters, Digits}; }  ///< valid as long as this object
  /// Writes them to a stream, such as std::cout.
  template <class Stream>
    requires requires(Stream& to, std::string_view text) { to << text; }
  friend Stream& operator<<(Stream& to, const digits_text& digits) {
    to << digits.view();
    return to;
  }
};

namespace detail {

/// The digit of the lowest four bits.
constexpr char hex_digit(std::uint64_t value) noexcept { return "0123456789abcdef"[value & 15]; }

/// Writes the 16 digits of a word.
constexpr void put_word(std::uint64_t word, char* to) noexcept {
  for (unsigned i = 0; i < 16; ++i) to[i] = hex_digit(word >> (60 - 4 * i));
}
/// The digits of a word.
constexpr digits_text<16> hex_digits(std::uint64_t word) noexcept {
  digits_text<16> text{};
  put_word(word, text.characters);
  return text;
}

/// The digits of an array of bytes, two for each.
template <template <class, std::size_t> class Array, std::size_t Bytes>
constexpr digits_text<2 * Bytes> hex_digits(const Array<std::byte, Bytes>& bytes) noexcept {
  digits_text<2 * Bytes> text{};
  for (std::size_t i = 0; i < Bytes; ++i) {
    const auto value = std::to_integer<std::uint64_t>(bytes[i]);
    text.characters[2 * i] = hex_digit(value >> 4);
    text.characters[2 * i + 1] = hex_digit(value);
  }
  return text;
}

/// The number that 1 to 16 digits of either case spell, and nothing else.
constexpr optional<std::uint64_t> hex_number(std::string_view text) noexcept {
  if (text.empty() || text.size() > 16) return {};
  std::uint64_t n = 0;
  for (const char c : text) {
    std::uint64_t digit = 0;
    if (c >= '0' && c <= '9') digit = static_cast<std::uint64_t>(c - '0');
    else if (c >= 'a' && c <= 'f') digit = static_cast<std::uint64_t>(c - 'a') + 10;
    else if (c >= 'A' && c <= 'F') digit = static_cast<std::uint64_t>(c - 'A') + 10;
    else return {};
    n = n << 4 | digit;
  }
  return n;
}

/// The octet that the percent sign at `at` and the two digits behind it stand for (RFC 3986, 2.1). Nothing: there are
/// not two.
constexpr optional<char> percent_octet(std::string_view text, std::size_t at) noexcept {
  const auto n = text.size() - at > 2 ? hex_number(text.substr(at + 1, 2)) : optional<std::uint64_t>();
  if (!n) return {};
  return static_cast<char>(static_cast<unsigned char>(*n));
}

/// Reads a word: exactly 16 digits of either case. False: the text is something else.
constexpr bool take_word(std::string_view text, std::uint64_t& word) noexcept {
  const auto n = text.size() == 16 ? hex_number(text) : optional<std::uint64_t>();
  word = n.value_or(0);
  return n.has_value();
}

/// A number that no 64 bits hold, as decimal_number() reads it.
inline constexpr std::uint64_t beyond_64_bits = ~std::uint64_t{0};
/// The number that decimal digits spell, without a sign or anything else. A number that 64 bits do not hold is read as
/// beyond_64_bits.
constexpr optional<std::uint64_t> decimal_number(std::string_view text) noexcept {
  if (text.empty()) return {};
  std::uint64_t n = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return {};
    const auto digit = static_cast<std::uint64_t>(c - '0');
    // a constant is compared: small machines have no division of 64 bits
    n = n > beyond_64_bits / 10 || n * 10 > beyond_64_bits - digit ? beyond_64_bits : n * 10 + digit;
  }
  return n;
}

/// The decimal digits of a number.
class decimal {
 public:
  explicit constexpr decimal(std::uint64_t n) noexcept {
    do digits_[--first_] = static_cast<char>('0' + n % 10);
    while ((n /= 10) != 0);
  }
  constexpr const char* data() const noexcept { return digits_ + first_; }
  constexpr std::size_t size() const noexcept { return sizeof digits_ - first_; }
  constexpr std::string_view view() const noexcept { return {data(), size()}; }

 private:
  char digits_[20]{};
  std::size_t first_ = sizeof digits_;
};

}  // namespace detail

}  // namespace tensorpull
