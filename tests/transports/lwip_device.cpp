// The program of a device with lwIP and nothing else: the component freestanding, and the functions that
// lwip_subset.hpp declares. It is compiled for a Cortex-M3, too (tests/freestanding).
#include "transports/lwip_device.hpp"

#include <tensorpull/chunking/policies.hpp>
#include <tensorpull/consumers/land.hpp>
#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/framing/word_framing.hpp>
#include <tensorpull/image/arrange.hpp>
#include <tensorpull/integrity/policies.hpp>
#include <tensorpull/links/lwip/lwip_stream.hpp>
#include <tensorpull/pull/device_pull.hpp>

#include "transports/lwip_names.hpp"  // after the library: lwIP's macros

namespace test {

std::atomic<bool> device_stops = false;

namespace {

using namespace tensorpull;
using namespace lwip;
using device::device_sockets;
using device_stream = lwip_stream<device_sockets>;
static_assert(byte_stream<device_stream>);

struct device_platform {
  static std::chrono::duration<std::uint32_t, std::milli> now() noexcept {
    return std::chrono::duration<std::uint32_t, std::milli>(sys_now());
  }
  static std::uint64_t random() noexcept {
    static std::uint64_t state = 0x9e3779b97f4a7c15;  // a device has a generator of its own
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
  }
  static void panic(const char*) noexcept {}  // the driver traps
  static bool stopped() noexcept { return device_stops; }
};

struct device_limits : default_limits {
  static constexpr std::size_t control_frame_bytes = 512;
  static constexpr std::size_t page_bytes = 480;
};

struct device_parts {
  using platform = device_platform;
  using framing = basic_word_framing<device_limits>;
  using chunking = fixed_bytes<2048>;
  using integrity = basic_image_digest<xxh3_64>;
  using limits = device_limits;
};

constexpr std::uint64_t weight_shape[]{64, 98}, bias_shape[]{64}, mask_shape[]{1000};

}  // namespace

tensorpull::result<tensorpull::receipt> device_pull(const device_task& task, device_model& model) noexcept {
  tensor_entry entries[]{{.name = "weight", .type = dtype::f32, .rank = 2, .shape = weight_shape},
                         {.name = "bias", .type = dtype::f32, .rank = 1, .shape = bias_shape},
                         {.name = "mask", .type = dtype::u8, .rank = 1, .shape = mask_shape}};
  std::uintptr_t where[]{reinterpret_cast<std::uintptr_t>(&model.weight), reinterpret_cast<std::uintptr_t>(&model.bias),
                         reinterpret_cast<std::uintptr_t>(&model.mask)};
  const auto schema = arrange(entries, where);
  if (!schema) return failure(schema.error());
  land to({&*schema, nullptr, where});

  sockaddr_in owner{};
  owner.sin_len = sizeof owner;
  owner.sin_family = AF_INET;
  owner.sin_port = static_cast<std::uint16_t>(task.port << 8 | task.port >> 8);  // of a little-endian device
  owner.sin_addr.s_addr = 127 | 1u << 24;
  const auto reach = [&]() noexcept {
    return device_stream::connect_to(owner, std::chrono::milliseconds(task.timeout_ms));
  };
  const auto pause = [](std::chrono::milliseconds time) noexcept {
    (void)lwip_poll(nullptr, 0, static_cast<int>(time.count()));
  };
  return device_pull_with<device_parts>(reach, pause, {.ref = task.ref}, to,
                                        {.per_request_timeout = std::chrono::milliseconds(task.timeout_ms),
                                         .retry = {.retries = task.retries,
                                                   .first_delay = std::chrono::milliseconds(20),
                                                   .longest_delay = std::chrono::milliseconds(100)},
                                         .cursor = task.cursor});
}

}  // namespace test
