// The recipient of a small machine, at a line on which nobody answers.
#include <tensorpull/embedded/line.hpp>
#include <tensorpull/embedded/recipient.hpp>

namespace {
struct uart {
  tensorpull::io_result read(std::span<std::byte>) noexcept { return {tensorpull::io_status::would_block, 0, 0}; }
  tensorpull::io_result write(std::span<const std::byte> bytes) noexcept {
    return {tensorpull::io_status::ok, 0, bytes.size()};
  }
};
std::uint32_t millis() {
  static std::uint32_t now = 0;
  return now += 10;
}
std::uint64_t random_number() { return 0x1234'5678'9abc'def0; }
}  // namespace

// SNIPPET 1
namespace {
// SNIPPET 2
}  // namespace

int main() {
  // SNIPPET 3
  return !r && r.error().code == tensorpull::errc::timed_out ? 0 : 1;
}
