// A fixed number of buffers of one size, made at start, so that nothing is allocated while connections run.
#pragma once

#include <tensorpull/std/mutex.hpp>

#include <cstddef>
#include <cstring>
#include <span>

namespace tensorpull {

/// Hands out buffers from memory that it borrows. The free buffers form a list through their own first bytes.
/// `Lock`: no_lock if one thread uses the pool, otherwise a lock with the same members (std/mutex.hpp).
template <class Lock = no_lock>
class buffer_pool {
 public:
  buffer_pool() noexcept = default;
  /// `memory`: borrowed as long as the pool lives, aligned for pointers. `buffer_bytes`: a multiple of 64. Memory at
  /// the end that does not fill a buffer is not used.
  buffer_pool(std::span<std::byte> memory, std::size_t buffer_bytes) noexcept : buffer_bytes_(buffer_bytes) {
    for (std::size_t at = 0; at + buffer_bytes <= memory.size(); at += buffer_bytes) release(memory.data() + at);
  }
  buffer_pool(const buffer_pool&) = delete;
  buffer_pool& operator=(const buffer_pool&) = delete;

  /// Bytes of each buffer.
  std::size_t buffer_bytes() const noexcept { return buffer_bytes_; }
  /// Buffers that are free now.
  std::size_t available() const noexcept {
    const lock_guard hold(lock_);
    return available_;
  }

  /// A buffer, contents unspecified, or nullptr if all are in use.
  std::byte* acquire() noexcept {
    const lock_guard hold(lock_);
    std::byte* const buffer = head_;
    if (buffer == nullptr) return nullptr;
    std::memcpy(&head_, buffer, sizeof head_);
    --available_;
    return buffer;
  }
  /// Takes back a buffer that acquire() gave, once.
  void release(std::byte* buffer) noexcept {
    const lock_guard hold(lock_);
    std::memcpy(buffer, &head_, sizeof head_);
    head_ = buffer;
    ++available_;
  }

 private:
  std::byte* head_ = nullptr;
  std::size_t buffer_bytes_ = 0;
  std::size_t available_ = 0;
  [[no_unique_address]] mutable Lock lock_{};
};

}  // namespace tensorpull
