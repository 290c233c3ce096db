// The chunk buffers that streaming consumers share. Their memory is taken once; it grows with neither the model nor the
// number of clients.
#pragma once

#include <tensorpull/core/buffer_pool.hpp>
#include <tensorpull/core/checked.hpp>
#include <tensorpull/core/detail/replace.hpp>
#include <tensorpull/core/limits.hpp>
#include <tensorpull/core/result.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <utility>

namespace tensorpull {

/// `count` buffers of `chunk_bytes`, aligned to 64 bytes, in one heap allocation: for each buffer, chunk_bytes rounded
/// up to a multiple of 64, and 64 more; and a little for all. A consumer leases one while a chunk arrives; if none is
/// free, it waits. So the buffers bound the memory. For one thread. Outlives its leases.
class chunk_buffers {
 public:
  /// Bytes of each buffer in front of its chunk. The part of an element that the chunk before ended with is copied
  /// there.
  static constexpr std::size_t margin = 64;

  /// One buffer, given back by the destructor. Empty if none was free.
  class lease {
   public:
    lease() noexcept = default;
    lease(lease&& other) noexcept : pool_(other.pool_), buffer_(std::exchange(other.buffer_, nullptr)) {}
    lease& operator=(lease&& other) noexcept { return detail::replace(*this, std::move(other)); }
    ~lease() {
      if (buffer_ != nullptr) pool_->release(buffer_);
    }

    explicit operator bool() const noexcept { return buffer_ != nullptr; }
    /// The first byte of the chunk, behind the margin. Requires a lease that is not empty.
    std::byte* data() const noexcept { return buffer_ + margin; }

   private:
    friend class chunk_buffers;
    explicit lease(buffer_pool<>& pool) noexcept : pool_(&pool), buffer_(pool.acquire()) {}
    buffer_pool<>* pool_ = nullptr;
    std::byte* buffer_ = nullptr;
  };

  /// Errors: invalid_argument (a size or a count of 0), out_of_memory. A chunk longer than `chunk_bytes` fails its
  /// transfer: does_not_fit.
  [[nodiscard]] static result<chunk_buffers> make(std::uint64_t chunk_bytes = default_chunk_bytes,
                                                  std::size_t count = 4) noexcept {
    if (chunk_bytes == 0 || count == 0) return failure(errc::invalid_argument);
    if (chunk_bytes > std::numeric_limits<std::size_t>::max() / 4) return failure(errc::out_of_memory);
    const std::size_t each = (static_cast<std::size_t>(chunk_bytes) + 63) / 64 * 64 + margin;
    const auto all = checked_multiply(each, count);
    if (!all || *all > std::numeric_limits<std::size_t>::max() / 2) return failure(errc::out_of_memory);
    void* const memory = ::operator new(sizeof(block) + static_cast<std::size_t>(*all), std::align_val_t{64},
                                        std::nothrow);
    if (memory == nullptr) return failure(errc::out_of_memory);
    const std::span<std::byte> buffers(static_cast<std::byte*>(memory) + sizeof(block), static_cast<std::size_t>(*all));
    return chunk_buffers(::new (memory)
                             block{buffer_pool<>(buffers, each), static_cast<std::size_t>(chunk_bytes), count});
  }

  /// A free buffer, or an empty lease if there is none.
  lease acquire() noexcept { return lease(block_->pool); }

  std::size_t chunk_bytes() const noexcept {
    return block_->chunk_bytes;
  }  ///< Bytes of the longest chunk that fits one buffer.
  std::size_t count() const noexcept { return block_->count; }  ///< Buffers, leased or free.
  std::size_t available() const noexcept { return block_->pool.available(); }  ///< Buffers that are free now.

 private:
  struct alignas(64) block {
    buffer_pool<> pool;
    std::size_t chunk_bytes;
    std::size_t count;
  };
  struct release {
    void operator()(block* b) const noexcept { ::operator delete(static_cast<void*>(b), std::align_val_t{64}); }
  };
  explicit chunk_buffers(block* b) noexcept : block_(b) {}

  std::unique_ptr<block, release> block_;
};

}  // namespace tensorpull
