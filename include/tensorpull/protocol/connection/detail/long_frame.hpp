// A frame that is longer than a connection's own buffer: it is put together in a buffer of the pool.
#pragma once

#include <tensorpull/core/buffer_pool.hpp>

#include <cstddef>
#include <cstring>
#include <span>
#include <utility>

namespace tensorpull::detail {

template <class Pool>
class long_frame {
 public:
  bool begun() const noexcept { return buffer_ != nullptr; }
  bool whole() const noexcept { return have_ == size_; }
  std::span<const std::byte> bytes() const noexcept { return {buffer_, size_}; }
  /// Memory for what is missing.
  std::span<std::byte> room() noexcept { return {buffer_ + have_, size_ - have_}; }
  void filled_more(std::size_t n) noexcept { have_ += n; }

  /// Starts with the first bytes of a frame of `size` bytes, which a buffer can hold. False: no buffer is free.
  bool begin(Pool& pool, std::size_t size, std::span<const std::byte> first) noexcept {
    buffer_ = pool.acquire();
    if (buffer_ == nullptr) return false;
    size_ = size;
    have_ = first.size();
    std::memcpy(buffer_, first.data(), first.size());
    return true;
  }
  void end(Pool& pool) noexcept {
    if (buffer_ != nullptr) pool.release(std::exchange(buffer_, nullptr));
  }

 private:
  std::byte* buffer_ = nullptr;
  std::size_t size_ = 0, have_ = 0;
};

}  // namespace tensorpull::detail
