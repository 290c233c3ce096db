// The line is two rings, and the other end of it is a part of the program. It runs on a stack of its own whenever the
// pipeline finds nothing to read, so the paint shows the pipeline alone.
#include "rings.hpp"
#include "board.hpp"

#include <array>

namespace {

class ring {
 public:
  std::size_t put(std::span<const std::byte> in) noexcept {
    std::size_t n = 0;
    while (n < in.size() && size_ < bytes_.size()) bytes_[(first_ + size_++) % bytes_.size()] = in[n++];
    return n;
  }
  std::size_t take(std::span<std::byte> out) noexcept {
    std::size_t n = 0;
    for (; n < out.size() && size_ > 0; --size_, first_ = (first_ + 1) % bytes_.size()) out[n++] = bytes_[first_];
    return n;
  }

 private:
  std::array<std::byte, 512> bytes_{};
  std::size_t first_ = 0, size_ = 0;
};

ring there, back;
std::uint32_t ms;
alignas(8) std::byte stack[14 * 1024];
std::byte flash_memory[8 * board::flash::page_bytes];

void on_stack(void* top, void (*function)()) noexcept {
  register void* r0 asm("r0") = top;
  register void (*r1)() asm("r1") = function;
  asm volatile("mov r4, sp\n mov sp, r0\n blx r1\n mov sp, r4"
               : "+r"(r0), "+r"(r1)
               :
               : "r2", "r3", "r4", "r12", "lr", "memory", "cc");
}

}  // namespace

std::size_t board::read(std::span<std::byte> memory) noexcept {
  const std::size_t n = back.take(memory);
  if (n == 0) {
    ++ms;
    on_stack(stack + sizeof stack, other_end);
  }
  return n;
}
std::size_t board::write(std::span<const std::byte> bytes) noexcept { return there.put(bytes); }
std::uint32_t board::now_ms() noexcept { return ms; }
std::uint64_t board::random() noexcept { return 0x9e3779b97f4a7c15; }
bool board::verifies(std::span<const std::byte, 32>, std::span<const std::byte>,
                     std::span<const std::byte, 64>) noexcept {
  return true;
}

std::size_t rings::read(std::span<std::byte> memory) noexcept { return there.take(memory); }
std::size_t rings::write(std::span<const std::byte> bytes) noexcept { return back.put(bytes); }

bool board::erase(std::uint32_t page) noexcept {
  for (std::uint32_t i = 0; i < flash::page_bytes; ++i) flash_memory[page * flash::page_bytes + i] = std::byte{0xff};
  return true;
}
bool board::program(std::uint32_t at, std::span<const std::byte> bytes) noexcept {
  for (std::size_t i = 0; i < bytes.size(); ++i) flash_memory[at + i] &= bytes[i];
  return true;
}
bool board::read_flash(std::uint32_t at, std::span<std::byte> out) noexcept {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = flash_memory[at + i];
  return true;
}
