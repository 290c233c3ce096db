// The events of a simulated network, and what it knows of each recipient's process.
#pragma once

#include <tensorpull/testing/seeded_random.hpp>

#include <cstdint>

namespace tensorpull::testing::detail {

enum class event_kind : std::uint8_t {
  wake,
  begin,
  tick,
  fault,
  heal,
  start_owner,
  restart_owner,
  start_recipient,
  give_buffers,
  go_on,
  publish,
};
struct simulation_event {
  event_kind what;
  std::uint32_t who = 0, side = 0;
};

struct recipient_process {
  explicit recipient_process(seeded_random& random) noexcept : how(random.below(10)), number(random() | 1) {}

  std::uint64_t how;
  bool done = false;
  bool stable = how < 7;  ///< it uses the same number for all its pulls
  bool named = how < 9;  ///< it sends its number
  /// Its number in the current pull: random, so that a flipped bit does not turn it into another recipient's.
  std::uint64_t number;
  std::uint32_t tries = 0;  ///< recognises delays of transfers that have ended meanwhile
};

}  // namespace tensorpull::testing::detail
