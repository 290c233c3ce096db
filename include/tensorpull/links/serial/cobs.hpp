// Frames on a line of bytes: consistent overhead byte stuffing (S. Cheshire, M. Baker, IEEE/ACM Transactions on
// Networking 7(2), 1999), a CRC32C, and a zero byte at the end. Nothing within a frame is zero, so a reader that has
// lost its position finds it again at the next zero.
#pragma once

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/core/crc32c.hpp>
#include <tensorpull/core/spans.hpp>

namespace tensorpull {

/// The longest frame of a datagram of so many bytes: 6 bytes more, and one more for each 254.
constexpr std::size_t cobs_frame_bytes(std::size_t datagram_bytes) noexcept {
  const std::size_t bytes = datagram_bytes + 4;
  return bytes + bytes / 254 + 2;
}

/// Writes frames. One step and one CRC look-up for each byte; it holds nothing but the frame. `Crc`: crc32c_fast, or
/// crc32c_small.
template <std::size_t MaxDatagramBytes, class Crc = crc32c_fast>
class cobs_writer {
 public:
  /// Makes the frame of one datagram, which the spans give in order. False: it is empty or longer
  /// than MaxDatagramBytes, and there is no frame.
  constexpr bool write(gather_list datagram) noexcept {
    size_ = 0;
    std::size_t bytes = 0;
    for (const auto& s : datagram) {
      if (s.size() > MaxDatagramBytes - bytes) return false;
      bytes += s.size();
    }
    if (bytes == 0) return false;  // its CRC is 0, and a few equal bytes of noise would be its frame
    begin_block();
    std::uint32_t crc = 0;
    for (const auto& s : datagram) {
      crc = Crc::of(s, crc);
      put(s);
    }
    const std::array check{static_cast<std::byte>(crc & 0xff), static_cast<std::byte>(crc >> 8 & 0xff),
                           static_cast<std::byte>(crc >> 16 & 0xff), static_cast<std::byte>(crc >> 24)};
    put(check);
    end_block();
    frame_[size_++] = std::byte{0};
    return true;
  }
  /// The frame, with the zero at its end; valid until the next call.
  constexpr std::span<const std::byte> frame() const noexcept { return {frame_.data(), size_}; }

 private:
  constexpr void put(std::span<const std::byte> bytes) noexcept {
    for (const std::byte b : bytes) {
      if (b != std::byte{0}) frame_[size_++] = b;
      if (b == std::byte{0} || size_ - code_ == 255) {
        end_block();
        begin_block();
      }
    }
  }
  constexpr void begin_block() noexcept { code_ = size_++; }
  /// A block begins with its length, itself included. After one of 255 no zero is meant.
  constexpr void end_block() noexcept { frame_[code_] = static_cast<std::byte>(size_ - code_); }

  std::size_t size_ = 0, code_ = 0;
  std::array<std::byte, cobs_frame_bytes(MaxDatagramBytes)> frame_{};
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
