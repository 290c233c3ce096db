// A number as JSON writes it, taken a character at a time.
#pragma once

#include <cstdint>

namespace tensorpull::detail {

/// `Any`: whatever JSON allows; otherwise a count that fits 64 bits, and no other text.
template <bool Any>
class json_number {
 public:
  /// How a character was taken.
  enum class step : std::uint8_t {
    taken,
    behind,  ///< the number has ended before it
    wrong
  };

  /// Whether one can begin so; then it has begun.
  constexpr bool begin(char c) noexcept {
    *this = {};
    if (Any && c == '-') {
      whole_ = false;
      now_ = state::minus;
      return true;
    }
    return is_digit(c) && begin_digits(c) == step::taken;
  }
  constexpr step take(char c) noexcept {
    const bool digit = is_digit(c);
    switch (now_) {
      case state::minus: return digit ? begin_digits(c) : step::wrong;
      case state::digits:
        if (digit) return add(c, true);
        [[fallthrough]];
      case state::zero:
        if (Any && c == '.') return go_on(state::point);
        if (Any && (c == 'e' || c == 'E')) return go_on(state::exponent);
        return step::behind;
      case state::point:
        if (!digit) return step::wrong;
        now_ = state::fraction;
        return add(c, false);
      case state::fraction:
        if (digit) return add(c, false);
        return c == 'e' || c == 'E' ? go_on(state::exponent) : step::behind;
      case state::exponent:
        if (c == '+' || c == '-') {
          negative_exponent_ = c == '-';
          return go_on(state::exponent_sign);
        }
        [[fallthrough]];
      case state::exponent_sign:
        if (!digit) return step::wrong;
        now_ = state::exponent_digits;
        exponent_ = c - '0';
        return step::taken;
      default:
        if (!digit) return step::behind;
        if (exponent_ < 1'000'000'000) exponent_ = exponent_ * 10 + (c - '0');
        return step::taken;
    }
  }

  /// Whether it is written as a count, and fits 64 bits: value().
  constexpr bool is_count() const noexcept { return whole_ && !exceeds_; }
  constexpr std::uint64_t value() const noexcept { return number_; }
  /// Whether it fits a double: other readers refuse what does not. Compares 19 digits with those of 2^1024 - 2^970.
  constexpr bool is_finite() const noexcept {
    const std::int64_t magnitude = scale_ + (negative_exponent_ ? -exponent_ : exponent_);
    if (number_ == 0 || magnitude != 309) return number_ == 0 || magnitude < 309;
    std::uint64_t digits = number_;
    constexpr std::uint64_t least = 1'000'000'000'000'000'000;
    while (digits < least) digits *= 10;
    if (digits / 10 >= least) digits /= 10;
    return digits <= 1'797'693'134'862'315'807;
  }

 private:
  enum class state : std::uint8_t {
    minus,
    zero,
    digits,
    point,
    fraction,
    exponent,
    exponent_sign,
    exponent_digits
  };

  static constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
  constexpr step begin_digits(char c) noexcept {
    now_ = c == '0' ? state::zero : state::digits;
    return add(c, true);
  }
  /// Digits `before` the point and behind it, as long as they fit 64 bits; the position of the point.
  constexpr step add(char c, bool before) noexcept {
    const auto digit = static_cast<std::uint64_t>(c - '0');
    const bool leading = number_ == 0 && digit == 0;
    if (before && !leading) ++scale_;
    if (!before && leading) --scale_;
    if (exceeds_ || number_ > (~std::uint64_t{0} - digit) / 10) {
      exceeds_ = true;
      return Any ? step::taken : step::wrong;
    }
    number_ = number_ * 10 + digit;
    return step::taken;
  }
  constexpr step go_on(state with) noexcept {
    whole_ = false;
    now_ = with;
    return step::taken;
  }

  state now_ = state::zero;
  bool whole_ = true, exceeds_ = false, negative_exponent_ = false;
  std::int64_t scale_ = 0, exponent_ = 0;
  std::uint64_t number_ = 0;
};

}  // namespace tensorpull::detail
