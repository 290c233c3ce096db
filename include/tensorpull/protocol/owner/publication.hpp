// One slot of an owner: an image under a reference, and how its recipients fared.
#pragma once

#include <tensorpull/image/view.hpp>
#include <tensorpull/protocol/owner/recipient_state.hpp>
#include <tensorpull/core/ids.hpp>
#include <tensorpull/protocol/owner/verdict.hpp>

#include <cstdint>

namespace tensorpull {

/// Counts of one publication. Of a transaction with named recipients only those are counted as ended; others are `unlisted`.
struct publication_status {
  std::uint32_t acquired = 0;                ///< recipients that asked for it
  std::uint32_t completed = 0;               ///< confirmed with the published digest
  std::uint32_t completed_unverified = 0;    ///< confirmed without a digest
  std::uint32_t failed = 0;                  ///< confirmed, or gave up, with another digest
  std::uint32_t cancelled = 0;               ///< gave up and said so
  std::uint32_t vanished = 0;                ///< dropped by the idle budget
  std::uint32_t absent = 0;                  ///< expected by name and never seen
  std::uint32_t unfinished = 0;              ///< under way when it ended
  std::uint32_t unlisted = 0;                ///< asked without being expected
  std::uint32_t lost = 0;                    ///< times that a connection ended before a confirmation; the recipient may come back
  std::uint64_t bytes_sent = 0;              ///< payload handed to transports

  constexpr std::uint32_t final() const noexcept { return completed + completed_unverified + failed + cancelled + vanished + absent + unfinished; }
  /// The counter of a final state.
  constexpr std::uint32_t& of(recipient_state s) noexcept {
    switch (s) {
      case recipient_state::completed: return completed;
      case recipient_state::completed_unverified: return completed_unverified;
      case recipient_state::failed: return failed;
      case recipient_state::cancelled: return cancelled;
      case recipient_state::vanished: return vanished;
      case recipient_state::absent: return absent;
      default: return unfinished;
    }
  }
};

/// A slot. `generation` grows with every change of what is published, so that whoever holds a slot's number notices.
struct publication {
  enum class state : std::uint8_t { empty, published, withdrawn };

  ref_id id{};
  source_view image{};
  std::uint64_t version = 0;
  std::uint64_t order = 0;  ///< the lower, the earlier it was published
  publication_status counts{};
  transaction_id transaction{};
  std::uint32_t generation = 0;
  std::uint32_t pins = 0;  ///< transports that read the image's memory at this moment
  state now = state::empty;
  tensorpull::verdict verdict = verdict::open;  ///< its transaction's
  bool verifiable = false;

  bool is_part_of(transaction_id t) const noexcept { return now != state::empty && transaction == t; }
};

}  // namespace tensorpull
