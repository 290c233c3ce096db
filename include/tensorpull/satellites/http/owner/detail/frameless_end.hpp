// What a host asks of a connection that speaks no frames: it pulls nothing, sends no messages and waits for no memory.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/framing/frame.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull::detail {

struct frameless_end {
  void begin_pull() noexcept {}
  template <class Transfer>
  void end_pull(const Transfer&) noexcept {}
  std::uint32_t next_id() const noexcept { return 1; }
  result<void> send_message(std::uint32_t, std::span<const reference>, std::span<const std::byte>) noexcept {
    return failure(errc::unsupported_request);
  }
  bool send_control(const frame&) noexcept { return true; }
  bool long_frame_sent() const noexcept { return true; }
  bool works() const noexcept { return false; }
  bool stalled() const noexcept { return false; }
  void doubt() noexcept {}
  void trust() noexcept {}
};

}  // namespace tensorpull::detail
