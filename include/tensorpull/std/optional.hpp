// A value that may be missing, for types that can be made and copied at no cost. std::optional does the same for any
// type, but the compiler has ten times as many functions to instantiate for it.
#pragma once

#include <type_traits>

namespace tensorpull {

/// A T, or nothing, with the member names of std::optional. Costs the T and a bool.
template <class T>
class optional {
  static_assert(std::is_trivially_copyable_v<T> && std::is_nothrow_default_constructible_v<T>);

 public:
  constexpr optional() noexcept = default;
  /// Holds a copy.
  constexpr optional(const T& value) noexcept : value_(value), has_(true) {}

  /// Whether there is a value.
  constexpr bool has_value() const noexcept { return has_; }
  constexpr explicit operator bool() const noexcept { return has_; }
  // Without a value these give a default-constructed T.
  constexpr T& operator*() noexcept { return value_; }
  constexpr const T& operator*() const noexcept { return value_; }
  constexpr T* operator->() noexcept { return &value_; }
  constexpr const T* operator->() const noexcept { return &value_; }
  /// The value, or `other` if there is none.
  constexpr T value_or(const T& other) const noexcept { return has_ ? value_ : other; }

  friend bool operator==(const optional&, const optional&) noexcept = default;  // constexpr if that of T is

 private:
  T value_{};
  bool has_ = false;
};

}  // namespace tensorpull
