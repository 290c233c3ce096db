// A callable to call later: four words, no heap, no virtual call. It is like std::function_ref of C++26, with room for
// a small lambda.
#pragma once

#include <type_traits>

namespace tensorpull {

/// Calls something that is invocable with `Arguments...` and whose result converts to `Result`; void drops it. Empty by
/// default. Copies are cheap.
///  - A named callable (an lvalue, const or not) is borrowed: it must outlive every copy of the callback.
///  - A temporary (`.progress = [&](const progress_event& e) { ... }`) is copied into the callback if it is trivially
///    copyable and not larger than three pointers. A lambda that captures up to three references is. The objects that
///    it refers to are borrowed. Each copy of the callback has its own copy of what the lambda captured by value.
///  - Any other temporary does not compile: give it a name that outlives the callback.
///  - A function is kept by its address.
/// Nothing here allocates. A call costs one indirect call.
template <class Result, class... Arguments>
class basic_callback {
  union place {
    const void* object = nullptr;
    alignas(void*) unsigned char copy[3 * sizeof(void*)];
  };
  template <class F>
  static constexpr bool is_small = sizeof(F) <= sizeof(place) && alignof(F) <= alignof(place) &&
                                   std::is_trivially_copyable_v<F> && std::is_trivially_destructible_v<F>;

 public:
  constexpr basic_callback() noexcept = default;
  /// Refers to `f`, or holds a copy of it, as above.
  template <class F>
    requires(!__is_base_of(basic_callback, std::remove_reference_t<F>) &&
             std::is_invocable_r_v<Result, std::remove_reference_t<F>&, Arguments...>)  // what is_base_of_v is made of
  constexpr basic_callback(F&& f) noexcept {
    using callable = std::remove_reference_t<F>;
    if constexpr (std::is_function_v<callable>) {
      *this = basic_callback(&f);  // a temporary: a pointer, which is small
    } else if constexpr (std::is_lvalue_reference_v<F>) {
      kept_.object = __builtin_addressof(f);
      call_ = [](place& p, Arguments... a) {
        return static_cast<Result>((*static_cast<callable*>(const_cast<void*>(p.object)))(a...));
      };
    } else {
      static_assert(
          is_small<callable>,
          "tensorpull: a temporary given as a callback is kept by copy if it is trivially copyable and at most three pointers large; "
          "this one is not: give it a name that outlives the callback");
      if constexpr (is_small<callable>) {
        __builtin_memcpy(kept_.copy, __builtin_addressof(f), sizeof f);
        call_ = [](place& p, Arguments... a) {
          return static_cast<Result>((*__builtin_launder(reinterpret_cast<callable*>(p.copy)))(a...));
        };
      }
    }
  }

  constexpr explicit operator bool() const noexcept { return call_ != nullptr; }
  /// Throws what the callable throws. Requires that it is not empty.
  Result operator()(Arguments... a) const { return call_(kept_, a...); }

 private:
  mutable place kept_{};
  Result (*call_)(place&, Arguments...) = nullptr;
};

/// One whose result is dropped.
template <class... Arguments>
using callback = basic_callback<void, Arguments...>;

}  // namespace tensorpull
