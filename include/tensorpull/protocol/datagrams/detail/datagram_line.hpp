// The state that the parts of one end of a datagram connection share: the buffers, the time, and the estimate of the
// path.
#pragma once

#include <tensorpull/framing/detail/payload_prefix.hpp>
#include <tensorpull/protocol/datagrams/round_trip.hpp>

#include <cstddef>

namespace tensorpull::detail {

template <class Pool>
struct datagram_line {
  using time = round_trip::time;

  Pool& pool;                  ///< where buffers come from
  std::size_t datagram_bytes;  ///< the longest datagram, a multiple of 8
  round_trip trip{};           ///< how long an answer takes
  time now{};                  ///< when the driver called last
  time no_buffer_until{};      ///< neither answers nor the peer's frames get a buffer of the pool before

  /// Bytes of payload in one datagram.
  std::size_t piece_bytes() const noexcept { return datagram_bytes - payload_prefix::bytes; }
};

}  // namespace tensorpull::detail
