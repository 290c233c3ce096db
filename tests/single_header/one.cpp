// The header of small machines alone: a whole pull from an owner to a recipient, over lines in memory. Status 0: every
// byte landed and was confirmed.
#include <tensorpull_embedded.hpp>

std::size_t bytes_in_another_file();

struct tiny_model {
  float weight[16][8], bias[16];
};

template <>
inline constexpr auto tensorpull::members_of<tiny_model> = tensorpull::members(
    tensorpull::member{"weight", &tiny_model::weight}, tensorpull::member{"bias", &tiny_model::bias});

namespace {

using namespace tensorpull;

/// Memory that one end writes to and the other reads.
struct wire {
  std::array<std::byte, 512> bytes{};
  std::size_t first = 0, size = 0;
};
struct device {
  wire *in, *out;
  io_result read(std::span<std::byte> memory) noexcept {
    std::size_t n = 0;
    for (; n < memory.size() && in->size > 0; --in->size, in->first = (in->first + 1) % in->bytes.size())
      memory[n++] = in->bytes[in->first];
    return {n > 0 ? io_status::ok : io_status::would_block, 0, n};
  }
  io_result write(std::span<const std::byte> memory) noexcept {
    std::size_t n = 0;
    for (; n < memory.size() && out->size < out->bytes.size(); ++out->size)
      out->bytes[(out->first + out->size) % out->bytes.size()] = memory[n++];
    return {n > 0 ? io_status::ok : io_status::would_block, 0, n};
  }
};

struct machine {
  inline static std::uint32_t ms = 0;
  static std::chrono::duration<std::uint32_t, std::milli> now() noexcept {
    return std::chrono::duration<std::uint32_t, std::milli>(ms);
  }
  static std::uint64_t random() noexcept { return 0x1234'5678'9abc'def0 + ms; }
  static void panic(const char*) noexcept {}
};
using net = pipeline<raw_tensors<tiny_model>, fixed_bytes<128>, serial_over<device>, small_machine<machine>>;

tiny_model published, mine;
wire there, back;

}  // namespace

int main() {
  if (bytes_in_another_file() != embedded_image<tiny_model>::image_bytes) return 1;
  for (std::size_t i = 0; i < 16; ++i) published.weight[i][i % 8] = published.bias[i] = static_cast<float>(i) - 0.5f;
  device owner_end{&there, &back}, recipient_end{&back, &there};
  net::downloader owner(owner_end);
  const auto ref = owner.add_tensors(published);
  if (!ref) return 2;
  auto pull = net::begin_pull(recipient_end, *ref, mine);
  for (machine::ms = 0; !pull.ended(); ++machine::ms) {
    if (machine::ms > 100'000) return 3;
    (void)pull.step();
    (void)owner.step();
  }
  const auto done = pull.outcome();
  if (!done || done->outcome != outcome::completed || !owner.settled(*ref)) return 4;
  return std::memcmp(&published, &mine, sizeof mine) == 0 ? 0 : 5;
}
