// Dates as HTTP writes them (RFC 9110, 5.6.7): "Sun, 06 Nov 1994 08:49:37 GMT". Names of days and months do not depend
// on the program's locale.
#pragma once

#include <tensorpull/satellites/http/detail/characters.hpp>

#include <array>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <string_view>

namespace tensorpull::detail {

inline constexpr std::string_view http_days = "SunMonTueWedThuFriSat",
                                  http_months = "JanFebMarAprMayJunJulAugSepOctNovDec";

/// Seconds since 1970; the two obsolete spellings are none.
constexpr optional<std::int64_t> parse_http_date(std::string_view t) noexcept {
  if (t.size() != 29 || t.substr(3, 2) != ", " || t[7] != ' ' || t[11] != ' ' || t[16] != ' ' || t[19] != ':' ||
      t[22] != ':' || t.substr(25) != " GMT")
    return {};
  const std::size_t at = http_months.find(t.substr(8, 3));
  const auto day = decimal_number(t.substr(5, 2)), year = decimal_number(t.substr(12, 4)),
             hour = decimal_number(t.substr(17, 2)), minute = decimal_number(t.substr(20, 2)),
             second = decimal_number(t.substr(23, 2));
  if (at == http_months.npos || at % 3 != 0 || !day || !year || !hour || !minute || !second || *day < 1 || *day > 31 ||
      *year < 1970 || *hour > 23 || *minute > 59 || *second > 60)
    return {};
  // days of the proleptic Gregorian calendar, with years that begin in March
  const auto month = static_cast<std::int64_t>(at / 3 + 1);
  const std::int64_t y = static_cast<std::int64_t>(*year) - (month <= 2 ? 1 : 0), era = y / 400, of_era = y - era * 400;
  const std::int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + static_cast<std::int64_t>(*day) - 1;
  const std::int64_t days = era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
  return days * 86400 + static_cast<std::int64_t>(*hour * 3600 + *minute * 60 + *second);
}

/// The text of a time, from 1970 to 9999, and a zero behind it.
inline std::array<char, 80> http_date(std::time_t when) noexcept {
  std::tm t{};
  std::array<char, 80> out{};
  if (::gmtime_r(&when, &t) == nullptr) return out;
  const auto name = [](std::string_view names, int which) { return names.data() + 3 * which; };
  (void)std::snprintf(out.data(), out.size(), "%.3s, %02d %.3s %04d %02d:%02d:%02d GMT", name(http_days, t.tm_wday),
                      t.tm_mday, name(http_months, t.tm_mon), t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
  return out;
}

}  // namespace tensorpull::detail
