// How a session connects, without the session.
#pragma once

#include <tensorpull/protocol/owner/owner_memory.hpp>
#include <tensorpull/protocol/retry.hpp>
#include <tensorpull/std/chrono.hpp>
#include <tensorpull/std/stop_token.hpp>

namespace tensorpull {

/// How a session connects.
struct connect_options {
  /// How long each try may take.
  std::chrono::milliseconds timeout = std::chrono::seconds(10);
  /// How often to try again if the other end cannot be reached: a device that starts before its server waits for it.
  retry_policy retry{};
  /// Ends the wait; noticed within 0.1 s, except by the system's resolver.
  stop_token stop{};
  /// for how much it has room to publish; more than the limits say: with heap_owner_room
  /// (protocol/owner/owner_room.hpp)
  owner_room_size room{};
};

}  // namespace tensorpull
