// Ranges of bytes, as requests ask for them (Range): RFC 9110, 14.
#pragma once

#include <tensorpull/satellites/http/detail/characters.hpp>

#include <cstdint>
#include <string_view>

namespace tensorpull {

/// The bytes that a request wants of an image.
struct http_range {
  /// What the field said.
  enum class kind : std::uint8_t {
    none,     ///< nothing that has to be honoured: no field, another unit, or several ranges
    from_to,  ///< `first` to `last`, both included
    suffix,   ///< the last `last` bytes
    wrong,    ///< it cannot be satisfied, whatever the length
  };
  kind is = kind::none;      ///< which of them
  std::uint64_t first = 0;   ///< see above
  std::uint64_t last = 0;    ///< see above; all bits: to the end
};

namespace detail {

constexpr http_range parse_one_range(std::string_view one) noexcept {
  constexpr http_range wrong{http_range::kind::wrong, 0, 0};
  const std::size_t dash = one.find('-');
  if (dash == one.npos) return wrong;
  const std::string_view from = one.substr(0, dash), to = one.substr(dash + 1);
  const auto first = decimal_number(from), last = decimal_number(to);
  if (from.empty()) return last ? http_range{http_range::kind::suffix, 0, *last} : wrong;
  if (!first || (!to.empty() && !last)) return wrong;
  const http_range r{http_range::kind::from_to, *first, last.value_or(~std::uint64_t{0})};
  return r.last < r.first ? wrong : r;
}
/// Reads a Range. Several that ascend are `none`: the whole, once. More than 16, and several that overlap or go
/// backwards, are wrong.
constexpr http_range parse_range(std::string_view value) noexcept {
  using kind = http_range::kind;
  const std::size_t equals = value.find('=');
  if (equals == value.npos) return {kind::wrong, 0, 0};
  if (!same_but_for_case(trimmed(value.substr(0, equals)), "bytes")) return {};
  http_range out;
  std::size_t count = 0;
  std::uint64_t end = 0;  // no range may begin before it
  for_each_element(value.substr(equals + 1), [&](std::string_view one) {
    const http_range r = parse_one_range(one);
    if (++count == 1) out = r;
    if (r.is == kind::wrong || count > 16 || (r.is == kind::suffix && count > 1) ||
        (r.is == kind::from_to && count > 1 && r.first <= end))
      out.is = kind::wrong;
    end = r.is == kind::from_to ? r.last : ~std::uint64_t{0};
  });
  if (count == 0) return {kind::wrong, 0, 0};
  if (count > 1 && out.is != kind::wrong) return {};
  return out;
}

/// The bytes [from, to) of a file that a request gets.
struct byte_choice {
  enum class kind : std::uint8_t {
    all,
    part,
    none
  };
  kind is = kind::all;  ///< none: the file has no such bytes
  std::uint64_t from = 0, to = 0;
};
constexpr byte_choice choose_bytes(const http_range& wanted, std::uint64_t total) noexcept {
  using kind = byte_choice::kind;
  switch (wanted.is) {
    case http_range::kind::none: return {kind::all, 0, total};
    case http_range::kind::wrong: return {kind::none};
    case http_range::kind::suffix:
      if (wanted.last == 0) return {kind::none};
      return {kind::part, wanted.last < total ? total - wanted.last : 0, total};
    case http_range::kind::from_to:
      if (wanted.first >= total) return {kind::none};
      return {kind::part, wanted.first, wanted.last < total ? wanted.last + 1 : total};
  }
  return {kind::none};
}

}  // namespace detail
}  // namespace tensorpull
