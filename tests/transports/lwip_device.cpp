// The program of a device with lwIP and nothing else: the component freestanding, and the functions that
// lwip_subset.hpp declares. It is compiled for a Cortex-M3, too (tests/freestanding).
#include "transports/lwip_device.hpp"

#include <tensorpull/composed_pipeline.hpp>
#include <tensorpull/tensors/members/raw_tensors.hpp>
#include <tensorpull/transports/lwip_tcp.hpp>

#include "transports/lwip_names.hpp"  // after the library: lwIP's macros

template <>
inline constexpr auto tensorpull::members_of<test::device_model> = tensorpull::members(
    tensorpull::member{"weight", &test::device_model::weight}, tensorpull::member{"bias", &test::device_model::bias},
    tensorpull::member{"mask", &test::device_model::mask});

namespace test {

std::atomic<bool> device_stops = false;

namespace {

using namespace tensorpull;
using namespace lwip;
using device::device_sockets;
static_assert(byte_stream<lwip_stream<device_sockets>>);

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
  using platform = device_platform;
  static constexpr std::size_t control_frame_bytes = 512;
  static constexpr std::size_t page_bytes = 480;
};

using net = pipeline<raw_tensors<device_model>, fixed_bytes<2048>, lwip_tcp<device_sockets>,
                     basic_image_digest<xxh3_64>, device_limits>;

}  // namespace

tensorpull::result<tensorpull::receipt> device_pull(const device_task& task, device_model& model) noexcept {
  sockaddr_in owner{};
  owner.sin_len = sizeof owner;
  owner.sin_family = AF_INET;
  owner.sin_port = static_cast<std::uint16_t>(task.port << 8 | task.port >> 8);  // of a little-endian device
  owner.sin_addr.s_addr = 127 | 1u << 24;
  return net::download_tensors(owner, task.ref, model,
                               {.per_request_timeout = std::chrono::milliseconds(task.timeout_ms),
                                .retry = {.retries = task.retries,
                                          .first_delay = std::chrono::milliseconds(20),
                                          .longest_delay = std::chrono::milliseconds(100)},
                                .cursor = task.cursor});
}

}  // namespace test
