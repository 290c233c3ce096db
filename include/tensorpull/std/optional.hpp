// A value that may be missing. std::optional does the same, but the compiler has ten times as many functions to
// instantiate for it.
#pragma once

#include <new>
#include <type_traits>
#include <utility>

namespace tensorpull {

/// A T, or nothing, with the member names of std::optional; for types that can be made and copied at no cost. Costs the
/// T and a bool.
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

namespace detail {

/// The same for any type, without constant expressions: a T is only there while there is a value. Requires one where
/// optional gives a default.
template <class T>
class maybe {
 public:
  constexpr maybe() noexcept : nothing_{} {}
  maybe(T&& value) noexcept(std::is_nothrow_move_constructible_v<T>) : nothing_{} { emplace(std::move(value)); }
  maybe(const maybe& other)
    requires std::is_copy_constructible_v<T>
      : nothing_{} {
    take(other);
  }
  maybe(maybe&& other) noexcept(std::is_nothrow_move_constructible_v<T>)
    requires std::is_move_constructible_v<T>
      : nothing_{} {
    take(std::move(other));
  }
  maybe& operator=(const maybe& other)
    requires std::is_copy_constructible_v<T>
  {
    return take(other);
  }
  maybe& operator=(maybe&& other) noexcept(std::is_nothrow_move_constructible_v<T>)
    requires std::is_move_constructible_v<T>
  {
    return take(std::move(other));
  }
  ~maybe() { reset(); }

  /// Makes a T, which replaces the one that was there.
  template <class... Arguments>
  T& emplace(Arguments&&... arguments) {
    reset();
    T* const made = ::new (static_cast<void*>(&value_)) T(std::forward<Arguments>(arguments)...);
    has_ = true;
    return *made;
  }
  void reset() noexcept {
    if (!std::exchange(has_, false)) return;
    value_.~T();
  }

  bool has_value() const noexcept { return has_; }
  explicit operator bool() const noexcept { return has_; }
  T& operator*() noexcept { return value_; }
  const T& operator*() const noexcept { return value_; }
  T* operator->() noexcept { return &value_; }
  const T* operator->() const noexcept { return &value_; }

 private:
  template <class Other>
  maybe& take(Other&& other) {
    if (this == &other) return *this;
    reset();
    if (other.has_) emplace(std::forward<Other>(other).value_);
    return *this;
  }

  union {
    char nothing_;
    T value_;
  };
  bool has_ = false;
};

}  // namespace detail

}  // namespace tensorpull
