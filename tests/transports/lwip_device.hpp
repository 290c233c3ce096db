// What a test sees of the device: its program (lwip_device.cpp) is a file of its own, which includes no header of this
// host's sockets.
#pragma once

#include <tensorpull/consumers/receipt.hpp>
#include <tensorpull/consumers/resume_cursor.hpp>
#include <tensorpull/core/ids.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/std/chrono.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace test {

struct device_model {
  float weight[64][98];
  float bias[64];
  std::uint8_t mask[1000];
};

struct device_task {
  std::uint16_t port = 0;  // at 127.0.0.1
  tensorpull::ref_id ref{};
  std::uint32_t timeout_ms = 20'000;
  std::uint32_t retries = 3;
  tensorpull::resume_cursor* cursor = nullptr;
};

/// What the device's program does.
tensorpull::result<tensorpull::receipt> device_pull(const device_task& task, device_model& to) noexcept;

/// Asked after each step.
extern std::atomic<bool> device_stops;

}  // namespace test
