// The line is UART0, the clock counts periods of SysTick, and the flash is the upper quarter of what the program lies
// in.
#include "board.hpp"

namespace {
volatile std::uint32_t& at(std::uintptr_t address) noexcept {
  return *reinterpret_cast<volatile std::uint32_t*>(address);
}
constexpr std::uintptr_t uart0 = 0x4000c000, systick = 0xe000e010, flash_control = 0x400fd000, flash_memory = 0x30000;
std::uint32_t ms;

void flash_command(std::uintptr_t address, std::uint32_t command) noexcept {
  at(flash_control) = static_cast<std::uint32_t>(address);
  at(flash_control + 8) = 0xa4420000 | command;
  while ((at(flash_control + 8) & command) != 0) {
  }
}
}  // namespace

std::size_t board::read(std::span<std::byte> memory) noexcept {
  std::size_t n = 0;
  while (n < memory.size() && (at(uart0 + 0x18) & 0x10) == 0) memory[n++] = static_cast<std::byte>(at(uart0));
  return n;
}
std::size_t board::write(std::span<const std::byte> bytes) noexcept {
  std::size_t n = 0;
  while (n < bytes.size() && (at(uart0 + 0x18) & 0x20) == 0) at(uart0) = std::to_integer<std::uint32_t>(bytes[n++]);
  return n;
}
std::uint32_t board::now_ms() noexcept { return ms += at(systick) >> 16 & 1; }
std::uint64_t board::random() noexcept { return at(systick + 8); }
bool board::verifies(std::span<const std::byte, 32>, std::span<const std::byte>,
                     std::span<const std::byte, 64>) noexcept {
  return true;
}
bool board::erase(std::uint32_t page) noexcept {
  flash_command(flash_memory + page * flash::page_bytes, 2);
  return true;
}
bool board::program(std::uint32_t at_byte, std::span<const std::byte> bytes) noexcept {
  for (std::size_t i = 0; i + 4 <= bytes.size(); i += 4) {
    std::uint32_t word = 0;
    for (std::size_t k = 0; k < 4; ++k) word |= std::to_integer<std::uint32_t>(bytes[i + k]) << (8 * k);
    at(flash_control + 4) = word;
    flash_command(flash_memory + at_byte + i, 1);
  }
  return true;
}
bool board::read_flash(std::uint32_t at_byte, std::span<std::byte> out) noexcept {
  const auto* from = reinterpret_cast<const volatile std::byte*>(flash_memory + at_byte);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = from[i];
  return true;
}
