// The meaning of answers to a recipient.
#pragma once

#include <cstdint>

namespace tensorpull {

namespace detail {
/// The stages of a recipient, in their order; from `settled` on it asks for nothing.
enum class recipient_phase : std::uint8_t {
  start,
  describing,
  pulling,
  confirming,
  comparing,  // the owner's schema with ours, which differ
  settled
};

/// How often a recipient was served anew since the last chunk that it took.
struct serves_anew {
  /// An answer is of another serve than the owner has described. True: it is asked to describe again. False: that has
  /// happened too often. A peer that does so with each answer would keep the transfer alive for ever.
  constexpr bool begins() noexcept { return count < 8 && ++count != 0; }
  std::uint8_t count = 0;
};
}  // namespace detail

/// The meaning of an accepted frame to the driver of a recipient.
enum class recipient_event : std::uint8_t {
  nothing,  ///< not an answer to what was asked: it changes nothing, and is no progress
  answered,  ///< an answer, and nothing to do
  described,  ///< data may arrive; the consumer has to begin
  described_again,  ///< after restart(): the same as before
  chunk,  ///< its payload is wanted
  ignored_chunk,  ///< its payload is not wanted: throw it away
  confirmed,  ///< the owner has recorded the confirmation: the transfer is over
  busy,  ///< the owner is busy: wait for delay(), then restart()
};

}  // namespace tensorpull
