// JSON on one line, in ASCII for any text: what programs read of the tools.
#pragma once

#include "text.hpp"

#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace tools {

/// The text in quotation marks. Bytes that are not UTF-8 become U+FFFD.
inline std::string json_string(std::string_view text) {
  std::string out = "\"";
  const auto unit = [&](std::uint32_t n) { out += formatted("\\u%04x", n); };
  for (std::size_t i = 0; i < text.size();) {
    const character c = character_at(text, i);
    i += c.octets == 0 ? 1 : c.octets;
    if (c.octets == 0) {
      unit(0xfffd);
    } else if (c.point >= 0x10000) {
      unit(0xd7c0 + (c.point >> 10));
      unit(0xdc00 + (c.point & 0x3ff));
    } else if (c.point < 0x20 || c.point >= 0x7f) {
      unit(c.point);
    } else {
      if (c.point == '"' || c.point == '\\') out += '\\';
      out += static_cast<char>(c.point);
    }
  }
  return out + '"';
}

class json_object;

/// A value as it is written.
struct json_value {
  std::string text;

  json_value(std::string_view s) : text(json_string(s)) {}
  json_value(const std::string& s) : text(json_string(s)) {}
  json_value(const char* s) : text(json_string(s)) {}
  json_value(std::nullptr_t) : text("null") {}
  json_value(std::same_as<bool> auto b) : text(b ? "true" : "false") {}
  json_value(std::integral auto n)
    requires(!std::same_as<decltype(n), bool>)
      : text(std::to_string(n)) {}
  json_value(double n) {
    char digits[32];
    text.assign(digits, std::to_chars(digits, digits + sizeof digits, n).ptr);
  }
  json_value(std::span<const std::uint64_t> list) : text("[") {
    for (const std::uint64_t n : list) add(std::to_string(n));
    text += ']';
  }
  json_value(std::span<const std::string> list) : text("[") {
    for (const std::string& s : list) add(json_string(s));
    text += ']';
  }
  json_value(const json_object& o);

 private:
  /// One more element of a list. No sum of a literal and a string: GCC 12 warns of its copy when it optimises.
  void add(const std::string& element) {
    if (text.size() > 1) text += ',';
    text += element;
  }
};

/// Fields in the order in which they were added.
class json_object {
 public:
  json_object() = default;
  json_object(std::initializer_list<std::pair<std::string_view, json_value>> fields) {
    for (const auto& [name, value] : fields) add(name, value);
  }
  void add(std::string_view name, const json_value& value) {
    if (!fields_.empty()) fields_ += ',';
    fields_.append(json_string(name)).append(":").append(value.text);
  }
  std::string text() const { return "{" + fields_ + "}"; }
  /// Prints it as a line. That it was written, flushed() says.
  void print() const { std::printf("%s\n", text().c_str()); }

 private:
  std::string fields_;
};

inline json_value::json_value(const json_object& o) : text(o.text()) {}

}  // namespace tools
