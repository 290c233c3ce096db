// The few hundred bytes of a connection in which frames are recognised. Keeps every frame's start aligned to a word.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

namespace tensorpull::detail {

/// Byte i of the buffer is a byte of the stream whose position is i modulo 8, so frames (multiples of 8) always start aligned.
template <std::size_t Capacity>
class frame_buffer {
  static_assert(Capacity % 8 == 0);

 public:
  std::span<const std::byte> filled() const noexcept { return {bytes_ + begin_, end_ - begin_}; }
  bool empty() const noexcept { return begin_ == end_; }
  bool full() const noexcept { return end_ - begin_ + 8 > Capacity; }

  /// Memory for the bytes that come next from the stream, `phase` = stream position modulo 8; at most `most` bytes.
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

}  // namespace tensorpull::detail
