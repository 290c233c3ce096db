// The board, a TI LM3S6965 as QEMU has it: registers, a clock, two UARTs, and what the debugger behind it does for a
// program (semihosting).
#pragma once

#include <tensorpull/links/serial/byte_device.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

/// The program. The board calls it after the reset, and leaves with what it returns.
int run();

namespace board {

/// A register.
inline volatile std::uint32_t& at(std::uintptr_t address) noexcept {
  return *reinterpret_cast<volatile std::uint32_t*>(address);
}

/// Switches clocks and UARTs on; reset() calls it.
void begin() noexcept;

/// Milliseconds since the reset; it wraps round after 49 days.
std::uint32_t now_ms() noexcept;
/// Sleeps until the next interrupt: a byte has come, or a millisecond is over. Returns at once if a byte is waiting.
void sleep() noexcept;

/// A number that no reset has seen before. This board has no generator of random numbers: the date, and the moments at
/// which this was called and bytes came, are stirred into it. That tells one boot from another, and is no secret.
std::uint64_t random() noexcept;

/// UART0 as a byte device. An interrupt moves what comes into a ring of 1 KiB, so a frame survives while the program
/// computes.
class uart {
 public:
  tensorpull::io_result read(std::span<std::byte> memory) noexcept;
  tensorpull::io_result write(std::span<const std::byte> bytes) noexcept;
  /// With the clock; the time-out is rounded up to milliseconds.
  tensorpull::io_ready wait(bool read, bool write, std::chrono::milliseconds timeout) noexcept;
};
static_assert(tensorpull::byte_device<uart>);

/// The transcript, on UART1: text, and numbers in decimal or hexadecimal digits.
void say(std::string_view text) noexcept;
void say(std::uint32_t number) noexcept;
void say_hex(std::uint64_t number) noexcept;
/// All of them, and an end of line.
template <class... Parts>
void say_line(const Parts&... parts) noexcept {
  (say(parts), ...);
  say("\n");
}

/// Bytes of the stack that have been written since the reset, which paints it; how many it has; and how many bytes of
/// RAM are not the stack's.
struct stack_use {
  std::uint32_t used, all, without;
};
stack_use stack() noexcept;

/// What the program was started with: the emulator's `-append '|FIRST|SECOND'` is argument 1 and 2. Empty, if it is not
/// there.
const char* argument(std::size_t number) noexcept;
/// Reads the first bytes of a file of the debugger's machine. How many; 0: there is none.
std::size_t read_file(const char* path, std::span<char> to) noexcept;
/// Ends the emulator with this status.
[[noreturn]] void leave(int status) noexcept;

}  // namespace board
