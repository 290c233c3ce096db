// A line whose datagrams that come are shorter than the chunks that its recipient asks for.
// EXPECT: tensorpull: a line takes the longest answer that its recipient asks for (Recipient::answer_bytes)
// WITHIN_LINES: 8
// MAX_ERRORS: 1
// MAX_LINES: 20
#include <tensorpull/embedded/line.hpp>
#include <tensorpull/embedded/recipient.hpp>

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
  static mlp model;
  uart device;
  tensorpull::embedded_line<uart, 160, 80> line(device);
  tensorpull::model_landing<mlp> landing(model);
  tensorpull::embedded_recipient<tensorpull::model_landing<mlp>, 512> recipient(landing, {.ref = {1, 2}}, 3);
  (void)tensorpull::pull(line, recipient, [] { return std::uint32_t{0}; });
}
