// Moves bytes between an endpoint and a byte stream until a condition holds: the blocking driver. It polls for reading and writing
// whenever it waits, so two ends that send at each other cannot wait for ever.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/protocol/stream_output.hpp>
#include <tensorpull/transports/concept.hpp>

#include <array>

namespace tensorpull::detail {

/// What one round of non-blocking calls did.
struct pumped {
  std::size_t received = 0;
  std::size_t sent = 0;
  bool wants_read = false;
  bool wants_write = false;
};

/// Bytes of payload that one call reads: small enough to be still in the cache when they are hashed.
inline constexpr std::size_t read_piece_bytes = 256 * 1024;
/// Bytes that one gather write collects before it stops to add replies.
inline constexpr std::size_t write_piece_bytes = 256 * 1024;

/// One write and one read, neither waits. connection_lost: the peer closed or the system says so.
template <class Endpoint, class Transfer, byte_stream Stream>
result<pumped> pump_once(Endpoint& end, Transfer& t, Stream& stream, std::span<std::byte> scratch) noexcept {
  pumped did;
  write_plan plan;
  if (const auto ok = end.plan_write(t, plan, scratch, write_piece_bytes); !ok) return failure(ok.error());
  if (plan.bytes > 0) {
    const io_result io = stream.write_some({plan.spans.data(), plan.span_count});
    did.sent = io.bytes;
    if (const auto ok = end.written(t, plan, io.bytes); !ok) return failure(ok.error());
    if (io.status == io_status::failed) return failure(errc::connection_lost, 0, {}, io.system);
    // `closed` while writing: answers that arrived before may still be read, and reading says what happened
  }
  did.wants_write = !end.output_idle();  // a part of the plan, or answers that the plan had no room for
  std::array<std::span<std::byte>, 32> spans;
  if (const std::size_t n = end.plan_read(t, spans, read_piece_bytes); n > 0) {
    did.wants_read = true;
    const io_result io = stream.read_some({spans.data(), n});
    did.received = io.bytes;
    if (io.bytes > 0)
      if (const auto ok = end.received(t, {spans.data(), n}, io.bytes); !ok) return failure(ok.error());
    if (io.status == io_status::closed || io.status == io_status::failed) return failure(errc::connection_lost, 0, {}, io.system);
  }
  return did;
}

}  // namespace tensorpull::detail
