// result<T>: a value or an error, with the member names of std::expected (C++23), and no exceptions.
#pragma once

#include <tensorpull/core/error.hpp>
#include <tensorpull/std/optional.hpp>

#include <type_traits>
#include <utility>

namespace tensorpull {

/// Wraps an error so that it converts to any result<T>: `return failure(errc::busy);`
struct unexpected {
  /// what the result will hold
  error reason;
};

/// Makes an error in place: its code, the position, the name that it is about, errno.
[[nodiscard]] constexpr unexpected failure(errc code, std::uint64_t at, const error_name& name,
                                           std::int32_t system = 0) noexcept {
  return {error{code, system, at, name}};
}
/// The same without a name.
[[nodiscard]] constexpr unexpected failure(errc code, std::uint64_t at = 0) noexcept {
  return {error{code, 0, at, {}}};
}
/// Passes an error on.
[[nodiscard]] constexpr unexpected failure(const error& reason) noexcept { return {reason}; }

template <class T>
class [[nodiscard]] result;

namespace detail {
[[noreturn]] inline void bad_result_access() noexcept { __builtin_trap(); }

template <class U>
inline constexpr bool is_result = false;
template <class T>
inline constexpr bool is_result<result<T>> = true;

template <class T>
using result_slot = std::conditional_t<std::is_trivially_copyable_v<T> && std::is_nothrow_default_constructible_v<T>,
                                       optional<T>, maybe<T>>;
}  // namespace detail

/// Holds a T or an error. Reading the one that it does not hold ends the program (a trap); it never throws.
template <class T>
class [[nodiscard]] result {
  static_assert(!std::is_reference_v<T>, "result<T>: use a pointer or std::reference_wrapper for a reference");

 public:
  /// As in std::expected.
  using value_type = T;

  constexpr result()
    requires std::is_default_constructible_v<T>
      : value_(T()) {}
  /// Holds the value.
  template <class U = T>
    requires(!std::is_same_v<std::remove_cvref_t<U>, unexpected> && !std::is_same_v<std::remove_cvref_t<U>, result> &&
             // whether another result has a value is no value: its error would be lost
             (!std::is_same_v<T, bool> || !detail::is_result<std::remove_cvref_t<U>>) &&
             std::is_constructible_v<T, U>)  // last: it costs most, and every `return failure(...)` gets here
  constexpr result(U&& value) : value_(static_cast<T>(static_cast<U&&>(value))) {}
  /// Holds the error.
  constexpr result(const unexpected& u) noexcept : error_(u.reason) {}

  /// True: a value, false: an error.
  constexpr bool has_value() const noexcept { return value_.has_value(); }
  constexpr explicit operator bool() const noexcept { return value_.has_value(); }

  // The value, to move from if the result is a temporary; requires that there is one.
  constexpr T& operator*() & noexcept {
    require_value();
    return *value_;
  }
  constexpr const T& operator*() const& noexcept {
    require_value();
    return *value_;
  }
  constexpr T&& operator*() && noexcept {
    require_value();
    return std::move(*value_);
  }
  constexpr T* operator->() noexcept {
    require_value();
    return value_.operator->();
  }
  constexpr const T* operator->() const noexcept {
    require_value();
    return value_.operator->();
  }

  /// The error; requires that there is one.
  constexpr const tensorpull::error& error() const noexcept {
    if (value_.has_value()) detail::bad_result_access();
    return error_;
  }
  /// The value, or `other` if there is an error.
  template <class U>
  constexpr T value_or(U&& other) const& {
    return value_ ? *value_ : static_cast<T>(std::forward<U>(other));
  }

 private:
  constexpr void require_value() const noexcept {
    if (!value_.has_value()) detail::bad_result_access();
  }
  detail::result_slot<T> value_;
  tensorpull::error error_{};
};

/// Success, or an error.
template <>
class [[nodiscard]] result<void> {
 public:
  /// As in std::expected.
  using value_type = void;

  constexpr result() noexcept = default;
  /// Holds the error.
  constexpr result(const unexpected& u) noexcept : error_(u.reason), has_(false) {}

  /// True: success, false: an error.
  constexpr bool has_value() const noexcept { return has_; }
  constexpr explicit operator bool() const noexcept { return has_; }
  /// Requires success.
  constexpr void operator*() const noexcept {
    if (!has_) detail::bad_result_access();
  }
  /// The error; requires that there is one.
  constexpr const tensorpull::error& error() const noexcept {
    if (has_) detail::bad_result_access();
    return error_;
  }
 private:
  tensorpull::error error_{};
  bool has_ = true;
};

}  // namespace tensorpull
