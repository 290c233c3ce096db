// The part of Python's literals that the header of an npy file uses, and its source text: white space, ends of lines,
// comments, words and strings. A value is a string, an integer, a truth value or a tuple of integers; anything else is
// `other` or an error. Reads no byte twice, allocates nothing, and nests no deeper than Python's own parser.
#pragma once

#include <tensorpull/core/checked.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tensorpull::detail {

/// A string, up to a length beyond which it is neither a key nor a type; longer ones are cut, and equal nothing.
class short_text {
 public:
  constexpr void clear() noexcept { size_ = 0; }
  /// A character outside ASCII becomes '\x80', since no key and no type has one.
  constexpr void put(std::uint32_t character) noexcept {
    if (size_ < text_.size()) text_[size_++] = character < 0x80 ? static_cast<char>(character) : '\x80';
  }
  constexpr std::string_view view() const noexcept { return {text_.data(), size_}; }

 private:
  std::array<char, 48> text_{};
  std::size_t size_ = 0;
};

/// A position in a text without NUL. It is behind whatever was taken; a failed attempt may have moved it.
class python_text {
 public:
  constexpr explicit python_text(std::string_view text) noexcept : text_(text) {}

  constexpr bool at_end() const noexcept { return at_ == text_.size(); }
  constexpr char peek(std::size_t ahead = 0) const noexcept {
    return ahead < text_.size() - at_ ? text_[at_ + ahead] : '\0';
  }

  constexpr bool take(char c) noexcept {
    if (peek() != c || at_end()) return false;
    ++at_;
    return true;
  }
  /// The end of a text line: "\n", "\r" or both.
  constexpr bool take_line_end() noexcept {
    if (take('\r')) {
      take('\n');
      return true;
    }
    return take('\n');
  }
  constexpr void skip_comment() noexcept {
    while (!at_end() && peek() != '\n' && peek() != '\r') ++at_;
  }
  /// Skips what may stand between tokens within brackets. False: a backslash that does not end a line.
  constexpr bool skip_space() noexcept {
    for (;;) {
      if (take(' ') || take('\t') || take('\f') || take_line_end()) continue;
      if (peek() == '#') {
        skip_comment();
      } else if (take('\\')) {
        if (!take_line_end()) return false;
      } else {
        return true;
      }
    }
  }

  constexpr bool take_word(std::string_view word) noexcept {
    if (!text_.substr(at_).starts_with(word) || is_word(peek(word.size())) || peek(word.size()) == '\'' ||
        peek(word.size()) == '"')
      return false;
    at_ += word.size();
    return true;
  }

  /// One or more adjacent strings, which are one.
  constexpr bool take_strings() noexcept {
    string_.clear();
    for (bool first = true;; first = false) {
      bool raw = false;
      std::size_t prefix = 0;
      if (const char c = static_cast<char>(peek() | 0x20); c == 'r' || c == 'u') {
        prefix = 1;
        raw = c == 'r';
      }
      const char quote = peek(prefix);
      if (quote != '\'' && quote != '"') return !first;
      at_ += prefix;
      if (!take_string(quote, raw) || !skip_space()) return false;
    }
  }

  /// The last of them.
  constexpr const short_text& string() const noexcept { return string_; }

