// A borrowed callable: two words, no heap, no virtual call. What std::function_ref will be in C++26.
#pragma once

#include <type_traits>

namespace tensorpull {

/// Refers to a callable that must outlive it; a temporary does not compile. Empty by default.
template <class... Arguments>
class callback {
 public:
  constexpr callback() noexcept = default;
  /// Refers to `f`.
  template <class F>
    requires(!std::is_same_v<F, callback> && !std::is_const_v<F> && std::is_invocable_v<F&, Arguments...>)
  constexpr callback(F& f) noexcept : object_(__builtin_addressof(f)), call_([](void* p, Arguments... a) { (*static_cast<F*>(p))(a...); }) {}

  constexpr explicit operator bool() const noexcept { return call_ != nullptr; }
  /// Throws what the callable throws. Requires that it is not empty.
  void operator()(Arguments... a) const { call_(object_, a...); }

 private:
  void* object_ = nullptr;
  void (*call_)(void*, Arguments...) = nullptr;
};

}  // namespace tensorpull
