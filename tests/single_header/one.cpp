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

tiny_model published, mine;
wire there, back;

}  // namespace

int main() {
  if (bytes_in_another_file() != embedded_image<tiny_model>::image_bytes) return 1;
  for (std::size_t i = 0; i < 16; ++i) published.weight[i][i % 8] = published.bias[i] = static_cast<float>(i) - 0.5f;
  using recipient_type = embedded_recipient<model_landing<tiny_model>, 128>;
  using owner_type = embedded_owner<tiny_model, 128>;
  device owner_end{&there, &back}, recipient_end{&back, &there};
  embedded_line<device, 128, owner_type::answer_bytes> owner_line(owner_end);
  embedded_line<device, owner_type::answer_bytes, recipient_type::max_out> recipient_line(recipient_end);
  owner_type owner;
  owner.publish(published, {1, 2}, 3);
  model_landing<tiny_model> to(mine);
  recipient_type recipient(to, {.ref = {1, 2}, .recipient = {4}}, 5);
  no_role none;
  for (std::uint32_t ms = 0; !recipient.ended() || !recipient_line.idle(); ++ms) {
    if (ms > 100'000) return 2;
    (void)step(recipient_line, recipient, none, ms);
    (void)step(owner_line, none, owner, ms);
  }
  const auto done = recipient.outcome();
  if (!done || done->outcome != outcome::completed || owner.state() != recipient_state::completed) return 3;
  return std::memcmp(&published, &mine, sizeof mine) == 0 ? 0 : 4;
}
