// The recipient of a small machine, at a line on which nobody answers.
#include <tensorpull/device.hpp>

namespace {
struct uart {
  tensorpull::io_result read(std::span<std::byte>) noexcept { return {tensorpull::io_status::would_block, 0, 0}; }
  tensorpull::io_result write(std::span<const std::byte> bytes) noexcept {
    return {tensorpull::io_status::ok, 0, bytes.size()};
  }
};
struct board {
  using milliseconds = std::chrono::duration<std::uint32_t, std::milli>;
  static milliseconds now() noexcept {
    static milliseconds time{};
    return time += milliseconds(10);
  }
  static std::uint64_t random() noexcept { return 0x1234'5678'9abc'def0; }
  static void panic(const char*) noexcept {}
};
}  // namespace

// SNIPPET 1
namespace {
// SNIPPET 2
// SNIPPET 3
}  // namespace

int main() {
  // SNIPPET 4
  return !done && done.error().code == tensorpull::errc::timed_out ? 0 : 1;
}
