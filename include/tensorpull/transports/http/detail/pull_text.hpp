// Small pieces of HTTP's text that a recipient reads and writes: numbers, dates, base64, digests.
#pragma once

#include <tensorpull/std/optional.hpp>

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace tensorpull::detail {

constexpr std::string_view trimmed(std::string_view text) noexcept {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

/// Digits and nothing else, without a sign, that fit 64 bits.
inline optional<std::uint64_t> all_digits(std::string_view text) noexcept {
  std::uint64_t n = 0;
  if (text.empty() || text.front() < '0' || text.front() > '9') return {};
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (failed != std::errc{} || end != text.data() + text.size()) return {};
  return n;
}

/// What Content-Range says: the bytes [from, to) of `total`; `unsatisfied`: only the total (416). `total` is ~0 if the
/// server does not know it.
struct content_range {
  std::uint64_t from = 0, to = 0, total = 0;
  bool unsatisfied = false;
};
inline optional<content_range> parse_content_range(std::string_view text) noexcept {
  if (!text.starts_with("bytes ")) return {};
  text = trimmed(text.substr(6));
  const std::size_t slash = text.find('/');
  if (slash == text.npos) return {};
  content_range r;
  const std::string_view range = text.substr(0, slash), total = text.substr(slash + 1);
  if (total == "*") {
    r.total = ~std::uint64_t{0};
  } else {
    const auto n = all_digits(total);
    if (!n || *n == ~std::uint64_t{0}) return {};
    r.total = *n;
  }
  if (range == "*") {
    r.unsatisfied = true;
    return r;
  }
  const std::size_t dash = range.find('-');
  if (dash == range.npos) return {};
  const auto first = all_digits(range.substr(0, dash)), last = all_digits(range.substr(dash + 1));
  if (!first || !last || *last < *first || *last >= r.total) return {};
  r.from = *first, r.to = *last + 1;
  return r;
}

/// Seconds since 1970 of a date as HTTP writes it today ("Sun, 06 Nov 1994 08:49:37 GMT"); the two obsolete spellings
/// are none.
inline optional<std::int64_t> parse_http_date(std::string_view t) noexcept {
  if (t.size() != 29 || t.substr(3, 2) != ", " || t[7] != ' ' || t[11] != ' ' || t[16] != ' ' || t[19] != ':' ||
      t[22] != ':' || t.substr(25) != " GMT")
    return {};
  constexpr std::string_view months = "JanFebMarAprMayJunJulAugSepOctNovDec";
  const std::size_t at = months.find(t.substr(8, 3));
  const auto day = all_digits(t.substr(5, 2)), year = all_digits(t.substr(12, 4)), hour = all_digits(t.substr(17, 2)),
             minute = all_digits(t.substr(20, 2)), second = all_digits(t.substr(23, 2));
  if (at == months.npos || at % 3 != 0 || !day || !year || !hour || !minute || !second || *day < 1 || *day > 31 ||
      *year < 1970 || *hour > 23 || *minute > 59 || *second > 60)
    return {};
  // days of the proleptic Gregorian calendar, with years that begin in March
  const auto month = static_cast<std::int64_t>(at / 3 + 1);
  const std::int64_t y = static_cast<std::int64_t>(*year) - (month <= 2 ? 1 : 0), era = y / 400, of_era = y - era * 400;
  const std::int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + static_cast<std::int64_t>(*day) - 1;
  const std::int64_t days = era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
  return days * 86400 + static_cast<std::int64_t>(*hour * 3600 + *minute * 60 + *second);
}

inline constexpr std::string_view base64_digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Reads base64 with its padding into exactly these bytes.
inline bool from_base64(std::string_view text, std::span<std::byte> out) noexcept {
  if (text.size() != (out.size() + 2) / 3 * 4) return false;
  const std::size_t digits = (out.size() * 4 + 2) / 3;
  std::uint32_t bits = 0;
  unsigned held = 0;
  std::size_t made = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i >= digits) {
      if (text[i] != '=') return false;
      continue;
    }
    const std::size_t value = base64_digits.find(text[i]);
    if (value == base64_digits.npos) return false;
    bits = bits << 6 | static_cast<std::uint32_t>(value), held += 6;
    if (held < 8) continue;
    held -= 8;
    out[made++] = static_cast<std::byte>(bits >> held & 0xff);
  }
  return made == out.size() && (bits & ((1u << held) - 1)) == 0;
}
inline std::string to_base64(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); i += 3) {
    std::uint32_t three = 0;
    for (std::size_t k = 0; k < 3; ++k)
      three = three << 8 | (i + k < text.size() ? static_cast<unsigned char>(text[i + k]) : 0u);
    for (std::size_t d = 0; d < 4; ++d) out += i + d > text.size() ? '=' : base64_digits[three >> (18 - 6 * d) & 63];
  }
  return out;
}

