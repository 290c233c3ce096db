// The options of a simulated run: which faults it has, and how large it is.
#pragma once

#include <tensorpull/std/chrono.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string_view>

namespace tensorpull::testing {

/// A fault of a process or a connection. Faults of single frames are frame_faults.
enum class fault : std::uint8_t {
  reset,
  stall,
  cut,
  lose,
  crash_recipient,
  crash_owner,
  publish_again,
  withdraw,
  mutate,
  take_buffers,
  restart_owner,
};
/// The names of the faults, as a trace prints them.
inline constexpr std::array<std::string_view, 11> fault_names{
    "reset",         "stall",    "cut",    "lose",         "crash recipient", "crash owner",
    "publish again", "withdraw", "mutate", "take buffers", "restart owner"};

/// Which faults a run may have, and how large it is.
struct simulation_options {
  std::size_t most_recipients = 64;   ///< a run draws at most this many
  std::size_t most_faults = 8;        ///< likewise, for faults of processes and connections
  std::uint32_t fault_mask = 0x7ff;   ///< bit i allows fault i
  bool frame_faults = true;           ///< doubled, late, dropped and shortened frames
  bool flips = true;                  ///< inverted bits, in control frames, prefixes and payload
  bool slow_consumers = true;         ///< consumers that have no memory now and then
  /// expected recipients, quorums and budgets; false: every publication is for an unknown number
  bool transactions = true;
  bool forged = false;  ///< forges confirmations of recipients that sent none: the oracle has to notice
  std::chrono::microseconds request_timeout = std::chrono::milliseconds(400);  ///< of the recipients, in virtual time
  /// virtual time after the last fault in which every recipient has to have completed
  std::chrono::microseconds give_up = std::chrono::seconds(60);
  std::FILE* trace = nullptr;  ///< where every step is printed; nullptr: nowhere
};

}  // namespace tensorpull::testing
