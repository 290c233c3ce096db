// An application message: what two programs say to each other over a connection. Sessions and handlers of hosts receive
// the same type.
#pragma once

#include <tensorpull/core/ids.hpp>
#include <tensorpull/framing/frame.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull {

/// One message. Its views are of the connection's memory, which is aligned to 8 bytes: a handler's message is valid
/// during the call, a session's until the next receive().
struct message {
  std::uint32_t kind = 0;  ///< chosen by the application
  std::span<const reference> references{};  ///< of what the sender or others have published
  std::span<const std::byte> body{};  ///< any bytes
};

namespace detail {

constexpr message message_of(const frame& f) noexcept { return {f.application, f.references, f.body}; }

}  // namespace detail
}  // namespace tensorpull
