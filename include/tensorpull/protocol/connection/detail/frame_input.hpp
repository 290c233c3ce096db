// The parts of frames that have arrived at one end of a connection: a few hundred bytes in which frames are recognised,
// and a buffer of the pool for a frame that is longer.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <utility>

namespace tensorpull::detail {

/// Keeps every frame's start aligned to a word: byte i of the buffer holds a byte of the stream whose position is
/// congruent to i modulo 8, and the length of every frame is a multiple of 8.
template <std::size_t Capacity>
class frame_buffer {
  static_assert(Capacity % 8 == 0);

 public:
  std::span<const std::byte> filled() const noexcept { return {bytes_ + begin_, end_ - begin_}; }
  bool empty() const noexcept { return begin_ == end_; }
  bool full() const noexcept { return end_ - begin_ + 8 > Capacity; }

  /// Memory for the next bytes of the stream, `phase` = stream position modulo 8; at most `most` bytes.
  std::span<std::byte> space(std::size_t phase, std::size_t most) noexcept {
    if (empty()) {
      begin_ = end_ = phase;
    } else if (begin_ >= 8) {
      const std::size_t to = begin_ % 8;
      std::memmove(bytes_ + to, bytes_ + begin_, end_ - begin_);
      end_ -= begin_ - to;
      begin_ = to;
    }
    return {bytes_ + end_, most < Capacity - end_ ? most : Capacity - end_};
  }
  void filled_more(std::size_t n) noexcept { end_ += n; }
  void consume(std::size_t n) noexcept { begin_ += n; }

 private:
  alignas(8) std::byte bytes_[Capacity];
  std::size_t begin_ = 0, end_ = 0;
};

/// A frame that is longer than a frame_buffer. `Pool`: a buffer_pool.
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
