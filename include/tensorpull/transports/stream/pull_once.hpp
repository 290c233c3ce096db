// One pull over connections of its own: no owner role, nothing on the heap. What a device has that downloads and closes.
#pragma once

#include <tensorpull/protocol/connection/endpoint.hpp>
#include <tensorpull/protocol/roles.hpp>
#include <tensorpull/protocol/recipient/transfer.hpp>
#include <tensorpull/transports/stream/drive.hpp>

#include <array>

namespace tensorpull {

/// `connect() -> result<Stream>` makes a connection, each time that one is needed. All state is under 8 KiB of stack. What has landed stays
/// over lost connections; a first connection that cannot be made is not tried again. `pause(time)` waits at most that long.
template <class Parts, class Connect, class Pause, consumer Consumer>
result<receipt> pull_persistently(Connect connect, Pause pause, const reference& ref, Consumer& to, const pull_options& options = {},
                                  typename Parts::chunking chunking = {}) noexcept {
  ignore_messages handler;
  using limits = typename Parts::limits;
  pull_request request = make_request(ref, options);
  while (!request.recipient) request.recipient = {system_entropy{}()};
  using transfer_type = transfer<Consumer, typename Parts::chunking, typename Parts::integrity, limits>;
  transfer_type t(to, request, chunking, 1);
  detail::persistence<transfer_type> all(t, options);
  const auto again = [&](const error& why) noexcept {
    if (t.ended()) return false;
    const auto delay = all.try_again(why);
    if (!delay) return false;
    if (!detail::wait_out(*delay, options.stop, pause)) t.fail({errc::cancelled, 0, 0, {}});
    t.restart();
    return !t.ended();
  };
  for (bool connected = false; !t.ended();) {
    optional<error> why, broken;
    if (auto stream = connect(); !stream) {
      why = stream.error();
      if (!connected || (why->code != errc::connection_failed && !is_passing(why->code))) t.fail(*why);
      else why->code = errc::connection_lost;  // it could be made before
    } else {
      connected = true;
      no_owner none;
      // for the names of a subset, and for the other schema's pages where the schemas differ
      alignas(8) std::array<std::byte, limits::page_bytes> memory;
      buffer_pool<> pool(memory, memory.size());
      endpoint<typename Parts::framing, limits, no_owner, ignore_messages> end(none, pool, handler);
      do {  // who is only busy is asked again over the same connection, which may be in the middle of a frame
        why = detail::drive(end, t, *stream, {}, options, detail::chunk_length_of(chunking), all, broken);
      } while (why && why->code == errc::busy && again(*why));
    }
    if (!why || !again(*why)) break;
  }
  return all.outcome();
}

/// The same over one connected stream; a lost connection ends it.
template <class Parts, byte_stream Stream, consumer Consumer>
result<receipt> pull_once(Stream& stream, const reference& ref, Consumer& to, const pull_options& options = {}, typename Parts::chunking chunking = {}) noexcept {
  struct borrowed {
    Stream* to;
    io_result read_some(std::span<const std::span<std::byte>> s) noexcept { return to->read_some(s); }
    io_result write_some(std::span<const std::span<const std::byte>> s) noexcept { return to->write_some(s); }
    io_ready wait(bool read, bool write, std::chrono::milliseconds t) noexcept { return to->wait(read, write, t); }
  };
  pull_options once = options;
  once.retry.retries = 0;
  const auto connect = [&]() -> result<borrowed> { return borrowed{&stream}; };
  return pull_persistently<Parts>(connect, [&](std::chrono::milliseconds time) { stream.wait(false, false, time); }, ref, to, once, chunking);
}

}  // namespace tensorpull
