// Sole ownership of objects on the heap, as with std::unique_ptr and std::vector. <memory> costs 0.3 s in each file
// that includes it; this header costs next to nothing.
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

namespace tensorpull {

namespace detail {

struct plain_delete {
  template <class T>
  void operator()(T* object) const noexcept {
    delete object;
  }
};

/// Owns an object, or none. `Delete` destroys it.
template <class T, class Delete = plain_delete>
class unique_ptr {
 public:
  unique_ptr() noexcept = default;
  /// Takes what `new` gave; may be null.
  explicit unique_ptr(T* object) noexcept : object_(object) {}
  unique_ptr(unique_ptr&& other) noexcept : object_(other.release()) {}
  unique_ptr& operator=(unique_ptr&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~unique_ptr() { reset(); }

  explicit operator bool() const noexcept { return object_ != nullptr; }
  T& operator*() const noexcept { return *object_; }
  T* operator->() const noexcept { return object_; }
  T* get() const noexcept { return object_; }
  /// Gives up the object, which is the caller's then.
  T* release() noexcept { return std::exchange(object_, nullptr); }
  void reset(T* object = nullptr) noexcept {
    if (T* const before = std::exchange(object_, object)) Delete()(before);
  }
  /// Hands the object over to a std::unique_ptr or a std::shared_ptr.
  template <class Other>
    requires std::is_constructible_v<Other, T*, Delete>
  operator Other() && {
    return Other(release(), Delete());
  }

 private:
  T* object_ = nullptr;
};

/// An array; empty if there was no memory for it. Never grows.
template <class T>
class heap_array {
 public:
  /// Allocates, and touches all of it: where the system refuses memory that the machine lacks, it does so here.
  explicit heap_array(std::size_t count) noexcept {
    if (count > ~std::size_t{0} / 2 / sizeof(T)) return;
    items_ = new (std::nothrow) T[count]();
    if (items_ != nullptr) size_ = count;
  }
  heap_array(const heap_array&) = delete;
  heap_array& operator=(const heap_array&) = delete;
  ~heap_array() { delete[] items_; }

  std::size_t size() const noexcept { return size_; }
  T* data() noexcept { return items_; }
  T* begin() noexcept { return items_; }
  T* end() noexcept { return items_ + size_; }

 private:
  T* items_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace detail

}  // namespace tensorpull
