// The part of Python's literals that the header of an npy file consists of. Decides what is a string, an integer, a truth value or a tuple
// of integers; anything else is `other` or an error. Sees no byte twice, allocates nothing, nests no deeper than Python's own parser.
#pragma once

#include <tensorpull/core/checked.hpp>
#include <tensorpull/tensors/numpy_files/detail/python_text.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tensorpull::detail {

enum class literal_kind : std::uint8_t { text, integer, truth, integers, other };

/// A value. Text and the integers of a tuple lie in the parser, until the next value.
struct literal {
  literal_kind kind = literal_kind::other;
  bool truth = false;
  bool has_sign = false;
  bool negative = false;      // an integer with the sign -
  bool out_of_range = false;  // an integer above 2^64 - 1
  std::uint64_t integer = 0;
};

/// Reads literals as `ast.literal_eval` does: in brackets, white space, ends of lines and comments are skipped. The text has no NUL.
class literal_parser : public python_text {
 public:
  /// NumPy's most dimensions.
  static constexpr std::size_t most_integers = 64;
  /// Brackets within brackets, as Python's own parser allows.
  static constexpr int most_brackets = 200;

  /// `long_suffix`: an integer may be followed by L, as Python 2 wrote it.
  constexpr literal_parser(std::string_view text, bool long_suffix) noexcept : python_text(text), long_suffix_(long_suffix) {}

  /// The elements of the last tuple, at most most_integers of them.
  constexpr const std::array<std::uint64_t, most_integers>& integers() const noexcept { return integers_; }
  /// How many the tuple has; more than most_integers where it was longer.
  constexpr std::size_t integer_count() const noexcept { return integer_count_; }
  /// Whether each of them was in 0...2^64 - 1.
  constexpr bool integers_fit() const noexcept { return integers_fit_; }

  /// One value and the white space behind it. Nothing: Python rejects the text, or the value is one that no header needs.
  constexpr std::optional<literal> value(int brackets) noexcept {
    if (!skip_space()) return std::nullopt;
    std::optional<literal> v;
    const char c = peek();
    if (c == '(') v = bracketed(brackets + 1);
    else if (c == '+' || c == '-') v = with_sign(brackets);
    else if (c >= '0' && c <= '9') v = number();
    else if (take_word("True")) v = literal{literal_kind::truth, true};
    else if (take_word("False")) v = literal{literal_kind::truth, false};
    else if (take_word("None")) v = literal{};
    else if (take_strings()) v = literal{literal_kind::text};
    if (!v || !skip_space()) return std::nullopt;
    return v;
  }

 private:
  /// A value in parentheses, or a tuple.
  constexpr std::optional<literal> bracketed(int brackets) noexcept {
    if (brackets > most_brackets || !take('(') || !skip_space()) return std::nullopt;
    std::size_t count = 0;
    bool fit = true, all_integers = true;
    if (!take(')')) {
      for (;;) {
        const auto v = value(brackets);
        if (!v) return std::nullopt;
        if (count == 0 && take(')')) return v;
        all_integers = all_integers && v->kind == literal_kind::integer;
        fit = fit && !v->out_of_range && (!v->negative || v->integer == 0);
        if (count < most_integers) integers_[count] = v->integer;
        ++count;
        if (take(')')) break;
        if (!take(',') || !skip_space()) return std::nullopt;
        if (take(')')) break;
      }
    }
    integer_count_ = count;
    integers_fit_ = fit;
    return literal{all_integers ? literal_kind::integers : literal_kind::other};
  }

  constexpr std::optional<literal> with_sign(int brackets) noexcept {
    const bool minus = peek() == '-';
    ++at_;
    if (!skip_space() || !(peek() == '(' || is_digit(peek()))) return std::nullopt;
    auto v = value(brackets);
    if (!v || v->kind != literal_kind::integer || v->has_sign) return std::nullopt;
    v->negative = minus;
    v->has_sign = true;  // a second one would be an expression
    return v;
  }

  constexpr std::optional<literal> number() noexcept {
    literal v{literal_kind::integer};
    unsigned base = 10;
    const char mark = static_cast<char>(peek(1) | 0x20);
    if (peek() == '0' && (mark == 'x' || mark == 'o' || mark == 'b')) {
      base = mark == 'x' ? 16 : mark == 'o' ? 8 : 2;
      at_ += 2;
      take('_');
    }
    const bool leading_zero = base == 10 && peek() == '0';
    for (bool first = true;; first = false) {
      if (!first && peek() == '_') ++at_;
      else if (!first && digit_value(peek()) >= base) break;
      const unsigned digit = digit_value(peek());
      if (digit >= base) return std::nullopt;
      ++at_;
      const auto product = checked_multiply(v.integer, base);
      const auto sum = product ? checked_add(*product, digit) : product;
      v.out_of_range = v.out_of_range || !sum;
      v.integer = sum ? *sum : 0;
    }
    if (leading_zero && (v.integer != 0 || v.out_of_range)) return std::nullopt;
    if (long_suffix_)
      for (std::size_t before = at_;; before = at_) {
        if (!skip_space()) return std::nullopt;
        if (peek() == 'L' && !is_word(peek(1)) && peek(1) != '\'' && peek(1) != '"') ++at_;
        else return at_ = before, finished(v);
      }
    return finished(v);
  }
  /// A number ends before a word or a point begins.
  constexpr std::optional<literal> finished(literal v) const noexcept {
    if (is_word(peek()) || peek() == '.') return std::nullopt;
    return v;
  }

  bool long_suffix_;
  std::array<std::uint64_t, most_integers> integers_{};
  std::size_t integer_count_ = 0;
  bool integers_fit_ = true;
};

}  // namespace tensorpull::detail
