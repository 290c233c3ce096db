// What a small machine has made of a model, as a difference to it: what a host publishes of the same models.
#include <tensorpull/device.hpp>
#include <tensorpull/integrity/range_digest.hpp>
#include <tensorpull/satellites/differences/embedded_difference.hpp>
#include <tensorpull/satellites/differences/narrowed_difference.hpp>

namespace {
struct mlp {
  float fc1_weight[32][64], fc1_bias[32];
};
}  // namespace
template <>
inline constexpr auto tensorpull::members_of<mlp> = tensorpull::members(
    tensorpull::member{"fc1.weight", &mlp::fc1_weight}, tensorpull::member{"fc1.bias", &mlp::fc1_bias});

namespace {
struct uart {
  tensorpull::io_result read(std::span<std::byte>) noexcept { return {tensorpull::io_status::would_block, 0, 0}; }
  tensorpull::io_result write(std::span<const std::byte>) noexcept {
    return {tensorpull::io_status::would_block, 0, 0};
  }
};
struct board {
  static std::chrono::milliseconds now() noexcept { return {}; }
  static std::uint64_t random() noexcept { return 0x1234'5678'9abc'def0; }
  static void panic(const char*) noexcept {}
};
using net = tensorpull::pipeline<tensorpull::raw_tensors<mlp>, tensorpull::fixed_bytes<512>,
                                 tensorpull::serial_over<uart>, tensorpull::small_machine<board>>;
uart device;
mlp pulled, model;
net::consumer base(pulled);
tensorpull::result<tensorpull::reference> ref{};

// SNIPPET 1

std::vector<tensorpull::tensor_view> views(const mlp& of) {
  static constexpr std::uint64_t shape[]{32, 64};
  return {{"fc1.weight", tensorpull::dtype::f32, {shape, 2}, reinterpret_cast<const std::byte*>(of.fc1_weight)},
          {"fc1.bias", tensorpull::dtype::f32, {shape, 1}, reinterpret_cast<const std::byte*>(of.fc1_bias)}};
}
}  // namespace

int main() {
  model = pulled;
  for (int i = 0; i < 64; ++i) model.fc1_weight[i / 2][i] += 0.01f * static_cast<float>(i);
  model.fc1_bias[0] = 1;  // a host's difference leaves out what has not moved, and a small machine's does not
  // SNIPPET 2
  const auto theirs = tensorpull::narrowed_difference<>::make(views(model), views(pulled));
  if (!theirs) return 1;
  const auto version = tensorpull::image_version<tensorpull::xxh3_64>(theirs->model().source());
  return version && ref && ref->version == *version ? 0 : 2;
}
