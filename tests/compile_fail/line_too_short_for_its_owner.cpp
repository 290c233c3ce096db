// A line whose datagrams that come are shorter than the requests that its owner answers.
// EXPECT: tensorpull: a line takes the requests that its owner answers (Owner::request_bytes)
// WITHIN_LINES: 8
// MAX_ERRORS: 1
// MAX_LINES: 20
#include <tensorpull/embedded/line.hpp>
#include <tensorpull/embedded/owner.hpp>

struct mlp {
  float w[3], b[4];
};
template <>
inline constexpr auto tensorpull::members_of<mlp> = tensorpull::members(tensorpull::member{"w", &mlp::w},
                                                                        tensorpull::member{"b", &mlp::b});
struct uart {
  tensorpull::io_result read(std::span<std::byte>) noexcept { return {}; }
  tensorpull::io_result write(std::span<const std::byte>) noexcept { return {}; }
};

int main() {
  uart device;
  tensorpull::embedded_line<uart, 64, 592> line(device);
  tensorpull::embedded_owner<mlp, 512> owner;
  tensorpull::no_role none;
  (void)tensorpull::step(line, none, owner, 0);
}
