// A relay on the caller's thread, between a connection to the owner and a connection to a recipient.
#pragma once

#include <tensorpull/protocol/connection/endpoint.hpp>
#include <tensorpull/protocol/roles.hpp>
#include <tensorpull/satellites/relay/detail/two_streams.hpp>
#include <tensorpull/satellites/relay/relay_machine.hpp>
#include <tensorpull/std/chrono.hpp>
#include <tensorpull/std/stop_token.hpp>
#include <tensorpull/transports/blocking/stream_pull.hpp>

namespace tensorpull {

/// Limits of one relay.
struct relay_options {
  /// The longest time in which no request for the reference, and no byte to or from the owner, or of a chunk, moves.
  std::chrono::milliseconds idle_timeout = std::chrono::seconds(600);
  /// Ends the relay within 0.1 s.
  stop_token stop{};
  /// Bytes that the recipient is sent in any second, at most; 0: no limit. Waiting for this limit is not idle time.
  std::uint64_t bytes_per_second = 0;
  /// Until the recipient has asked for the reference. A stranger holds the owner's connection for no longer, whatever
  /// it sends.
  std::chrono::milliseconds accept_timeout = std::chrono::seconds(10);
};

/// A connection that the relay has made to the owner: without an owner role, messages or allocations, about 5 KiB. If
/// the owner has dialled the relay instead (it is behind NAT), use the session with it. Neither copied nor moved.
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

/// Passes `ref` on until the recipient hangs up. `upstream`: a session with the owner, or a relay_link. `recipient`: a
/// stream whose other end pulls as from any owner, any number of times in sequence. `chunk`: the only buffer, and the
/// longest chunk that the recipient is served. Nothing is allocated.
///
/// An upstream connection serves one recipient at a time, because the owner counts it as one recipient. Messages of a
/// session's other end wait for receive(); more than the session keeps end the relay with unread_messages. An owner may
/// hang up once a confirmation was accepted and nothing is in flight.
/// Errors: invalid_argument: `chunk` is empty; connection_lost: a side was lost before the recipient had ended (the
/// owner hears `cancelled` if it can), or the connection to the owner is dead (byte_stream, 8); timed_out; cancelled;
/// violations of the protocol. `at`: payload bytes passed on. Close `recipient` after an error.
template <class Parts, class Upstream, byte_stream Stream>
result<relayed> relay(Upstream& upstream, Stream& recipient, const reference& ref, std::span<std::byte> chunk,
                      const relay_options& options = {}) noexcept {
  if (chunk.empty()) return failure(errc::invalid_argument);
  relay_machine<typename Parts::framing, typename Parts::limits> machine(chunk, ref.id, upstream.begin_transfer());
  detail::stopwatch<typename Parts::platform> idle;
  const detail::awaited_link line(upstream.stream());
  detail::relay_pace pace(options.bytes_per_second);
  bool broken = false;
  while (!machine.ended()) {
    if (options.stop.stop_requested()) machine.fail({errc::cancelled});
    const auto left = idle.left(machine.asked() ? options.idle_timeout
                                                : std::min(options.idle_timeout, options.accept_timeout));
    if (left.count() == 0) machine.fail({errc::timed_out});
    bool moved = false;
    const std::uint64_t passed_on = machine.passed_on();
    const std::array<std::span<std::byte>, 1> room{machine.room()};
    if (!room[0].empty()) {
      const io_result io = recipient.read_some(room);
      machine.received(io.bytes);
      moved = io.bytes > 0;
      if (is_end(io.status)) machine.hung_up();
    }
    pumped did;
    if (!broken) {
      const auto stepped = upstream.step_transfer(machine);
      broken = !stepped;
      if (broken) machine.origin_left(stepped.error());
      else did = *stepped;
    }
    std::array<std::span<const std::byte>, 3> out;
    const std::size_t waiting = machine.ended() ? 0 : machine.to_write(out);
    if (const std::size_t n = pace.shorten(std::span(out).first(waiting)); n > 0) {
      const io_result io = recipient.write_some({out.data(), n});
      machine.written(io.bytes);
      pace.sent(io.bytes);
      moved = moved || io.bytes > 0;
      if (is_end(io.status)) machine.hung_up();
    }
    const bool held = pace.held_back(), worked = did.received + did.sent > 0 || did.works;
    if (machine.asked() && (worked || held || machine.passed_on() != passed_on)) idle.restart();
    if (!moved && !worked && !machine.ended())
      detail::wait_for_either(upstream.stream(), {did.wants_read, did.wants_write}, recipient,
                              {!room[0].empty(), !held && machine.to_write(out) > 0},
                              held ? pace.look_again : std::min(detail::wait_step, left));
  }
  if (!broken) upstream.end_transfer(machine);
  return machine.outcome();
}

}  // namespace tensorpull