using sha256_value = std::array<std::byte, 32>;

/// 64 hexadecimal digits.
inline optional<sha256_value> parse_sha256(std::string_view text) noexcept {
  sha256_value out{};
  if (text.size() != 64) return {};
  for (std::size_t i = 0; i < 32; ++i) {
    unsigned value = 0;
    const auto [end, failed] = std::from_chars(text.data() + 2 * i, text.data() + 2 * i + 2, value, 16);
    if (failed != std::errc{} || end != text.data() + 2 * i + 2) return {};
    out[i] = static_cast<std::byte>(value);
  }
  return out;
}

/// What Repr-Digest (RFC 9530) says in all fields of that name together.
struct repr_digest {
  sha256_value sha256{};
  std::uint64_t xxh3 = 0;  ///< XXH3-64, which owners of this library state
  bool known = false;      ///< there was a sha-256 that could be read
  bool ours = false;       ///< there was an xxh3 that could be read
  bool doubtful = false;  ///< one could not be read, or two differed
};
/// Adds one field. Other algorithms are passed over. RFC 8941 takes the last of two equal keys; here two that differ
/// are refused, since one of them is a lie.
inline void add_repr_digest(std::string_view value, repr_digest& to) noexcept {
  while (!value.empty()) {
    const std::size_t comma = value.find(',');
    std::string_view member = trimmed(value.substr(0, comma));
    value = comma == value.npos ? std::string_view{} : value.substr(comma + 1);
    if (member.starts_with("xxh3=")) {
      std::array<std::byte, 8> eight{};
      if (member.size() != 19 || member[5] != ':' || member[18] != ':' || !from_base64(member.substr(6, 12), eight)) {
        to.doubtful = true;
        continue;
      }
      std::uint64_t value64 = 0;
      for (const std::byte b : eight) value64 = value64 << 8 | std::to_integer<std::uint64_t>(b);
      if (to.ours && to.xxh3 != value64) to.doubtful = true;
      to.xxh3 = value64, to.ours = true;
      continue;
    }
    if (!member.starts_with("sha-256=")) continue;
    member.remove_prefix(8);
    const std::size_t end = member.find(':', 1);
    sha256_value read{};
    if (!member.starts_with(':') || end == member.npos || !from_base64(member.substr(1, end - 1), read)) {
      to.doubtful = true;
      continue;
    }
    if (to.known && to.sha256 != read) to.doubtful = true;
    to.sha256 = read, to.known = true;
  }
}

/// Text of at most N characters, without memory of its own elsewhere.
template <std::size_t N>
class bounded_text {
 public:
  /// False: it is too long, and stays empty.
  bool assign(std::string_view text) noexcept {
    size_ = 0;
    if (text.size() > N) return false;
    if (!text.empty()) std::memcpy(text_.data(), text.data(), text.size());
    size_ = static_cast<std::uint16_t>(text.size());
    return true;
  }
  std::string_view view() const noexcept { return {text_.data(), size_}; }
  bool empty() const noexcept { return size_ == 0; }
  void clear() noexcept { size_ = 0; }

 private:
  std::array<char, N> text_{};
  std::uint16_t size_ = 0;
};

}  // namespace tensorpull::detail
