// The common part of all transport policies over a byte stream. Derive from it and define connect(); define listen()
// too to have an owner.
#pragma once

#include <tensorpull/core/limits.hpp>
#include <tensorpull/links/posix/establish.hpp>
#include <tensorpull/transports/blocking/stream_pull.hpp>
#include <tensorpull/transports/concept.hpp>
#include <tensorpull/transports/owner_parts.hpp>

namespace tensorpull {

template <class Parts, class Wire>
// transports/session/stream_session.hpp: a program that only pulls need not compile it, nor the owner in it
class basic_session;
template <class Parts, byte_stream Stream>
class stream_wire;

/// The owner's side of a pipeline over streams, on an event loop. This is its stand-in for a program that has not
/// included its header, transports/host/owner.hpp. `Parts`: owner_parts; `Tensors`: the tensor policy.
template <class Parts, class Tensors>
class stream_owner {
  // the class itself is refused, since it would be another one in a file that includes the header
  static_assert(detail::never<Parts>, "tensorpull: #include <tensorpull/transports/host/owner.hpp> to own tensors");

 public:
  /// The one option of owner_options that a program is likely to give.
  struct options {
    std::string_view listen;  ///< as in owner_options
  };
  static result<stream_owner> open(const options& = {}) noexcept;  ///< not defined
};

/// Many connections in both roles on an event loop. This is its stand-in for a program that has not included its
/// header, transports/host/host.hpp.
template <class Parts, class Handler, class Consumer>
class host {
  static_assert(detail::never<Parts>, "tensorpull: #include <tensorpull/transports/host/host.hpp> to have a host");

 public:
  template <class... Arguments>
  explicit host(Arguments&&...) noexcept;  ///< not defined
};

/// A policy for the transport slot is `struct mine : stream_transport<mine, my_stream>` with
///  1. `static result<my_stream> connect(std::string_view address, std::chrono::milliseconds timeout, const stop_token&
///     stop) noexcept`: waits until there is a connection (errors: bad_address, connection_failed with errno,
///     timed_out, cancelled). The work of a stream with establish() before its first byte may be left to that: drivers
///     and sessions call it;
///  2. for owners of many connections, what listening_transport requires (links/posix/pollable_stream.hpp):
///     `listen(address)`.
/// `Threads`: whether several threads of the caller may run an owner's connections.
template <class Self, byte_stream Stream, bool Threads = false>
struct stream_transport : reliable_transport {
  using stream = Stream;  ///< one end of a connection
  static constexpr bool threads = Threads;  ///< whether several threads may run an owner's connections
  /// The stream, what the host and the event loop know of it, and the loop's record of the descriptor.
  static constexpr std::size_t connection_bytes = 512;

  template <class Parts>
  using downloader = stream_owner<owner_parts_of<Parts>, typename Parts::tensors>;
  /// Many connections in both roles on an event loop.
  template <class Parts, class Handler, class Consumer>
  using host = tensorpull::host<Parts, Handler, Consumer>;
  template <class Parts>
  using session = basic_session<Parts, stream_wire<Parts, Stream>>;

  /// Connects, pulls and closes; connects again if the connection is lost meanwhile.
  template <class Parts, consumer Consumer>
  static result<receipt> pull(std::string_view address, const reference& ref, Consumer& to, const pull_options& options,
                              typename Parts::chunking chunking) noexcept {
    static_assert(
        detail::connects<Self, Stream>,
        "tensorpull: a transport over streams connects: static result<stream> connect(std::string_view address, std::chrono::milliseconds timeout, "
        "const stop_token& stop) noexcept");
    if constexpr (detail::connects<Self, Stream>) {
      const auto make = [&] { return Self::connect(address, options.per_request_timeout, options.stop); };
      return pull_by<Parts>(make, ref, to, options, chunking);
    } else return failure(errc::bad_address);  // refused above
  }
  /// The same with an address that is more than text: an object whose `connect(timeout, stop)`, as above, gives the
  /// stream.
  template <class Parts, consumer Consumer, detail::dials<Stream> Address>
  static result<receipt> pull(const Address& address, const reference& ref, Consumer& to, const pull_options& options,
                              typename Parts::chunking chunking) noexcept {
    const auto make = [&] { return address.connect(options.per_request_timeout, options.stop); };
    return pull_by<Parts>(make, ref, to, options, chunking);
  }
  /// The same with an address that pulls itself, such as one of several connections.
  template <class Parts, consumer Consumer, class Address>
    requires requires { &Address::template pull<Parts, Consumer>; }
  static result<receipt> pull(const Address& address, const reference& ref, Consumer& to, const pull_options& options,
                              typename Parts::chunking chunking) noexcept {
    return address.template pull<Parts>(ref, to, options, chunking);
  }

 private:
  template <class Parts, class Make, consumer Consumer>
  static result<receipt> pull_by(const Make& make, const reference& ref, Consumer& to, const pull_options& options,
                                 typename Parts::chunking chunking) noexcept {
    const auto connect = [&] { return detail::established(make, options.per_request_timeout, options.stop); };
    return pull_with<Parts>(connect, &detail::pause, ref, to, options, chunking);
  }
};

}  // namespace tensorpull
