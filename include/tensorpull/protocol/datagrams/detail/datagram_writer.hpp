// A datagram that is being put together.
#pragma once

#include <tensorpull/framing/detail/piece_prefix.hpp>
#include <tensorpull/protocol/datagrams/datagram_plan.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tensorpull::detail {

/// A plan, the memory that is left for its frames, and the bytes that are left in the datagram. A frame is added whole
/// or not at all: ask for `room` and has_spans() before.
struct datagram_writer {
  datagram_plan& plan;
  std::span<std::byte> scratch;
  std::size_t room;

  /// Adds bytes that stay where they are until the datagram was sent.
  void add(std::span<const std::byte> bytes) noexcept {
    if (bytes.empty()) return;
    plan.bytes += bytes.size();
    room -= bytes.size();
    if (plan.span_count > 0) {  // what was written one after the other is one span
      auto& last = plan.spans[plan.span_count - 1];
      if (last.data() + last.size() == bytes.data()) {
        last = {last.data(), last.size() + bytes.size()};
        return;
      }
    }
    plan.spans[plan.span_count++] = bytes;
  }
  /// The next `n` bytes of scratch memory.
  std::span<std::byte> take(std::size_t n) noexcept {
    const auto taken = scratch.first(n);
    scratch = scratch.subspan(n);
    return taken;
  }
  /// Frames begin at a word.
  void align() noexcept { scratch = scratch.subspan((8 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 8) % 8); }
  /// Whether there is room for one more frame's spans.
  bool has_spans() const noexcept { return plan.span_count + 4 <= datagram_plan::max_spans; }

  /// Adds a copy of a frame.
  void copy(std::span<const std::byte> frame) noexcept {
    align();
    const auto copied = take(frame.size());
    std::memcpy(copied.data(), frame.data(), frame.size());
    add(copied);
  }
  /// Adds a piece, whose payload stays where it is until the datagram was sent.
  void add(const piece& p, std::span<const std::byte> payload) noexcept {
    align();
    const auto head = take(piece_prefix::bytes);
    piece_prefix::write(p, head.first<piece_prefix::bytes>());
    add(head);
    add(payload);
    pad(payload.size());
  }
  /// Ends a payload of so many bytes at a word.
  void pad(std::size_t payload) noexcept {
    add(std::span(zeros).first(static_cast<std::size_t>(payload_prefix::padded(payload)) - payload));
  }

 private:
  alignas(8) static constexpr std::byte zeros[8]{};
};

}  // namespace tensorpull::detail
