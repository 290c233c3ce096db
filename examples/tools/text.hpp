// Text for people: sizes, times, and names that may contain any bytes.
#pragma once

#include "jobs/federated/text.hpp"

#include <tensorpull/core/digits.hpp>
#include <tensorpull/image/utf8.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>

namespace tools {

using federated::formatted;
using federated::wide;

/// The bytes of a digest, two hexadecimal digits for each.
template <class Digest>
std::string hex_text(const Digest& digest) {
  return std::string(tensorpull::detail::hex_digits(digest).view());
}

/// "1.2 GiB"
inline std::string bytes_text(double bytes) {
  constexpr std::array<const char*, 6> units{"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t unit = 0;
  while (bytes >= 999.5 && unit + 1 < units.size()) bytes /= 1024, ++unit;
  return formatted(unit == 0 || bytes >= 99.95 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
}
inline std::string bytes_text(std::uint64_t bytes) {
  return bytes == 1 ? "1 byte" : bytes_text(static_cast<double>(bytes));
}

/// "1:02:03", "2:03"
inline std::string clock_text(double seconds) {
  const auto s = static_cast<std::uint64_t>(std::clamp(seconds, 0.0, 3.6e8) + 0.5);
  if (s < 3600) return formatted("%llu:%02llu", wide(s / 60), wide(s % 60));
  return formatted("%llu:%02llu:%02llu", wide(s / 3600), wide(s / 60 % 60), wide(s % 60));
}
/// "0.35 s", "12 s", "2:03"
inline std::string seconds_text(double seconds) {
  return seconds < 99.5 ? formatted(seconds < 9.95 ? "%.2f s" : "%.0f s", seconds) : clock_text(seconds);
}

/// A count with the singular or plural of a noun.
inline std::string count_text(std::uint64_t n, const char* of) {
  return std::to_string(n) + " " + of + (n == 1 ? "" : "s");
}

/// A character of UTF-8. No octets: there is none.
struct character {
  std::uint32_t point = 0;
  std::size_t octets = 0;
};
inline character character_at(std::string_view text, std::size_t i) {
  const auto lead = static_cast<unsigned char>(text[i]);
  std::size_t n = 1;
  if (lead >= 0x80) n = lead < 0xe0 ? 2 : 3;
  if (lead >= 0xf0) n = 4;
  const std::string_view one = text.substr(i, n);
  if (one.size() < n || !tensorpull::is_utf8(one)) return {};
  std::uint32_t point = n == 1 ? lead : lead & (0xffu >> (n + 1));
  for (std::size_t k = 1; k < n; ++k) point = point << 6 | (static_cast<unsigned char>(one[k]) & 0x3fu);
  return {point, n};
}

/// Text that is safe on a terminal: control characters, characters that change the direction of writing or are
/// invisible, and invalid UTF-8 become \x or \u.
inline std::string printable(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const auto [point, n] = character_at(text, i);
    if (n == 0) {
      out += formatted("\\x%02x", static_cast<unsigned char>(text[i]));
      ++i;
      continue;
    }
    const auto within = [at = point](std::uint32_t first, std::uint32_t last) { return at >= first && at <= last; };
    const bool unseen = point == 0xad || point == 0x61c || within(0x200b, 0x200f) || within(0x2028, 0x202e) ||
                        within(0x2060, 0x206f) || point == 0xfeff || within(0xfff0, 0xfffb) || within(0xe0000, 0xe0fff);
    if (point == '\n') out += "\\n";
    else if (point == '\t') out += "\\t";
    else if (point == '\\') out += "\\\\";
    else if (point < 0x20 || (point >= 0x7f && point < 0xa0)) out += formatted("\\x%02x", point);
    else if (unseen) out += formatted("\\u{%x}", point);
    else out += text.substr(i, n);
    i += n;
  }
  return out;
}

/// A word quoted for a shell, whatever it contains.
inline std::string shell_word(std::string_view text) {
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%[]";
  if (!text.empty() && text.find_first_not_of(plain) == text.npos && text.find_first_of("[]") == text.npos)
    return std::string(text);
  std::string out;
  if (printable(text) == text) {
    for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return "'" + out + "'";
  }
  for (const char c : text) {
    const auto octet = static_cast<unsigned char>(c);
    out += octet < 0x20 || octet >= 0x7f || c == '\'' || c == '\\' ? formatted("\\x%02x", octet) : std::string(1, c);
  }
  return "$'" + out + "'";
}

/// What stands before the name of a tool where it is called: "tensorpull " in Python's package, otherwise nothing.
inline std::string called_as;

/// Prints a line for people.
inline void say(const char* tool, const std::string& text) {
  std::fprintf(stderr, "%s%s: %s\n", called_as.c_str(), tool, text.c_str());
}

/// Whether all that was printed for programs has been written; says so if not.
inline bool flushed(const char* tool) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return true;
  say(tool, "standard output could not be written");
  return false;
}

/// "[128, 784]"
inline std::string shape_text(std::span<const std::uint64_t> shape) {
  std::string out = "[";
  for (const std::uint64_t extent : shape) out += (out.size() > 1 ? ", " : "") + std::to_string(extent);
  return out + "]";
}

}  // namespace tools