 protected:
  static constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
  static constexpr bool is_word(char c) noexcept {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           static_cast<unsigned char>(c) >= 0x80;
  }
  static constexpr unsigned digit_value(char c) noexcept {
    if (is_digit(c)) return static_cast<unsigned>(c - '0');
    const char lower = static_cast<char>(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? static_cast<unsigned>(lower - 'a') + 10 : 99;
  }

  std::string_view text_;
  std::size_t at_ = 0;

 private:
  constexpr bool take_string(char quote, bool raw) noexcept {
    const bool triple = peek(1) == quote && peek(2) == quote;
    at_ += triple ? 3 : 1;
    while (!at_end()) {
      if (peek() == quote && (!triple || (peek(1) == quote && peek(2) == quote))) {
        at_ += triple ? 3 : 1;
        return true;
      }
      if (peek() == '\n' || peek() == '\r') {
        if (!triple) return false;
        take_line_end();
        string_.put('\n');
      } else if (take('\\')) {
        if (!escape(raw)) return false;
      } else {
        string_.put(static_cast<unsigned char>(text_[at_++]));
      }
    }
    return false;
  }

  /// Digits of a character that is written as \x, \u or \U.
  static constexpr int escape_digits(char mark) noexcept {
    switch (mark) {
      case 'x': return 2;
      case 'u': return 4;
      default: return 8;
    }
  }
  /// The rest of an escape, after its backslash.
  constexpr bool escape(bool raw) noexcept {
    if (at_end()) return false;
    if (raw) {
      string_.put('\\');
      if (take_line_end()) string_.put('\n');
      else string_.put(static_cast<unsigned char>(text_[at_++]));
      return true;
    }
    if (take_line_end()) return true;
    const char c = text_[at_++];
    constexpr std::string_view names = "\\'\"abfnrtv", values = "\\'\"\a\b\f\n\r\t\v";
    if (const std::size_t i = names.find(c); i != names.npos) {
      string_.put(static_cast<unsigned char>(values[i]));
      return true;
    }
    if (c >= '0' && c <= '7') {
      auto code = static_cast<std::uint32_t>(c - '0');
      for (int i = 0; i < 2 && peek() >= '0' && peek() <= '7'; ++i)
        code = code * 8 + static_cast<std::uint32_t>(text_[at_++] - '0');
      string_.put(code);
      return true;
    }
    if (c == 'x' || c == 'u' || c == 'U') {
      std::uint32_t code = 0;
      for (int i = escape_digits(c); i > 0; --i) {
        const unsigned digit = digit_value(peek());
        if (digit > 15) return false;
        ++at_;
        code = code * 16 + digit;
      }
      string_.put(code);
      return code <= 0x10ffff;
    }
    if (c == 'N') return false;  // a character by its name, which we have no list of
    string_.put('\\');
    string_.put(static_cast<unsigned char>(c));
    return true;
  }

  short_text string_;
};

enum class literal_kind : std::uint8_t {
  text,
  integer,
  truth,
  integers,
  other,
};

/// A value. Text and the integers of a tuple lie in the parser, until the next value.
struct literal {
  literal_kind kind = literal_kind::other;
  bool truth = false;
  bool has_sign = false;
  bool negative = false;      // an integer with the sign -
  bool out_of_range = false;  // an integer above 2^64 - 1
  std::uint64_t integer = 0;
};

/// Reads literals as `ast.literal_eval` does: in brackets, white space, ends of lines and comments are skipped. The
/// text has no NUL.
class literal_parser : public python_text {
 public:
  /// NumPy's most dimensions.
  static constexpr std::size_t most_integers = 64;
  /// Brackets within brackets, as Python's own parser allows.
  static constexpr int most_brackets = 200;

  /// `long_suffix`: an integer may be followed by L, as Python 2 wrote it.
  constexpr literal_parser(std::string_view text, bool long_suffix) noexcept
      : python_text(text), long_suffix_(long_suffix) {}

  /// The elements of the last tuple, at most most_integers of them.
  constexpr const std::array<std::uint64_t, most_integers>& integers() const noexcept { return integers_; }
  /// How many the tuple has; more than most_integers if it was longer.
  constexpr std::size_t integer_count() const noexcept { return integer_count_; }
  /// Whether each of them was in 0...2^64 - 1.
  constexpr bool integers_fit() const noexcept { return integers_fit_; }

  /// One value and the white space after it. Nothing: Python rejects the text, or no header needs the value.
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

  /// The base of a number that begins with 0x, 0o or 0b.
  static constexpr unsigned base_of(char mark) noexcept {
    if (mark == 'x') return 16;
    return mark == 'o' ? 8 : 2;
  }
  constexpr std::optional<literal> number() noexcept {
    literal v{literal_kind::integer};
    unsigned base = 10;
    const char mark = static_cast<char>(peek(1) | 0x20);
    if (peek() == '0' && (mark == 'x' || mark == 'o' || mark == 'b')) {
      base = base_of(mark);
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
        else {
          at_ = before;
          return finished(v);
        }
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
