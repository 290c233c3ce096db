// The state of each connection of a pull over several.
#pragma once

#include <tensorpull/protocol/recipient/transfer.hpp>
#include <tensorpull/std/optional.hpp>

#include <type_traits>

namespace tensorpull::detail {

/// One line. `Machine`: its parallel_recipient.
template <class Machine, class Integrity>
struct line_state {
  Machine machine{pull_request{}, {}, 1};  // not the first line's: that is the transfer's own
  [[no_unique_address]] std::conditional_t<Integrity::per_chunk, chunk_hash_of<Integrity>, no_chunk_hash> hash{};
  typename Machine::ledger::number chunk{};  // that is landing
  std::uint64_t at = 0, left = 0, digest = 0;  // of it: where its next byte goes, and how many are missing
  optional<error> why;
  std::chrono::milliseconds pause{};
  std::uint8_t source = 0, damaged = 0;
  bool up = false, coming = false, has_asked = false;  // has_asked: over this connection, for a chunk
  bool works() const noexcept { return up && !why; }
  /// Whether it has no connection yet.
  bool may_come() const noexcept { return coming && !up; }
};

}  // namespace tensorpull::detail
