// Python source as it is read for literals: white space, ends of lines, comments, words and strings. Decides where each of them ends.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tensorpull::detail {

/// A string of a literal, up to a length beyond which it is neither a key nor a type; longer ones are cut, and equal nothing.
class short_text {
 public:
  constexpr void clear() noexcept { size_ = 0; }
  /// A character outside ASCII is put as '\x80': whatever it is, no key and no type has one.
  constexpr void put(std::uint32_t character) noexcept {
    if (size_ < text_.size()) text_[size_++] = character < 0x80 ? static_cast<char>(character) : '\x80';
  }
  constexpr std::string_view view() const noexcept { return {text_.data(), size_}; }

 private:
  std::array<char, 48> text_{};
  std::size_t size_ = 0;
};

/// A place in a text without NUL. What it takes, it has passed; what it does not take may have moved it.
class python_text {
 public:
  constexpr explicit python_text(std::string_view text) noexcept : text_(text) {}

  constexpr bool at_end() const noexcept { return at_ == text_.size(); }
  constexpr char peek(std::size_t ahead = 0) const noexcept { return ahead < text_.size() - at_ ? text_[at_ + ahead] : '\0'; }

  constexpr bool take(char c) noexcept {
    if (peek() != c || at_end()) return false;
    ++at_;
    return true;
  }
  /// The end of a line: "\n", "\r" or both.
  constexpr bool take_line_end() noexcept {
    if (take('\r')) return take('\n'), true;
    return take('\n');
  }
  constexpr void skip_comment() noexcept {
    while (!at_end() && peek() != '\n' && peek() != '\r') ++at_;
  }
  /// What may stand between tokens within brackets. False: a backslash that ends no line.
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
    if (!text_.substr(at_).starts_with(word) || is_word(peek(word.size())) || peek(word.size()) == '\'' || peek(word.size()) == '"') return false;
    at_ += word.size();
    return true;
  }

  /// One or more strings in a row, which are one.
  constexpr bool take_strings() noexcept {
    string_.clear();
    for (bool first = true;; first = false) {
      bool raw = false;
      std::size_t prefix = 0;
      if (const char c = static_cast<char>(peek() | 0x20); c == 'r' || c == 'u') prefix = 1, raw = c == 'r';
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
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
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

  /// What follows a backslash.
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
    if (const std::size_t i = names.find(c); i != names.npos) return string_.put(static_cast<unsigned char>(values[i])), true;
    if (c >= '0' && c <= '7') {
      auto code = static_cast<std::uint32_t>(c - '0');
      for (int i = 0; i < 2 && peek() >= '0' && peek() <= '7'; ++i) code = code * 8 + static_cast<std::uint32_t>(text_[at_++] - '0');
      return string_.put(code), true;
    }
    if (c == 'x' || c == 'u' || c == 'U') {
      std::uint32_t code = 0;
      for (int i = c == 'x' ? 2 : c == 'u' ? 4 : 8; i > 0; --i) {
        const unsigned digit = digit_value(peek());
        if (digit > 15) return false;
        ++at_;
        code = code * 16 + digit;
      }
      return string_.put(code), code <= 0x10ffff;
    }
    if (c == 'N') return false;  // a character by its name, which we have no list of
    string_.put('\\');
    string_.put(static_cast<unsigned char>(c));
    return true;
  }

  short_text string_;
};

}  // namespace tensorpull::detail
