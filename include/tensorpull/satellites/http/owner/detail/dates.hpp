// Dates as HTTP writes them (RFC 9110, 5.6.7): "Sun, 06 Nov 1994 08:49:37 GMT". Names of days and months do not depend
// on the program's locale.
#pragma once

#include <array>
#include <cstdio>
#include <ctime>
#include <string_view>

namespace tensorpull::detail {

inline constexpr std::string_view http_days = "SunMonTueWedThuFriSat",
                                  http_months = "JanFebMarAprMayJunJulAugSepOctNovDec";

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
