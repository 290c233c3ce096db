// A byte stream: what the bytes of an endpoint move over. A class of your own that meets the requirements below is
// driven like a TCP socket.
#pragma once

#include <tensorpull/core/error.hpp>
#include <tensorpull/core/spans.hpp>
#include <tensorpull/std/chrono.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace tensorpull {

/// How one call to a stream ended. The end of the stream is a value and not an error.
enum class io_status : std::uint8_t {
  ok,  ///< bytes were moved
  would_block,  ///< nothing can be moved now
  closed,  ///< the peer has closed the stream, or the connection is gone
  /// the connection is gone, and the peer has not announced that it closes, as the stream's protocol demands (TLS)
  truncated,
  /// the peer has ended the connection, since it does not accept this end's identity (TLS: its certificate, or that it
  /// has none)
  refused,
  failed,  ///< any other fault, at this end
};

/// Whether a stream can be used no more.
constexpr bool is_end(io_status s) noexcept { return s >= io_status::closed; }

/// The result of one call to a stream.
struct io_result {
  io_status status = io_status::ok;  ///< how it ended
  std::int32_t system = 0;  ///< errno if `failed`, and if a connection is gone for another reason than an orderly end
  std::size_t bytes = 0;  ///< how many bytes were moved
};

/// The end of a wait(). Both false: the time ran out, or a signal arrived.
struct io_ready {
  bool read = false;  ///< read_some() can make progress
  bool write = false;  ///< write_some() can make progress
};

namespace detail {
/// The longest step of a wait, after which a driver looks whether it should stop.
inline constexpr std::chrono::milliseconds wait_step{50};
}  // namespace detail

/// A byte stream S is one end of a reliable, ordered connection, such as TCP, a Unix socket or TLS:
///  1. `s.read_some(spans)` reads into the spans in order, at most their sum, and never waits; 0 bytes only with
///     would_block or an end (closed, truncated, refused, failed);
///  2. `s.write_some(spans)` writes from the spans in order and never waits; it may take any part. If it takes less
///     than it was offered, the end of what it took may leave with a later write (a stream that encrypts has to send
///     whole records), and the next byte to be written stays the same;
///  3. `s.wait(read, write, timeout)` waits until a direction that was asked for can make progress, or the timeout is
///     over;
///  4. optionally, `s.read_or_wait(spans, timeout)`: read_some() that waits up to about `timeout` for the first byte,
///     or for as many as are worth waking up for, in one call;
///  5. movable, closed by its destructor; after an end only destruction is needed;
///  6. no call throws, allocates, or raises a signal;
///  7. optionally, it passes descriptors: `s.write_some(spans, descriptors)` sends them with the first byte that it
///     takes, or the bytes alone if the system passes none now, and `s.take_descriptors()` gives those that arrived
///     with the bytes that were read last;
///  8. optionally, `s.expect_bytes(on)`: from now on bytes of the other end are due, or not any more. While they are, a
///     path that carries nothing, and an end that is gone without a word, end the stream within seconds (closed). An
///     end that is there and silent does not.
/// testing/conformance checks each of them. An event loop asks for a little more:
/// links/posix/pollable_stream.hpp.
template <class S>
concept byte_stream = std::movable<S> && requires(S s, scatter_list in, gather_list out, std::chrono::milliseconds t) {
  { s.read_some(in) } noexcept -> std::same_as<io_result>;
  { s.write_some(out) } noexcept -> std::same_as<io_result>;
  { s.wait(true, true, t) } noexcept -> std::same_as<io_ready>;
};

namespace detail {
/// The smallest model: it shows that the concept asks for no more than this.
struct null_stream {
  io_result read_some(scatter_list) noexcept { return {io_status::closed, 0, 0}; }
  io_result write_some(gather_list) noexcept { return {io_status::closed, 0, 0}; }
  io_ready wait(bool, bool, std::chrono::milliseconds) noexcept { return {}; }
};
static_assert(byte_stream<null_stream>);
}  // namespace detail

}  // namespace tensorpull
