// What the component freestanding gives, without Boost or Cap'n Proto: the pipeline of a small machine, too.
#include <tensorpull/device.hpp>

struct model {
  float weight[4];
};
template <>
inline constexpr auto tensorpull::members_of<model> = tensorpull::members(tensorpull::member{"weight", &model::weight});

namespace {
struct uart {
  tensorpull::io_result read(std::span<std::byte>) noexcept { return {}; }
  tensorpull::io_result write(std::span<const std::byte>) noexcept { return {}; }
};
struct board {
  static std::chrono::milliseconds now() noexcept { return {}; }
  static std::uint64_t random() noexcept { return 4; }
  static void panic(const char*) noexcept {}
};
using net = tensorpull::pipeline<tensorpull::raw_tensors<model>, tensorpull::fixed_bytes<128>,
                                 tensorpull::serial_over<uart>, tensorpull::small_machine<board>>;
}  // namespace

int main() { return net::image::tensor_count == 1 && net::memory.recipient > 128 ? 0 : 1; }
