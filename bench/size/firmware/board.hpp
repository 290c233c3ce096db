// What a pipeline has around it on the board: a line of bytes, a clock and a number, all handed in. The same object
// file of a pipeline is linked with uart.cpp, which is a UART, and with rings.cpp, where the other end of the line is a
// part of the program.
#pragma once

#include <tensorpull/links/byte_stream.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace board {

/// Takes what has come, and never waits. 0: nothing is there.
std::size_t read(std::span<std::byte> memory) noexcept;
/// Gives the line what it takes now.
std::size_t write(std::span<const std::byte> bytes) noexcept;
/// A clock.
std::uint32_t now_ms() noexcept;
/// A number that nobody can guess; here the board's, which is none.
std::uint64_t random() noexcept;

/// Flash for what has landed: pages of 1 KiB, written in words.
bool erase(std::uint32_t page) noexcept;
bool program(std::uint32_t at, std::span<const std::byte> bytes) noexcept;
bool read_flash(std::uint32_t at, std::span<std::byte> out) noexcept;

/// The program's verifier of signatures of Ed25519; here none, since a library of its own is not measured.
bool verifies(std::span<const std::byte, 32> key, std::span<const std::byte> message,
              std::span<const std::byte, 64> signature) noexcept;

/// The line as a byte device.
struct device {
  tensorpull::io_result read(std::span<std::byte> memory) noexcept { return moved(board::read(memory)); }
  tensorpull::io_result write(std::span<const std::byte> bytes) noexcept { return moved(board::write(bytes)); }
  tensorpull::io_ready wait(bool read, bool write, std::chrono::milliseconds) noexcept { return {read, write}; }

 private:
  static tensorpull::io_result moved(std::size_t bytes) noexcept {
    return {bytes > 0 ? tensorpull::io_status::ok : tensorpull::io_status::would_block, 0, bytes};
  }
};

/// The same as the landing wants it.
struct flash {
  static constexpr std::uint32_t page_bytes = 1024, program_bytes = 4;
  bool erase(std::uint32_t page) noexcept { return board::erase(page); }
  bool program(std::uint32_t at, std::span<const std::byte> bytes) noexcept { return board::program(at, bytes); }
  bool read(std::uint32_t at, std::span<std::byte> out) noexcept { return board::read_flash(at, out); }
};

}  // namespace board

/// The pipeline that is measured: all of the program but the board. Status 0: the bytes have landed, and were
/// confirmed.
extern "C" [[gnu::noinline]] int pipeline();
