// The part that all transport policies over a byte stream have in common. Derive from it and say how to connect; say how to listen to have an owner.
#pragma once

#include <tensorpull/core/limits.hpp>
#include <tensorpull/transports/concept.hpp>
#include <tensorpull/transports/stream/pull.hpp>

namespace tensorpull {

template <class Parts, byte_stream Stream>
class session;  // transports/stream/session.hpp: a program that only pulls does without, and so without an owner

/// The owner's side of a pipeline over streams, on an event loop. This is what a program sees that has not included its header.
template <class Parts>
class stream_owner {
 public:
  template <class... Arguments>
  static result<stream_owner> open(Arguments&&...) noexcept {
    static_assert(detail::never<Arguments...>, "tensorpull: #include <tensorpull/transports/host/owner.hpp> to own tensors (it needs Boost.Asio)");
    return failure(errc::invalid_argument);
  }
};

/// Many connections in both roles on an event loop. This is what a program sees that has not included its header.
template <class Parts, class Handler, class Consumer>
class host {
 public:
  template <class... Arguments>
  explicit host(Arguments&&...) noexcept {
    static_assert(detail::never<Arguments...>, "tensorpull: #include <tensorpull/transports/host/host.hpp> to have a host (it needs Boost.Asio)");
  }
};

/// A policy for the transport slot is `struct mine : stream_transport<mine, my_stream>` with
///  1. `static result<my_stream> connect(std::string_view address, std::chrono::milliseconds timeout, const stop_token& stop) noexcept`: waits until the
///     connection stands (errors: bad_address, connection_failed with errno, timed_out, cancelled);
///  2. for owners of many connections, what listening_transport asks for (stream/pollable_stream.hpp): `listen(address)`.
/// `Threads`: an owner's connections may run on several threads that the caller gives it.
template <class Self, byte_stream Stream, bool Threads = false>
struct stream_transport {
  using is_transport_policy = void;
  using stream = Stream;
  static constexpr bool threads = Threads;
  static constexpr std::uint64_t max_payload_bytes = tensorpull::max_payload_bytes;
  /// descriptor, event registration and the two waits of one connection
  static constexpr std::size_t connection_bytes = 1024;

  template <class Parts>
  using downloader = stream_owner<Parts>;
  template <class Parts, class Handler, class Consumer>
  using host = tensorpull::host<Parts, Handler, Consumer>;
  template <class Parts>
  using session = tensorpull::session<Parts, Stream>;

  /// Connects, pulls, closes; connects again if the connection is lost on the way.
  template <class Parts, consumer Consumer>
  static result<receipt> pull(std::string_view address, const reference& ref, Consumer& to, const pull_options& options, typename Parts::chunking chunking) noexcept {
    const auto connect = [&] { return Self::connect(address, options.per_request_timeout, options.stop); };
    return pull_with<Parts>(connect, [](std::chrono::milliseconds time) { detail::pause(time); }, ref, to, options, chunking);
  }
};

}  // namespace tensorpull
