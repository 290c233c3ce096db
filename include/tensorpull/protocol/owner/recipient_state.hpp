// How far one recipient of one reference is, as its owner sees it.
#pragma once

#include <cstdint>
#include <string_view>

namespace tensorpull {

/// From `completed` on a state is final. A recipient that ended without `completed` and asks again before its transaction settles is
/// acquired anew; after settlement nothing changes any more.
enum class recipient_state : std::uint8_t {
  unseen,                ///< expected by name, has not asked yet
  acquired,              ///< has asked
  provisional,           ///< was sent everything, has not confirmed
  completed,             ///< confirmed with the published digest
  completed_unverified,  ///< confirmed without a digest
  failed,                ///< confirmed, or gave up, with another digest
  cancelled,             ///< gave up and said so
  vanished,              ///< took less than the least rate over its idle budget
  absent,                ///< did not ask within the acquire budget, or before the end
  unfinished,            ///< was under way when the transaction ended
};

constexpr bool is_final(recipient_state s) noexcept { return s >= recipient_state::completed; }

constexpr std::string_view to_string(recipient_state s) noexcept {
  switch (s) {
    case recipient_state::unseen: return "unseen";
    case recipient_state::acquired: return "acquired";
    case recipient_state::provisional: return "provisional";
    case recipient_state::completed: return "completed";
    case recipient_state::completed_unverified: return "completed_unverified";
    case recipient_state::failed: return "failed";
    case recipient_state::cancelled: return "cancelled";
    case recipient_state::vanished: return "vanished";
    case recipient_state::absent: return "absent";
    case recipient_state::unfinished: return "unfinished";
  }
  return "unknown";
}

}  // namespace tensorpull
