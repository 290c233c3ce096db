// Text for the answers of an HTTP owner, written into memory that is there already.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <span>
#include <string_view>

namespace tensorpull::detail {

/// Appends text to memory that it borrows. What does not fit is left out, and whole() says so.
class owner_text {
 public:
  explicit owner_text(std::span<char> memory) noexcept : memory_(memory) {}

  owner_text& operator<<(std::string_view s) noexcept {
    if (s.size() > memory_.size() - used_) return whole_ = false, *this;
    if (!s.empty()) std::memcpy(memory_.data() + used_, s.data(), s.size());
    used_ += s.size();
    return *this;
  }
  owner_text& operator<<(std::uint64_t n) noexcept {
    std::array<char, 20> digits{};
    std::size_t at = digits.size();
    do digits[--at] = static_cast<char>('0' + n % 10), n /= 10;
    while (n != 0);
    return *this << std::string_view(digits.data() + at, digits.size() - at);
  }
  /// 16 hexadecimal digits.
  owner_text& hex(std::uint64_t n) noexcept {
    std::array<char, 16> digits{};
    for (std::size_t i = 0; i < 16; ++i) digits[i] = "0123456789abcdef"[(n >> (60 - 4 * i)) & 15];
    return *this << std::string_view(digits.data(), digits.size());
  }
  /// The eight bytes of a number, the highest first, in base 64.
  owner_text& base64(std::uint64_t n) noexcept {
    std::array<char, 12> out{};
    for (std::size_t i = 0; i < 11; ++i) {
      const std::uint64_t sextet = i < 10 ? n >> (58 - 6 * i) : n << 2;
      out[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[sextet & 63];
    }
    out[11] = '=';
    return *this << std::string_view(out.data(), out.size());
  }
  /// The time in the form of RFC 9110, 5.6.7. Names of days and months do not depend on the program's locale.
  owner_text& date(std::time_t now) noexcept {
    std::tm t{};
    if (::gmtime_r(&now, &t) == nullptr) return *this;
    constexpr std::string_view days = "SunMonTueWedThuFriSat", months = "JanFebMarAprMayJunJulAugSepOctNovDec";
    const auto part = [](std::string_view names, int i) { return names.substr(static_cast<std::size_t>(i) * 3, 3); };
    const auto two = [&](int n) {
      const char digits[2]{static_cast<char>('0' + n / 10 % 10), static_cast<char>('0' + n % 10)};
      *this << std::string_view(digits, 2);
    };
    *this << part(days, t.tm_wday) << ", ", two(t.tm_mday),
        *this << " " << part(months, t.tm_mon) << " " << static_cast<std::uint64_t>(t.tm_year + 1900) << " ";
    two(t.tm_hour), *this << ":", two(t.tm_min), *this << ":", two(t.tm_sec);
    return *this << " GMT";
  }

  std::string_view text() const noexcept { return {memory_.data(), used_}; }
  bool whole() const noexcept { return whole_; }

 private:
  std::span<char> memory_;
  std::size_t used_ = 0;
  bool whole_ = true;
};

}  // namespace tensorpull::detail
