// The owner of a small machine, and a recipient of its model at the other end of the line.
#include <tensorpull/embedded/line.hpp>
#include <tensorpull/embedded/owner.hpp>
#include <tensorpull/embedded/recipient.hpp>

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
mlp model, copy;
tensorpull::embedded_line<uart, 592, 80> far_line(far_device);
tensorpull::model_landing<mlp> landing(copy);
tensorpull::embedded_recipient<tensorpull::model_landing<mlp>, 512> recipient(landing, {.ref = {1, 2}}, 7);

std::uint32_t millis() {
  static std::uint32_t now = 0;
  tensorpull::no_role none;
  (void)tensorpull::step(far_line, recipient, none, ++now);
  return now;
}
std::uint64_t random_number() { return 0x1234'5678'9abc'def0; }

// SNIPPET 1
}  // namespace

int main() {
  model.fc1_bias[3] = 0.5f;
  // SNIPPET 2
  for (int i = 0; i < 100 && !recipient.ended(); ++i) (void)millis();
  return recipient.ended() && recipient.outcome() && std::memcmp(&model, &copy, sizeof model) == 0 ? 0 : 1;
}
