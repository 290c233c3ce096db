// The step that moves bytes between an endpoint and a byte stream. Every driver is a loop around it: sessions, hosts,
// and your own.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/links/byte_stream.hpp>
#include <tensorpull/protocol/connection/write_plan.hpp>

#include <array>

namespace tensorpull {

/// The result of one step, and what to wait for before the next.
struct pumped {
  std::size_t received = 0;    ///< bytes read from the stream
  std::size_t sent = 0;        ///< bytes that the stream took
  bool wants_read = false;     ///< there is memory for more: wait for the stream to be readable
  bool wants_write = false;    ///< something is left to write: wait for it to be writable
  /// a digest is being computed for an answer, or bytes are copied that need no read: take the next step at once, but
  /// let other connections go first
  bool works = false;
  bool waited = false;  ///< the read itself may have waited, as `patience` allows
  bool write_blocked = false;  ///< the stream took less than it was offered
  /// it takes nothing any more, although the other end may still send: there is nothing to wait for in this direction
  bool write_ended = false;
  bool read_drained = false;  ///< the stream had less than was asked for
};

/// Bytes that one gather write collects before it stops adding replies.
inline constexpr std::size_t write_piece_bytes = 256 * 1024;

namespace detail {

template <byte_stream Stream>
io_result read_patiently(Stream& stream, scatter_list spans, std::chrono::milliseconds patience,
                         bool& waited) noexcept {
  if constexpr (requires { stream.read_or_wait(spans, patience); }) {
    if (patience.count() > 0) {
      waited = true;
      return stream.read_or_wait(spans, patience);
    }
  }
  return stream.read_some(spans);
}

template <byte_stream Stream, class Plan>
io_result write_plan_to(Stream& stream, const Plan& plan) noexcept {
  const gather_list spans{plan.spans.data(), plan.span_count};
  if constexpr (requires { stream.write_some(spans, plan.descriptors); })
    if (!plan.descriptors.empty()) return stream.write_some(spans, plan.descriptors);
  return stream.write_some(spans);
}

/// Whether there is something to do at once, although nothing has arrived.
template <class Endpoint, class Transfer>
bool works(const Endpoint& end, const Transfer& t) noexcept {
  if constexpr (requires { t.works(); }) return t.works() || end.works();
  else return end.works();
}

/// Notes what this end has to do, whatever arrives.
template <class Endpoint, class Transfer>
void note_left(const Endpoint& end, const Transfer& t, pumped& did) noexcept {
  did.works = works(end, t);
  // part of a plan, or answers that it had no room for
  did.wants_write = end.output_ready() && !did.write_ended;
}

// Both are functions of their own, so that their lists of spans are not on the stack at the same time.

/// Lets all be written.
struct open_gate {};
/// Keeps the first n bytes of a plan's spans. Its items stay: what was not written of them is planned again.
template <class Plan>
void shorten(Plan& plan, std::uint64_t n) noexcept {
  std::size_t i = 0;
  while (n > 0) {
    auto& s = plan.spans[i++];
    if (s.size() > n) s = s.first(static_cast<std::size_t>(n));
    n -= s.size();
  }
  plan.span_count = i;
}

/// One gather write, which does not wait. It adds answers until they are `most` bytes. Bytes that the stream did not
/// take are written by a later call. `gate.admit(bytes)` is how many of these bytes may be written now, and
/// `gate.wrote(bytes)` is told how many were.
template <class Endpoint, class Transfer, byte_stream Stream, class Gate = open_gate>
[[gnu::noinline]] result<void> pump_write(Endpoint& end, Transfer& t, Stream& stream, std::span<std::byte> scratch,
                                          pumped& did, std::size_t most = write_piece_bytes,
                                          [[maybe_unused]] Gate gate = {}) noexcept {
  typename Endpoint::plan_type plan;
  if (const auto ok = end.plan_write(t, plan, scratch, most); !ok) return ok;
  if (plan.bytes > 0) {
    if constexpr (!__is_same(Gate, open_gate)) {
      const std::uint64_t admitted = gate.admit(plan.bytes);
      if (admitted < plan.bytes) shorten(plan, admitted);
      if (admitted == 0) {
        did.write_blocked = did.wants_write = true;
        return end.written(t, plan, 0);
      }
    }
    const io_result io = write_plan_to(stream, plan);
    if constexpr (!__is_same(Gate, open_gate)) gate.wrote(io.bytes);
    did.sent = io.bytes;
    did.write_blocked = io.bytes < plan.bytes;
    if (const auto ok = end.written(t, plan, io.bytes); !ok) return ok;
    if (io.status == io_status::failed) return failure(errc::io, 0, {}, io.system);
    // answers that arrived before may still be read, and the read reports what happened
    did.write_ended = is_end(io.status);
  }
  note_left(end, t, did);
  return {};
}

/// One scatter read into what the endpoint wants next, without looking at the bytes.
template <class Endpoint, class Transfer, byte_stream Stream>
[[gnu::noinline]] io_result read_wanted(Endpoint& end, Transfer& t, Stream& stream, pumped& did,
                                        std::chrono::milliseconds patience) noexcept {
  std::array<std::span<std::byte>, 32> spans;
  const std::size_t n = end.plan_read(t, spans, t.read_piece_bytes);
  did.wants_read = n > 0;
  if (n == 0) return {};
  std::size_t asked = 0;
  for (std::size_t i = 0; i < n; ++i) asked += spans[i].size();
  const io_result io = read_patiently(stream, {spans.data(), n}, patience, did.waited);
  did.received = io.bytes;
  did.read_drained = io.bytes < asked;
  if constexpr (requires { t.take(stream.take_descriptors()); }) t.take(stream.take_descriptors());
  end.arrived(t, {spans.data(), n}, io.bytes);
  return io;
}

/// One scatter read. It does not wait, except for at most `patience` if the stream has read_or_wait(). connection_lost:
/// the peer closed, or the network reports it; truncated: it ended without a notice; not_authenticated: the peer does
/// not accept this end's identity. io: the destination may not be written, or there is another fault at this end.
template <class Endpoint, class Transfer, byte_stream Stream>
[[gnu::noinline]] result<void> pump_read(Endpoint& end, Transfer& t, Stream& stream, pumped& did,
                                         std::chrono::milliseconds patience = {}) noexcept {
  // there may be memory now for what waits in the buffer, or room for its answers
  if (const auto ok = end.parse(t); !ok) return ok;
  const io_result io = read_wanted(end, t, stream, did, patience);
  if (io.bytes > 0)
    if (const auto ok = end.parse(t); !ok) return ok;
  if (io.status == io_status::failed) return failure(errc::io, 0, {}, io.system);
  if (io.status == io_status::closed) return failure(errc::connection_lost, 0, {}, io.system);
  if (io.status == io_status::refused)
    return failure(errc::not_authenticated, 0, std::string_view("it does not accept who this end is"), io.system);
  if (io.status == io_status::truncated) return failure(errc::truncated, 0, {}, io.system);
  return {};
}

}  // namespace detail

/// One step of a connection: one gather write of at most `most` bytes (and one answer), then one scatter read, for a
/// program with a loop of its own. `end`: an endpoint. `t`: the transfer that it pulls with; no_transfer if it only
/// owns. `scratch`: memory for bytes that are not in memory in the form in which they are sent (header text, packed
/// elements, the content of a file); 64 KiB for an owner, none for an end that only pulls. It does not wait. With a
/// `patience`, the read waits about that long at most, if nothing is left to write and the stream has read_or_wait().
///
/// Call it again while it receives or sends something, or works; otherwise wait for the directions of `pumped`. If it
/// has neither, memory is missing: a buffer of the pool, or room at the consumer. No descriptor announces that; try
/// again after a short time. After each step an owner reports what has settled (publisher::deliver). A transfer may end
/// in a step: see t.ended().
///
/// An error ends the connection. connection_lost: the peer closed, or the network reports it; truncated: it ended
/// without a notice; not_authenticated: the peer does not accept this end's identity. io: there is a fault at this end.
/// Any other: the peer broke the protocol. Allocates nothing. Calls write_some() and the read at most once each.
template <class Endpoint, class Transfer, byte_stream Stream>
result<pumped> pump_once(Endpoint& end, Transfer& t, Stream& stream, std::span<std::byte> scratch,
                         std::chrono::milliseconds patience = {}, std::size_t most = write_piece_bytes) noexcept {
  pumped did;
  const bool over = t.ended();
  if (const auto ok = detail::pump_write(end, t, stream, scratch, did, most); !ok) return failure(ok.error());
  // a transfer that has ended in the write (it failed, or had the last bytes from memory) waits for nothing
  if (did.wants_write || did.works || t.ended() != over) patience = {};
  if (const auto ok = detail::pump_read(end, t, stream, did, patience); !ok) return failure(ok.error());
  detail::note_left(end, t, did);  // an answer's digest may have become ready in the read, although nothing arrived
  return did;
}

}  // namespace tensorpull
