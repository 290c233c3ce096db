// What a transport has to be: the three kinds of link that the state machines can be driven over, each as small as it can be.
#pragma once

#include <tensorpull/core/error.hpp>

#include <tensorpull/std/chrono.hpp>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull {

/// How one call to a link ended. End of stream is a value, not an error.
enum class io_status : std::uint8_t { ok, would_block, closed, failed };

struct io_result {
  io_status status = io_status::ok;
  std::int32_t system = 0;  ///< errno where `failed`
  std::size_t bytes = 0;
};

/// What a wait() ended with. Both false: the time ran out, or a signal came.
struct io_ready {
  bool read = false;
  bool write = false;
};

/// A byte stream S, one end of a connection (tcp, unix socket, TLS, a serial line):
///  1. `s.read_some(spans)` reads into the spans in order, at most their sum; never waits; 0 bytes only with would_block or closed;
///  2. `s.write_some(spans)` writes from the spans in order; never waits; may take any part;
///  3. `s.wait(read, write, timeout)` waits until one of the asked directions can make progress, or the timeout is over;
///  4. optionally, `s.read_or_wait(spans, timeout)`: read_some() that waits up to about `timeout` for the first byte, in one call;
///  5. movable, closed by its destructor; after `failed` or `closed` only destruction is needed;
///  6. no call throws, allocates, or raises a signal.
/// testing/transport_conformance.hpp checks each of them.
template <class S>
concept byte_stream = std::movable<S> && requires(S s, std::span<const std::span<std::byte>> in, std::span<const std::span<const std::byte>> out, std::chrono::milliseconds t) {
  { s.read_some(in) } noexcept -> std::same_as<io_result>;
  { s.write_some(out) } noexcept -> std::same_as<io_result>;
  { s.wait(true, true, t) } noexcept -> std::same_as<io_ready>;
};

/// A datagram link D (UDP, a radio, CAN with a transport layer): whole frames, lost, doubled or re-ordered at will:
///  1. `D::max_datagram_bytes` is a constant: a chunk's frame (80 bytes and the padded payload) must fit it;
///  2. `d.receive(buffer)` takes one datagram, cut off where the buffer ends; `d.send(spans)` sends one, all or nothing; neither waits;
///  3. `d.wait(...)` as above.
template <class D>
concept datagram_link = std::movable<D> && requires(D d, std::span<std::byte> in, std::span<const std::span<const std::byte>> out, std::chrono::milliseconds t) {
  requires std::same_as<decltype(D::max_datagram_bytes), const std::size_t>;
  { d.receive(in) } noexcept -> std::same_as<io_result>;
  { d.send(out) } noexcept -> std::same_as<io_result>;
  { d.wait(true, true, t) } noexcept -> std::same_as<io_ready>;
};

/// A memory link M (two ends in one process, a shared segment): the payload is copied once, from the owner's spans to the recipient's:
///  1. `m.move(from, to)` copies as many bytes as both lists hold, in order, and says how many.
template <class M>
concept memory_link = requires(M m, std::span<const std::span<const std::byte>> from, std::span<const std::span<std::byte>> to) {
  { m.move(from, to) } noexcept -> std::same_as<std::size_t>;
};

/// A transport policy T: what stands in a pipeline's transport slot:
///  1. `T::is_transport_policy` names a type;
///  2. `T::max_payload_bytes`: the longest chunk that one frame of this transport carries;
///  3. `T::connection_bytes`: memory that the transport keeps for each connection beside the library's 2 KiB;
///  4. `T::template downloader<Parts>` and `T::template session<Parts>` name the drivers (see pipeline.hpp for Parts).
template <class T>
concept transport = requires {
  typename T::is_transport_policy;
  requires std::same_as<decltype(T::max_payload_bytes), const std::uint64_t>;
  requires std::same_as<decltype(T::connection_bytes), const std::size_t>;
};

namespace detail {
/// The smallest models, which do nothing: they keep the concepts honest.
struct null_stream {
  io_result read_some(std::span<const std::span<std::byte>>) noexcept { return {io_status::closed, 0, 0}; }
  io_result write_some(std::span<const std::span<const std::byte>>) noexcept { return {io_status::closed, 0, 0}; }
  io_ready wait(bool, bool, std::chrono::milliseconds) noexcept { return {}; }
};
struct null_datagrams {
  static constexpr std::size_t max_datagram_bytes = 1232;
  io_result receive(std::span<std::byte>) noexcept { return {io_status::would_block, 0, 0}; }
  io_result send(std::span<const std::span<const std::byte>>) noexcept { return {io_status::would_block, 0, 0}; }
  io_ready wait(bool, bool, std::chrono::milliseconds) noexcept { return {}; }
};
static_assert(byte_stream<null_stream> && datagram_link<null_datagrams>);
}  // namespace detail

}  // namespace tensorpull
