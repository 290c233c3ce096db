// A line over a device that can only be read, and says so in a number of its own.
// EXPECT: tensorpull: a line's device has io_result read(memory) and io_result write(bytes), both noexcept
// WITHIN_LINES: 8
// MAX_ERRORS: 1
// MAX_LINES: 20
#include <tensorpull/embedded/line.hpp>

struct uart {
  int read(std::span<std::byte>) noexcept { return 0; }
};

uart device;
tensorpull::embedded_line<uart, 80, 592> line(device);
