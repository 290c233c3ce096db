// Runs a relay between two connections on the caller's thread: one to the owner, one to a recipient.
#pragma once

#include <tensorpull/protocol/connection/endpoint.hpp>
#include <tensorpull/protocol/relay/relay_machine.hpp>
#include <tensorpull/protocol/roles.hpp>
#include <tensorpull/std/chrono.hpp>
#include <tensorpull/std/stop_token.hpp>
#include <tensorpull/transports/blocking/stream_pull.hpp>

namespace tensorpull {

/// Limits of one relay.
struct relay_options {
  /// The longest time in which no byte moves in either direction.
  std::chrono::milliseconds idle_timeout = std::chrono::seconds(600);
  /// Ends the relay; noticed within 0.1 s.
  stop_token stop{};
};

/// A connection to the owner, for a relay that has connected to it. It has no owner role and no application messages,
/// allocates nothing, and is about 5 KiB. If the owner has connected to the relay instead (it is behind NAT), use the
/// session with it. Neither copied nor moved.
template <class Parts, byte_stream Stream>
class relay_link {
 public:
  /// Takes over a connected stream.
  explicit relay_link(Stream stream) noexcept : stream_(std::move(stream)) {}

  /// As session::begin_transfer.
  std::uint32_t begin_transfer() noexcept {
    end_.begin_pull();
    return end_.next_id();
  }
  /// As session::step_transfer.
  template <class Transfer>
  result<pumped> step_transfer(Transfer& t) noexcept {
    return pump_once(end_, t, stream_, std::span<std::byte>());
  }
  /// As session::end_transfer.
  template <class Transfer>
  void end_transfer(Transfer& t) noexcept {
    end_.end_pull(t);
    no_transfer none;
    if (const auto bye = t.farewell(); bye && end_.send_control(*bye)) (void)step_transfer(none);
  }
  /// The stream, to wait for.
  Stream& stream() noexcept { return stream_; }

 private:
  using limits = typename Parts::limits;
  Stream stream_;
  ignore_messages handler_;
  no_owner none_;
  alignas(8) std::array<std::byte, limits::control_frame_bytes> memory_;
  buffer_pool<> pool_{memory_, limits::control_frame_bytes};
  endpoint<typename Parts::framing, limits, no_owner, ignore_messages> end_{none_, pool_, handler_};
};

namespace detail {

/// Waits until one of two streams can continue. Streams that have descriptors are polled together, others in turn for 1
/// ms each.
template <byte_stream A, byte_stream B>
void wait_for_either(A& a, bool a_reads, bool a_writes, B& b, bool b_reads, bool b_writes,
                     std::chrono::milliseconds timeout) noexcept {
  if constexpr (requires { a.native_handle(), b.native_handle(); }) {
    pollfd both[2] = {polled(a.native_handle(), {a_reads, a_writes}), polled(b.native_handle(), {b_reads, b_writes})};
    (void)poll_for(both, 2, timeout);
  } else {
    constexpr std::chrono::milliseconds turn{1};
    const auto ready = a.wait(a_reads, a_writes, turn);
    if (!ready.read && !ready.write) b.wait(b_reads, b_writes, turn);
  }
}

}  // namespace detail

/// Passes `ref` on until the recipient hangs up. `upstream`: a session whose other end is the owner, or a relay_link.
/// `recipient`: a stream whose other end pulls as from any owner, any number of times one after the other. `chunk`: the
/// only buffer; its size is the longest chunk that the recipient is served. Nothing is allocated.
///
/// Each upstream connection serves one recipient at a time, because the owner counts a connection as one recipient. If
/// `upstream` is a session, an application message that comes meanwhile waits for receive(); more of them than the
/// session keeps end the relay with unread_messages. Errors: invalid_argument: `chunk` is empty; connection_lost: on
/// either side, before the recipient had ended (the owner is told `cancelled` if it can still be reached), and if the
/// line to the owner carries nothing any more (byte_stream, 8); timed_out; cancelled; violations of the protocol on
/// either side. `at`: payload bytes passed on. Close `recipient` after an error.
template <class Parts, class Upstream, byte_stream Stream>
result<relayed> relay(Upstream& upstream, Stream& recipient, const reference& ref, std::span<std::byte> chunk,
                      const relay_options& options = {}) noexcept {
  if (chunk.empty()) return failure(errc::invalid_argument);
  relay_machine<typename Parts::framing, typename Parts::limits> machine(chunk, ref.id, upstream.begin_transfer());
  detail::stopwatch<typename Parts::platform> idle;
  const detail::awaited_stream line(upstream.stream());
  bool broken = false;
  while (!machine.ended()) {
    if (options.stop.stop_requested()) machine.fail({errc::cancelled, 0, 0, {}});
    bool moved = false;
    const std::array<std::span<std::byte>, 1> room{machine.room()};
    if (!room[0].empty()) {
      const io_result io = recipient.read_some(room);
      machine.received(io.bytes);
      moved = io.bytes > 0;
      if (is_end(io.status)) machine.hung_up();
    }
    const auto did = upstream.step_transfer(machine);
    if (!did) {
      broken = true;
      machine.fail(did.error());
      break;
    }
    std::array<std::span<const std::byte>, 3> out;
    if (const std::size_t n = machine.to_write(out); n > 0 && !machine.ended()) {
      const io_result io = recipient.write_some({out.data(), n});
      machine.written(io.bytes);
      moved = moved || io.bytes > 0;
      if (is_end(io.status)) machine.hung_up();
    }
    if (moved || did->received + did->sent > 0 || did->works) {
      idle.restart();
      continue;
    }
    const auto left = idle.left(options.idle_timeout);
    if (left.count() == 0) machine.fail({errc::timed_out, 0, 0, {}});
    else if (!machine.ended())
      detail::wait_for_either(upstream.stream(), did->wants_read, did->wants_write, recipient, !room[0].empty(),
                              machine.to_write(out) > 0, std::min(detail::wait_step, left));
  }
  if (!broken) upstream.end_transfer(machine);
  return machine.outcome();
}

}  // namespace tensorpull
