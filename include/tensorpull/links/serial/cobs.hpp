// Frames on a line of bytes: consistent overhead byte stuffing (S. Cheshire, M. Baker, IEEE/ACM Transactions on
// Networking 7(2), 1999), a CRC32C, and a zero byte at the end. Nothing within a frame is zero, so a reader that has
// lost its position finds it again at the next zero.
#pragma once

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/core/crc32c.hpp>
#include <tensorpull/core/spans.hpp>

#include <type_traits>

namespace tensorpull {

/// The longest frame of a datagram of so many bytes: 6 bytes more, and one more for each 254.
constexpr std::size_t cobs_frame_bytes(std::size_t datagram_bytes) noexcept {
  const std::size_t bytes = datagram_bytes + 4;
  return bytes + bytes / 254 + 2;
}

/// Writes frames, in the memory that the datagram lies in. One step and one CRC look-up for each byte; it holds nothing
/// but the frame. `Crc`: crc32c_fast, or crc32c_small.
template <std::size_t MaxDatagramBytes, class Crc = crc32c_fast>
class cobs_writer {
 public:
  /// Memory for a datagram. It is the frame's, so write() ends what was there.
  constexpr std::span<std::byte> room() noexcept { return {memory_.data() + front, MaxDatagramBytes}; }
  /// Makes the frame of the first `bytes` bytes of room(). False: there are none, or more than MaxDatagramBytes, and
  /// there is no frame.
  constexpr bool write(std::size_t bytes) noexcept {
    size_ = 0;
    // the CRC of nothing is 0, and a few equal bytes of noise would be its frame
    if (bytes == 0 || bytes > MaxDatagramBytes) return false;
    std::byte* const from = memory_.data() + front;
    const std::uint32_t crc = Crc::of({from, bytes});
    for (std::size_t i = 0; i < 4; ++i) from[bytes + i] = static_cast<std::byte>(crc >> (8 * i) & 0xff);
    // Writing never overtakes reading: in front of the datagram is room for every byte that the frame has more. A block
    // begins with its length, itself included; after one of 255 no zero is meant.
    std::size_t code = 0, to = 1;
    for (std::size_t i = 0; i < bytes + 4; ++i) {
      const std::byte b = from[i];
      if (b != std::byte{0}) memory_[to++] = b;
      if (b == std::byte{0} || to - code == 255) {
        memory_[code] = static_cast<std::byte>(to - code);
        code = to++;
      }
    }
    memory_[code] = static_cast<std::byte>(to - code);
    memory_[to++] = std::byte{0};
    size_ = static_cast<size_type>(to);
    return true;
  }
  /// The same of a datagram which the spans give in order.
  constexpr bool write(gather_list datagram) noexcept {
    std::size_t bytes = 0;
    for (const auto& s : datagram) {
      if (s.size() > MaxDatagramBytes - bytes) return write(0);
      for (const std::byte b : s) memory_[front + bytes++] = b;
    }
    return write(bytes);
  }
  /// The frame, with the zero at its end; valid until the next call of the others.
  constexpr std::span<const std::byte> frame() const noexcept { return {memory_.data(), size_}; }

 private:
  using size_type = std::conditional_t<(cobs_frame_bytes(MaxDatagramBytes) < 0xffff), std::uint16_t, std::uint32_t>;
  /// How many bytes the frame may grow in front of its datagram.
  static constexpr std::size_t front = cobs_frame_bytes(MaxDatagramBytes) - MaxDatagramBytes - 4;

  size_type size_ = 0;
  std::array<std::byte, cobs_frame_bytes(MaxDatagramBytes) + 1> memory_{};
};

/// Reads frames out of any bytes. It holds one datagram and its CRC; one step for each byte and one CRC look-up for
/// each byte of a datagram. `Crc`: as the writer's.
template <std::size_t MaxDatagramBytes, class Crc = crc32c_fast>
class cobs_reader {
 public:
  /// Reads on until a datagram is whole. Takes what it has read off the front of `bytes`. True: datagram() has it. A
  /// frame that is damaged, cut or too long is dropped, and with it nothing behind the next zero.
  constexpr bool read(std::span<const std::byte>& bytes) noexcept {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (!take(bytes[i])) continue;
      bytes = bytes.subspan(i + 1);
      return true;
    }
    bytes = {};
    return false;
  }
  /// The datagram that read() has found; valid until its next call.
  constexpr std::span<const std::byte> datagram() const noexcept { return {memory_.data(), size_}; }
  /// Frames that were dropped so far. Bytes between two zeros are a frame, whatever they were meant to be.
  constexpr std::uint64_t dropped() const noexcept { return dropped_; }

 private:
  constexpr bool take(std::byte b) noexcept {
    if (begins_) {
      filled_ = left_ = 0;
      begins_ = bad_ = zero_due_ = any_ = false;
    }
    if (b == std::byte{0}) return end();
    any_ = true;
    if (left_ == 0) {  // the length of the next block
      if (zero_due_) put(std::byte{0});
      left_ = static_cast<std::uint8_t>(b);
      zero_due_ = left_ != 255;
    } else put(b);
    --left_;
    return false;
  }
  constexpr void put(std::byte b) noexcept {
    if (filled_ < memory_.size()) memory_[filled_++] = b;
    else bad_ = true;
  }
  constexpr bool end() noexcept {
    begins_ = true;
    if (!any_) return false;  // two zeros: nothing was between them
    if (!bad_ && left_ == 0 && filled_ > 4) {
      size_ = filled_ - 4;
      if (Crc::of({memory_.data(), size_}) == load_le32(memory_.data() + size_)) return true;
    }
    ++dropped_;
    return false;
  }

  std::uint64_t dropped_ = 0;
  std::size_t filled_ = 0, size_ = 0;
  std::uint8_t left_ = 0;  // of the block
  // the next byte begins a frame; it has a byte; it is too long; the block before ends with a zero
  bool begins_ = true, any_ = false, bad_ = false, zero_due_ = false;
  std::array<std::byte, MaxDatagramBytes + 4> memory_{};
};

}  // namespace tensorpull
