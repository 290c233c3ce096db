#include "board.hpp"

#include <array>
#include <atomic>

extern "C" {
extern std::uint32_t data_begin[], data_end[], data_image[], bss_begin[], bss_end[], stack_top[];
extern void (*init_array_begin[])();
extern void (*init_array_end[])();
void reset();
}

namespace board {

namespace {

constexpr std::uintptr_t uart0 = 0x4000'C000, uart1 = 0x4000'D000;
// of a PL011
constexpr std::uintptr_t data = 0x00, flags = 0x18, baud_whole = 0x24, baud_part = 0x28, line_control = 0x2C,
                         control = 0x30, interrupt_mask = 0x38, interrupt_clear = 0x44;
// also when bytes wait below the threshold
constexpr std::uint32_t receive_empty = 1u << 4, transmit_full = 1u << 5, on_receive = 1u << 4 | 1u << 6;

constexpr std::uint32_t clock_hz = 25'000'000, ticks_per_ms = clock_hz / 1000;
constexpr std::uintptr_t systick_control = 0xE000'E010, systick_reload = 0xE000'E014, systick_value = 0xE000'E018,
                         interrupt_enable = 0xE000'E100;
constexpr std::uint32_t uart0_interrupt = 5;

constexpr std::uint32_t ram = 0x2000'0000, paint = 0xA5A5'A5A5;

volatile std::uint32_t milliseconds;
std::uint64_t stirred;

/// One interrupt writes, the program reads. While it is full the interrupt is off: the UART keeps 16 bytes more, and
/// loses what comes after those.
struct byte_ring {
  static constexpr std::uint32_t size = 1024;
  std::array<std::byte, size> bytes;
  std::atomic<std::uint32_t> written, read;
  bool empty() const noexcept {
    return written.load(std::memory_order_acquire) == read.load(std::memory_order_relaxed);
  }
} ring;

void stir() noexcept { stirred = (stirred ^ at(systick_value)) * 0x9e37'79b9'7f4a'7c15 + milliseconds; }

void set_up(std::uintptr_t uart, std::uint32_t bits_per_second) noexcept {
  const std::uint32_t divisor = (clock_hz * 4 + bits_per_second / 2) / bits_per_second;  // in 1/64
  at(uart + control) = 0;
  at(uart + baud_whole) = divisor / 64;
  at(uart + baud_part) = divisor % 64;
  at(uart + line_control) = 0x70;  // 8 bits, no parity, one stop bit; FIFOs
  at(uart + control) = 0x301;
}

void put(char c) noexcept {
  while ((at(uart1 + flags) & transmit_full) != 0) {
  }
  at(uart1 + data) = static_cast<std::uint8_t>(c);
}

/// A call of the debugger: ARM's semihosting.
std::uint32_t debugger(std::uint32_t call, const void* argument) noexcept {
  register std::uint32_t r0 asm("r0") = call;
  register const void* r1 asm("r1") = argument;
  asm volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}

}  // namespace

void begin() noexcept {
  at(0x400F'E060) = (at(0x400F'E060) & ~(15u << 23)) | (7u << 23) | (1u << 22);  // the system clock: 200 MHz / 8
  at(0x400F'E104) = at(0x400F'E104) | 3;  // clocks of both UARTs
  at(systick_reload) = ticks_per_ms - 1;
  at(systick_value) = 0;
  at(systick_control) = 7;
  set_up(uart0, 115'200);
  set_up(uart1, 115'200);
  at(uart0 + interrupt_mask) = on_receive;
  at(interrupt_enable) = 1u << uart0_interrupt;
}

std::uint32_t now_ms() noexcept { return milliseconds; }

void sleep() noexcept {
  asm volatile("cpsid i" : : : "memory");  // an interrupt between the question and the sleep still ends the sleep
  if (ring.empty()) asm volatile("wfi");
  asm volatile("cpsie i" : : : "memory");
}

std::uint64_t random() noexcept {
  stir();
  // the date in seconds, the emulator's time in centiseconds
  stirred ^= std::uint64_t{debugger(0x11, nullptr)} << 32 | debugger(0x10, nullptr);
  std::uint64_t z = stirred += 0x9e37'79b9'7f4a'7c15;
  z = (z ^ (z >> 30)) * 0xbf58'476d'1ce4'e5b9;
  z = (z ^ (z >> 27)) * 0x94d0'49bb'1331'11eb;
  return z ^ (z >> 31);
}

tensorpull::io_result uart::read(std::span<std::byte> memory) noexcept {
  std::size_t n = 0;
  std::uint32_t from = ring.read.load(std::memory_order_relaxed);
  while (n < memory.size() && from != ring.written.load(std::memory_order_acquire))
    memory[n++] = ring.bytes[from++ % ring.size];
  if (n == 0) return {tensorpull::io_status::would_block, 0, 0};
  ring.read.store(from, std::memory_order_release);
  at(uart0 + interrupt_mask) = on_receive;  // there is room
  return {tensorpull::io_status::ok, 0, n};
}

tensorpull::io_result uart::write(std::span<const std::byte> bytes) noexcept {
  std::size_t n = 0;
  while (n < bytes.size() && (at(uart0 + flags) & transmit_full) == 0)
    at(uart0 + data) = std::to_integer<std::uint32_t>(bytes[n++]);
  return {n > 0 ? tensorpull::io_status::ok : tensorpull::io_status::would_block, 0, n};
}

tensorpull::io_ready uart::wait(bool read, bool write, std::chrono::milliseconds timeout) noexcept {
  const std::uint32_t start = milliseconds;
  for (;;) {
    const tensorpull::io_ready ready{read && !ring.empty(), write && (at(uart0 + flags) & transmit_full) == 0};
    if (ready.read || ready.write || std::chrono::milliseconds(milliseconds - start) >= timeout) return ready;
    sleep();
  }
}

void say(std::string_view text) noexcept {
  for (const char c : text) put(c);
}
void say(std::uint32_t number) noexcept {
  char digits[10];
  std::size_t n = 0;
  do digits[n++] = static_cast<char>('0' + number % 10);
  while ((number /= 10) != 0);
  while (n > 0) put(digits[--n]);
}
void say_hex(std::uint64_t number) noexcept {
  for (int shift = 60; shift >= 0; shift -= 4) put("0123456789abcdef"[(number >> shift) & 15]);
}

stack_use stack() noexcept {
  const std::uint32_t* p = bss_end;
  while (p < stack_top && *p == paint) ++p;
  const auto place = [](const std::uint32_t* q) {
    return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(q));
  };
  return {place(stack_top) - place(p), place(stack_top) - place(bss_end), place(bss_end) - ram};
}

const char* argument(std::size_t number) noexcept {
  static char text[512];  // zeros behind what the debugger writes
  if (text[0] == '\0') {
    struct {
      char* text;
      std::uint32_t bytes;
    } block{text, sizeof text - 1};
    if (debugger(0x15, &block) != 0) return "";
    for (char& c : text)
      if (c == '|') c = '\0';
  }
  const char* at = text;
  for (; number > 0; --number)
    while (at < text + sizeof text - 1 && *at++ != '\0') {
    }
  return at;
}

std::size_t read_file(const char* path, std::span<char> to) noexcept {
  const std::uint32_t open[3]{static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(path)), 1,
                              static_cast<std::uint32_t>(std::string_view(path).size())};  // to read
  const std::uint32_t file = debugger(0x01, open);
  if (file == ~0u) return 0;
  const std::uint32_t read[3]{file, static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(to.data())),
                              static_cast<std::uint32_t>(to.size())};
  const std::uint32_t missing = debugger(0x06, read);
  (void)debugger(0x02, &file);
  return missing <= to.size() ? to.size() - missing : 0;
}

