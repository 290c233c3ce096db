// Start-up of the board: memory, a painted stack, the pipeline, and what it left of the paint. It tells its figures by
// semihosting, so that no UART is needed.
#include <cstddef>
#include <cstdint>

extern "C" {
extern std::uint32_t __data_start, __data_end, __data_load, __bss_start, __bss_end, __stack_top;
extern void (*__init_array_start[])();
extern void (*__init_array_end[])();
int pipeline();
void reset();
}

namespace {

constexpr std::uint32_t paint = 0xa5a5a5a5;

void host(std::uint32_t operation, const void* argument) {
  register std::uint32_t r0 asm("r0") = operation;
  register const void* r1 asm("r1") = argument;
  asm volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
}
void say(const char* text) { host(4, text); }
void say(std::uint32_t n) {
  char text[12], *p = text + 11;
  *p = 0;
  do *--p = static_cast<char>('0' + n % 10);
  while (n /= 10);
  say(p);
}
[[noreturn]] void quit(bool well) {
  for (;;) host(0x18, reinterpret_cast<const void*>(well ? 0x20026 : 0x20023));
}
void fault() {
  say("fault\n");
  quit(false);
}

/// Paints what is free of the stack, runs the pipeline, and says how deep the paint is gone.
[[gnu::noinline]] void measure() {
  std::uint32_t* top;
  asm volatile("mov %0, sp" : "=r"(top));
  for (volatile std::uint32_t* p = &__bss_end; p < top; ++p)
    *p = paint;  // volatile: a call of memset would paint its own way back
  const int status = pipeline();
  const volatile std::uint32_t* used = &__bss_end;
  while (used < top && *used == paint) ++used;
  say("status ");
  say(static_cast<std::uint32_t>(status));
  say(" stack ");
  say(static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(top) - reinterpret_cast<std::uintptr_t>(used)));
  say("\n");
  quit(status == 0);
}

}  // namespace

extern "C" void reset() {
  // volatile: no memcpy and no memset that rows would then have for nothing
  volatile std::uint32_t *to = &__data_start, *from = &__data_load;
  while (to != &__data_end) *to++ = *from++;
  for (volatile std::uint32_t* p = &__bss_start; p != &__bss_end;) *p++ = 0;
  for (auto f = __init_array_start; f != __init_array_end; ++f) (*f)();
  measure();
}

// Nothing that is static is ever destroyed.
extern "C" int __aeabi_atexit(void*, void (*)(void*), void*) { return 0; }
extern "C" void* __dso_handle;
void* __dso_handle = nullptr;

using handler = void (*)();
[[gnu::section(".vectors"), gnu::used]] const handler vectors[16] = {
    reinterpret_cast<handler>(&__stack_top), reset, fault, fault, fault, fault, fault};
