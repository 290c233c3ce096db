// The owner of a small machine, and a recipient of its model at the other end of the line.
#include <tensorpull/device.hpp>

#include <cstring>
#include <deque>

namespace {
struct uart {
  std::deque<std::byte>&in, &out;
  tensorpull::io_result read(std::span<std::byte> bytes) noexcept {
    if (bytes.empty() || in.empty()) return {tensorpull::io_status::would_block, 0, 0};
    bytes[0] = in.front();
    in.pop_front();
    return {tensorpull::io_status::ok, 0, 1};
  }
  tensorpull::io_result write(std::span<const std::byte> bytes) noexcept {
    out.insert(out.end(), bytes.begin(), bytes.end());
    return {tensorpull::io_status::ok, 0, bytes.size()};
  }
};
std::deque<std::byte> there, back;
uart device{there, back}, far_device{back, there};

struct mlp {
  float fc1_weight[32][64], fc1_bias[32];
};
}  // namespace
template <>
inline constexpr auto tensorpull::members_of<mlp> = tensorpull::members(
    tensorpull::member{"fc1.weight", &mlp::fc1_weight}, tensorpull::member{"fc1.bias", &mlp::fc1_bias});

namespace {
/// While one end rests the other goes on.
struct board {
  using milliseconds = std::chrono::duration<std::uint32_t, std::milli>;
  inline static milliseconds time{};
  static milliseconds now() noexcept { return time; }
  static std::uint64_t random() noexcept { return 0x1234'5678'9abc'def0; }
  static void panic(const char*) noexcept {}
  static void idle() noexcept;
};
using net = tensorpull::pipeline<tensorpull::raw_tensors<mlp>, tensorpull::fixed_bytes<512>,
                                 tensorpull::serial_over<uart>, tensorpull::small_machine<board>>;

mlp model, copy;
auto pull = net::begin_pull(far_device, {{1, 2}, 0, 0}, copy);
void board::idle() noexcept {
  ++time;
  (void)pull.step();
}
}  // namespace

int main() {
  model.fc1_bias[3] = 0.5f;
  // SNIPPET 1-2
  for (int i = 0; i < 100 && !pull.ended(); ++i) board::idle();
  return how && how->verdict == tensorpull::verdict::completed && pull.ended() && pull.outcome() &&
                 std::memcmp(&model, &copy, sizeof model) == 0
             ? 0
             : 1;
}
