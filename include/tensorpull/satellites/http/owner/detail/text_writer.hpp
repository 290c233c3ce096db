// Writes HTTP's text into memory that is there already.
#pragma once

#include <tensorpull/core/digits.hpp>
#include <tensorpull/satellites/http/detail/base64.hpp>
#include <tensorpull/satellites/http/owner/detail/dates.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <span>
#include <string_view>

namespace tensorpull::detail {

/// Appends text to memory that it borrows. What does not fit is left out, and whole() says so.
class text_writer {
 public:
  explicit text_writer(std::span<char> memory) noexcept : memory_(memory) {}

  text_writer& operator<<(std::string_view s) noexcept {
    whole_ = whole_ && s.size() <= memory_.size() - used_;
    if (!whole_ || s.empty()) return *this;
    std::memcpy(memory_.data() + used_, s.data(), s.size());
    used_ += s.size();
    return *this;
  }
  text_writer& operator<<(std::uint64_t n) noexcept { return *this << decimal(n).view(); }
  /// 16 hexadecimal digits.
  text_writer& hex(std::uint64_t n) noexcept { return *this << hex_digits(n).view(); }
  /// The eight bytes of a number, the highest first, in base 64.
  text_writer& base64(std::uint64_t n) noexcept {
    put_base64(
        8, [n](std::size_t i) { return static_cast<char>(n >> (56 - 8 * i) & 0xff); },
        [this](char c) noexcept { *this << std::string_view(&c, 1); });
    return *this;
  }
  text_writer& date(std::time_t when) noexcept { return *this << std::string_view(http_date(when).data()); }

  std::string_view text() const noexcept { return {memory_.data(), used_}; }
  bool whole() const noexcept { return whole_; }
  /// Takes back all behind the first `n` bytes.
  void cut(std::size_t n) noexcept {
    used_ = n < used_ ? n : used_;
    whole_ = true;
  }

 private:
  std::span<char> memory_;
  std::size_t used_ = 0;
  bool whole_ = true;
};

}  // namespace tensorpull::detail
