// One object of any type on the heap: a model, or a pointer to one, that an owner keeps as long as it publishes it.
#pragma once

#include <new>
#include <type_traits>
#include <utility>

namespace tensorpull {

/// Owns one object of any type. Two words; movable, not copyable. std::shared_ptr<void> does the same, but <memory>
/// costs 0.3 s to include.
class unique_any {
 public:
  unique_any() noexcept = default;
  unique_any(unique_any&& other) noexcept : object_(std::exchange(other.object_, nullptr)), destroy_(other.destroy_) {}
  unique_any& operator=(unique_any&& other) noexcept {
    std::swap(object_, other.object_);
    std::swap(destroy_, other.destroy_);
    return *this;
  }
  ~unique_any() {
    if (object_ != nullptr) destroy_(object_);
  }

  /// Moves (or copies) `value` to the heap and destroys what was kept before. nullptr: there is no memory, and what was
  /// kept stays. The object's address does not change when this owner is moved.
  template <class T>
  std::remove_cvref_t<T>* keep(T&& value) {
    using type = std::remove_cvref_t<T>;
    auto* const object = new (std::nothrow) type(std::forward<T>(value));
    *this = {};
    object_ = object;
    destroy_ = [](void* p) noexcept { delete static_cast<type*>(p); };
    return object;
  }
  explicit operator bool() const noexcept { return object_ != nullptr; }

 private:
  void* object_ = nullptr;
  void (*destroy_)(void*) noexcept = nullptr;
};

}  // namespace tensorpull
