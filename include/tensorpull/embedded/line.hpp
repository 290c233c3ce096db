// A serial line for a small machine: the frames of links/serial/serial_link.hpp (COBS and a CRC32C) with a table of 64
// bytes, received in place, and written where they are sent from. And the steps that move datagrams between a line and
// the two roles.
#pragma once

#include <tensorpull/consumers/receipt.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/links/byte_stream.hpp>
#include <tensorpull/links/serial/cobs.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull {

/// A line's requirements of a device: `d.read(memory)` and `d.write(bytes)` as byte_device
/// (links/serial/byte_device.hpp) has them. Neither waits.
template <class D>
concept embedded_device = requires(D& d, std::span<std::byte> in, std::span<const std::byte> out) {
  { d.read(in) } noexcept -> std::same_as<io_result>;
  { d.write(out) } noexcept -> std::same_as<io_result>;
};

/// One end of a serial line: datagrams of at most `MaxIn` bytes arrive, and of at most `MaxOut` bytes leave. Borrows
/// the device. It holds one datagram that arrives and one frame that leaves, and nothing else. A frame that is damaged,
/// cut or too long is dropped; noise costs the frames that it touches, and at most the one that follows.
template <class Device, std::size_t MaxIn, std::size_t MaxOut, class Crc = crc32c_small>
class embedded_line {
  static_assert(
      embedded_device<Device>,
      "tensorpull: a line's device has io_result read(memory) and io_result write(bytes), both noexcept (embedded_device in embedded/line.hpp)");

 public:
  static constexpr std::size_t max_in = MaxIn;  ///< The longest datagram that arrives.
  static constexpr std::size_t max_out = MaxOut;  ///< The longest datagram that goes.

  /// Borrows the device.
  explicit embedded_line(Device& over) noexcept : device_(over) {}

  /// Reads what the device has until a datagram is whole, at most two of the longest frames; empty: none is. It lies in
  /// the line's memory until the next call.
  std::span<const std::byte> receive() noexcept {
    std::byte b;
    for (std::size_t n = 0; n < 2 * cobs_frame_bytes(MaxIn); ++n) {
      if (device_.read({&b, 1}).bytes == 0) break;
      std::span<const std::byte> one{&b, 1};
      if (reader_.read(one)) return reader_.datagram();
    }
    return {};
  }

  /// Memory for the next datagram that goes; empty: the device has not taken the one before yet. Hands on what the
  /// device takes.
  std::span<std::byte> room() noexcept {
    flush();
    if (sent_ < writer_.frame().size()) return {};
    return writer_.room();
  }
  /// Sends the first `bytes` bytes of room(), which may not be empty; 0 bytes: nothing is sent.
  void send(std::size_t bytes) noexcept {
    if (!writer_.write(bytes)) return;
    sent_ = 0;
    flush();
  }
  /// Whether the device has taken everything.
  bool idle() noexcept {
    flush();
    return sent_ >= writer_.frame().size();
  }

 private:
  static_assert(cobs_frame_bytes(MaxOut) <= 0xffff, "tensorpull: a line's datagrams have at most 65,273 bytes");

  void flush() noexcept {
    while (sent_ < writer_.frame().size()) {
      const std::size_t n = device_.write(writer_.frame().subspan(sent_)).bytes;
      if (n == 0) return;
      sent_ = static_cast<std::uint16_t>(sent_ + n);
    }
  }

  Device& device_;
  cobs_reader<MaxIn, Crc> reader_{};
  cobs_writer<MaxOut, Crc> writer_{};
  std::uint16_t sent_ = 0;
};

/// In place of a role that a program has not.
struct no_role {};

/// One step of a serial line: takes a datagram if one has arrived, sends what there is to send, and hands on what the
/// device takes of the last frame. It does not wait. `recipient`: an embedded_recipient or no_role{}; `owner`: an
/// embedded_owner or no_role{}; `now_ms`: of a clock with any origin. True: a datagram arrived or left, so call it
/// again at once. False: call it again when something arrives, when the device takes more while its idle() is false,
/// and when time goes on. A serial line that is too short for the requests or answers of a role is refused at compile
/// time.
template <class Line, class Recipient, class Owner>
bool step(Line& line, Recipient& recipient, Owner& owner, std::uint32_t now_ms) noexcept {
  if constexpr (requires { Recipient::answer_bytes; }) {
    static_assert(Line::max_in >= Recipient::answer_bytes,
                  "tensorpull: a line takes the longest answer that its recipient asks for (Recipient::answer_bytes)");
    static_assert(Line::max_out >= Recipient::max_out,
                  "tensorpull: a line carries the requests of its recipient (Recipient::max_out)");
  }
  if constexpr (requires { Owner::answer_bytes; }) {
    static_assert(Line::max_in >= Owner::request_bytes,
                  "tensorpull: a line takes the requests that its owner answers (Owner::request_bytes)");
    static_assert(Line::max_out >= Owner::answer_bytes,
                  "tensorpull: a line carries the longest answer of its owner (Owner::answer_bytes)");
  }
  const std::span<const std::byte> datagram = line.receive();
  bool moved = !datagram.empty();
  if (moved) {
    if constexpr (requires { recipient.received(datagram, now_ms); }) recipient.received(datagram, now_ms);
    if constexpr (requires(std::span<std::byte> out) { owner.answer(datagram, out, now_ms); })
      if (const auto room = line.room(); !room.empty()) line.send(owner.answer(datagram, room, now_ms));
  }
  if constexpr (requires(std::span<std::byte> out) { recipient.next(out, now_ms); }) {
    if (const std::size_t n = recipient.next(line.room(), now_ms); n > 0) {
      line.send(n);
      moved = true;
    }
  } else {
    (void)line.room();  // a peer that waits for the rest of an answer sends nothing, so the rest goes on although
                        // nothing arrives
  }
  return moved;
}

namespace detail {
/// Calls `step()` until the recipient has ended, and waits 10 s at most until the line has sent its last frame.
template <class Line, class Recipient, class Step, class Clock>
result<receipt> pull_by(Line& line, Recipient& recipient, Step step, Clock now_ms) noexcept {
  while (!recipient.ended()) step();
  for (const std::uint32_t end = now_ms(); !line.idle() && now_ms() - end < 10'000;) {
  }
  return recipient.outcome();
}
}  // namespace detail

/// A whole pull: steps until the recipient has ended and the line has sent its last frame, for which it waits 10 s at
/// most. `now_ms()`: the clock, in milliseconds; it may sleep until something arrives.
template <class Line, class Recipient, class Clock>
result<receipt> pull(Line& line, Recipient& recipient, Clock now_ms) noexcept {
  no_role none;
  return detail::pull_by(line, recipient, [&] { (void)step(line, recipient, none, now_ms()); }, now_ms);
}

}  // namespace tensorpull