void leave(int status) noexcept {
  const std::uint32_t block[2]{0x2'0026, static_cast<std::uint32_t>(status)};  // the application ends
  (void)debugger(0x20, block);
  for (;;) {
  }
}

}  // namespace board

namespace {

using namespace board;

void millisecond() noexcept { milliseconds = milliseconds + 1; }

void bytes_came() noexcept {
  stir();
  at(uart0 + interrupt_clear) = 1u << 6;
  std::uint32_t to = ring.written.load(std::memory_order_relaxed);
  while ((at(uart0 + flags) & receive_empty) == 0) {
    if (to - ring.read.load(std::memory_order_acquire) == ring.size) {
      at(uart0 + interrupt_mask) = 0;  // full
      break;
    }
    ring.bytes[to++ % ring.size] = static_cast<std::byte>(at(uart0 + data));
  }
  ring.written.store(to, std::memory_order_release);
}

/// Whatever else happens is a mistake of the program.
void fault() noexcept {
  say_line("FAULT: status ", at(0xE000'ED28), " at ", at(0xE000'ED38));
  leave(3);
}

using handler = void (*)();
/// The stack, the 15 exceptions of the core, then the interrupts of the chip.
struct {
  std::uint32_t* stack = stack_top;
  handler core[15] = {reset,   fault,   fault, fault, fault,   fault, nullptr,    nullptr,
                      nullptr, nullptr, fault, fault, nullptr, fault, millisecond};
  handler chip[6] = {fault, fault, fault, fault, fault, bytes_came};
} const vectors [[gnu::section(".vectors"), gnu::used]];

}  // namespace

/// The first instruction. It uses little of the stack that it paints.
[[gnu::noreturn, gnu::naked]] void reset() {
  asm volatile(
      "ldr r0, =bss_end\n"
      "ldr r1, =0xA5A5A5A5\n"
      "mov r2, sp\n"
      "1: cmp r0, r2\n"
      "it lo\n"
      "strlo r1, [r0], #4\n"
      "blo 1b\n"
      "bl start\n");
}
extern "C" [[gnu::used, noreturn]] void start() {
  for (std::uint32_t *to = data_begin, *from = data_image; to != data_end;) *to++ = *from++;
  for (std::uint32_t* to = bss_begin; to != bss_end;) *to++ = 0;
  begin();
  for (auto f = init_array_begin; f != init_array_end; ++f) (*f)();
  leave(run());
}
