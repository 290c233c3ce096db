// What two programs say to each other over a connection: a session and a host's handler are given the same.
#pragma once

#include <tensorpull/core/ids.hpp>
#include <tensorpull/framing/frame.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull {

/// Views into the connection's memory, which is aligned to 8. A handler's message is valid during the call, a session's until the next receive().
struct message {
  std::uint32_t kind = 0;
  std::span<const reference> references{};
  std::span<const std::byte> body{};
};

namespace detail {

constexpr message message_of(const frame& f) noexcept { return {f.application, f.references, f.body}; }

}  // namespace detail
}  // namespace tensorpull
