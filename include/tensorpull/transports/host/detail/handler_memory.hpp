// Memory inside a connection for the event loop's pending operation, so that waiting allocates nothing.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace tensorpull::detail {

/// Holds one operation at a time. A second one, or one that is too large, goes to the heap; the tests that count
/// allocations would find it.
class handler_memory {
 public:
  void* take(std::size_t bytes) {
    if (used_ || bytes > sizeof storage_) return ::operator new(bytes);
    used_ = true;
    return storage_;
  }
  void give(void* p) noexcept {
    if (p == storage_) used_ = false;
    else ::operator delete(p);
  }

 private:
  alignas(std::max_align_t) std::byte storage_[176];
  bool used_ = false;
};

/// The allocator that Asio uses for an operation.
template <class T>
class handler_allocator {
 public:
  using value_type = T;

  explicit handler_allocator(handler_memory& m) noexcept : memory_(&m) {}
  template <class U>
  handler_allocator(const handler_allocator<U>& other) noexcept : memory_(other.memory_) {}

  T* allocate(std::size_t n) { return static_cast<T*>(memory_->take(n * sizeof(T))); }
  void deallocate(T* p, std::size_t) noexcept { memory_->give(p); }
  template <class U>
  bool operator==(const handler_allocator<U>& other) const noexcept {
    return memory_ == other.memory_;
  }

 private:
  template <class>
  friend class handler_allocator;
  handler_memory* memory_;
};

/// Calls f(arguments...); Asio keeps the operation in `memory`.
template <class F>
class in_memory {
 public:
  using allocator_type = handler_allocator<void>;
  in_memory(handler_memory& m, F f) noexcept : memory_(&m), f_(std::move(f)) {}
  allocator_type get_allocator() const noexcept { return allocator_type(*memory_); }
  template <class... Args>
  void operator()(Args&&... args) {
    f_(std::forward<Args>(args)...);
  }

 private:
  handler_memory* memory_;
  F f_;
};

}  // namespace tensorpull::detail
