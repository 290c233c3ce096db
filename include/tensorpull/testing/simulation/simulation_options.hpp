// What may go wrong in a simulated run, and how much is simulated.
#pragma once

#include <tensorpull/std/chrono.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string_view>

namespace tensorpull::testing {

/// What can go wrong between frames; what can go wrong with one frame is a frame_fault.
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
};
/// As a trace prints them.
inline constexpr std::array<std::string_view, 10> fault_names{"reset", "stall", "cut", "lose", "crash recipient", "crash owner", "publish again", "withdraw", "mutate", "take buffers"};

/// What may go wrong at all, and how much is simulated.
struct simulation_options {
  std::size_t most_recipients = 64;
  std::size_t most_faults = 8;
  std::uint32_t fault_mask = 0x3ff;   ///< bit i allows fault i
  bool frame_faults = true;           ///< doubled, late, dropped and shortened frames
  bool flips = true;                  ///< single bits, in control frames, prefixes and payload
  bool slow_consumers = true;
  bool transactions = true;           ///< expected recipients, quorums and budgets; false: every publication is for an unknown number
  bool forged = false;                ///< confirmations of recipients that said nothing: the oracle has to notice
  std::chrono::microseconds request_timeout = std::chrono::milliseconds(400);
  std::chrono::microseconds give_up = std::chrono::seconds(60);  ///< virtual time after the last fault in which every recipient has to have completed
  std::FILE* trace = nullptr;         ///< where every step is printed; nullptr: nowhere
};

}  // namespace tensorpull::testing
