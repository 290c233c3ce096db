// One datagram of an endpoint: its spans, and what they belong to.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull {

/// The parts of one datagram. datagram_endpoint::plan_datagram() fills it in, sent() takes it back.
struct datagram_plan {
  /// Spans of one datagram.
  static constexpr std::size_t max_spans = 64;

  std::array<std::span<const std::byte>, max_spans> spans;  ///< what to send, in order; the first span_count are used
  std::size_t span_count = 0;  ///< how many there are
  std::size_t bytes = 0;  ///< in all spans together; 0: there is nothing to send now
  std::size_t scratch = 0;  ///< bytes of the scratch memory that the spans use, from its beginning on
  /// Whether any owner of the same content may answer: there are only requests for chunks in it, and none for the last
  /// bytes of the image. Otherwise the datagram is for the owner that described the reference, which also takes the
  /// confirmation.
  bool for_any_owner = false;

  // what sent() needs
  std::uint32_t first_pull = 0;  ///< the id of its first request for a chunk
  std::uint16_t pulls = 0;  ///< how many there are; their ids follow each other
  std::uint16_t replies = 0;  ///< answers of the owner, the images of which are pinned until sent()
  bool request = false;  ///< the request that is repeated until it is answered
  bool piece = false;  ///< a piece of a long frame
  bool taken = false;  ///< how much of a long frame has arrived
};

}  // namespace tensorpull
