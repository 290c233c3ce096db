// A byte device: a serial port, a microcontroller's UART, a radio modem. It carries bytes that may be lost, changed, or
// joined by noise.
#pragma once

#include <tensorpull/links/byte_stream.hpp>

namespace tensorpull {

/// A byte device D moves bytes in both directions, without a promise that they arrive, or arrive as they were:
///  1. `d.read(memory)` reads at most the memory's size and never waits; 0 bytes only with would_block, closed or
///     failed;
///  2. `d.write(bytes)` never waits; it may take any part, and none with would_block;
///  3. `d.wait(read, write, timeout)` waits until a direction that was asked for can make progress, or the timeout is
///     over. The end of reading, since the device is gone, is progress;
///  4. movable, closed by its destructor; after `failed` or `closed` only destruction is needed;
///  5. no call throws, allocates, or raises a signal.
template <class D>
concept byte_device = std::movable<D> && requires(D d, std::span<std::byte> in, std::span<const std::byte> out,
                                                  std::chrono::milliseconds t) {
  { d.read(in) } noexcept -> std::same_as<io_result>;
  { d.write(out) } noexcept -> std::same_as<io_result>;
  { d.wait(true, true, t) } noexcept -> std::same_as<io_ready>;
};

}  // namespace tensorpull
