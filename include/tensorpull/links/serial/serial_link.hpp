// A datagram link over any byte device: frames of COBS with a CRC32C make a noisy line lose datagrams, and never change
// one.
#pragma once

#include <tensorpull/links/datagram_link.hpp>
#include <tensorpull/links/serial/byte_device.hpp>
#include <tensorpull/links/serial/cobs.hpp>
#include <tensorpull/std/algorithm.hpp>

#include <cstring>
#include <utility>

namespace tensorpull {

/// Datagrams of at most `MaxDatagramBytes` between two ends of a serial line. It holds one datagram that arrives, one
/// frame that leaves, and `read_bytes` of what the device has given: no heap. After any garbage the first frame that
/// begins behind a zero byte is received again: noise costs the frames that it touches, and at most the one that
/// follows if the noise has no zero at its end.
///
/// A line is slower than a processor, so a frame that was sent waits here until the device has taken it, and one at a
/// time. Every call hands on what the device takes, and wait() does so while it waits. When the link is destroyed, what
/// is left of a frame is lost.
template <byte_device Device, std::size_t MaxDatagramBytes = 512>
class serial_link {
 public:
  using address = only_peer;
  static constexpr std::size_t max_datagram_bytes = MaxDatagramBytes;
  static constexpr bool checked = true;
  /// Any program that can write on the serial line is its other end.
  static constexpr bool addresses_are_proved = true;
  /// Bytes that one read of the device takes at most.
  static constexpr std::size_t read_bytes = 256;
  static_assert(MaxDatagramBytes >= 128, "tensorpull: a datagram link carries datagrams of at least 128 bytes");

  /// Takes the device over.
  explicit serial_link(Device device) noexcept : device_(std::move(device)) {}

  constexpr std::size_t datagram_bytes() const noexcept { return MaxDatagramBytes; }

  /// Reads what the device has, at most two of the longest frames in one call, until a datagram is whole.
  io_result receive(std::span<std::byte> memory, address&) noexcept {
    hand_on();
    while (find()) {
      found_ = false;
      const auto datagram = reader_.datagram();
      if (datagram.size() > memory.size()) continue;
      std::memcpy(memory.data(), datagram.data(), datagram.size());
      return {io_status::ok, 0, datagram.size()};
    }
    return {ended_, system_, 0};
  }

  /// would_block: the device has not taken the frame before. ok with 0 bytes: it is empty, or longer than
  /// MaxDatagramBytes.
  io_result send(gather_list datagram, const address&) noexcept {
    hand_on();
    if (ended_ != io_status::would_block) return {ended_, system_, 0};
    if (!rest().empty()) return {io_status::would_block, 0, 0};
    taken_ = 0;
    if (!writer_.write(datagram)) return {};
    std::size_t bytes = 0;
    for (const auto& s : datagram) bytes += s.size();
    hand_on();
    return {io_status::ok, 0, bytes};
  }

  /// May return early with neither direction: bytes arrived, and not a whole datagram.
  io_ready wait(bool read, bool write, std::chrono::milliseconds timeout) noexcept {
    hand_on();
    io_ready now{read && readable(), write && writable()};
    if (now.read || now.write) return now;
    (void)device_.wait(read, !rest().empty(), timeout);
    hand_on();
    return {read && readable(), write && writable()};
  }

  /// Frames that were dropped since the link was made: damaged, cut, or too long.
  std::uint64_t dropped() const noexcept { return reader_.dropped(); }
  /// The device, for its settings.
  const Device& device() const noexcept { return device_; }

 private:
  bool readable() noexcept { return find() || ended_ != io_status::would_block; }
  bool writable() const noexcept { return rest().empty() || ended_ != io_status::would_block; }
  /// Whether a datagram is whole. Reads the device until one is.
  bool find() noexcept {
    if (found_) return true;
    for (std::size_t read = 0;;) {
      auto unread = std::span<const std::byte>(memory_).subspan(unread_at_, unread_);
      found_ = reader_.read(unread);
      unread_at_ += unread_ - unread.size();
      unread_ = unread.size();
      if (found_) return true;
      if (ended_ != io_status::would_block || read >= 2 * cobs_frame_bytes(MaxDatagramBytes)) return false;
      const io_result io = device_.read(memory_);
      if (io.bytes == 0) {
        end(io);
        return false;
      }
      read += io.bytes;
      unread_at_ = 0;
      unread_ = std::min(io.bytes, memory_.size());
    }
  }
  /// The rest, which the device has not taken yet, of the frame that is being sent.
  std::span<const std::byte> rest() const noexcept { return writer_.frame().subspan(taken_); }
  /// Gives the device what it takes of it.
  void hand_on() noexcept {
    while (!rest().empty() && ended_ == io_status::would_block) {
      const io_result io = device_.write(rest());
      if (io.bytes == 0) return end(io);
      taken_ += std::min(io.bytes, rest().size());
    }
  }
  void end(const io_result& io) noexcept {
    if (io.status == io_status::closed || io.status == io_status::failed) {
      ended_ = io.status;
      system_ = io.system;
    }
  }

  Device device_;
  io_status ended_ = io_status::would_block;  // or why the link can be used no more
  std::int32_t system_ = 0;
  bool found_ = false;  // the reader has a datagram that was not received yet
  cobs_writer<MaxDatagramBytes> writer_;
  cobs_reader<MaxDatagramBytes> reader_;
  std::array<std::byte, read_bytes> memory_{};
  std::size_t unread_at_ = 0, unread_ = 0;  // of memory_
  std::size_t taken_ = 0;  // of the writer's frame
};

}  // namespace tensorpull
