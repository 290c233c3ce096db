// TCP for those who wait: a recipient, or a device's whole round over one connection. Plain sockets; Boost.Asio is not needed.
// The owner that serves many is in tcp_owner.hpp.
#pragma once

#include <tensorpull/transports/stream/pull_once.hpp>
#include <tensorpull/transports/stream/session.hpp>
#include <tensorpull/transports/tcp/tcp_connect.hpp>

namespace tensorpull {

namespace detail {
template <class Parts>
concept with_owner = true;
}  // namespace detail

/// Stands in for the owner, which is a specialisation in a header of its own, since that needs Boost.Asio.
template <class Parts, bool Threads>
class tcp_owner {
  static_assert(!detail::with_owner<Parts>, "tensorpull: this program owns tensors over TCP: #include <tensorpull/transports/host/owner.hpp>, which needs Boost.Asio");

 public:
  template <class... Options>
  static result<tcp_owner> open(const Options&...) noexcept;
};
template <class Parts, class Handler, class Consumer, bool Threads>
class tcp_host;

/// Policy for the transport slot. `Threads`: the owner's connections may run on several threads that the caller gives it.
template <bool Threads>
struct basic_tcp {
  using is_transport_policy = void;
  using stream = posix_stream;
  static constexpr std::uint64_t max_payload_bytes = tensorpull::max_payload_bytes;
  /// descriptor, event registration and the two waits of one connection
  static constexpr std::size_t connection_bytes = 1024;

  /// Defined in transports/tcp_owner.hpp (Boost.Asio): include it to own tensors.
  template <class Parts>
  using downloader = tcp_owner<Parts, Threads>;
  /// Defined in transports/tcp_host.hpp (Boost.Asio): many connections that own and pull, on the caller's io_context.
  template <class Parts, class Handler, class Consumer>
  using host = tcp_host<Parts, Handler, Consumer, Threads>;
  template <class Parts>
  using session = tensorpull::session<Parts, posix_stream>;

  static result<posix_stream> connect(std::string_view address, std::chrono::milliseconds timeout, const stop_token& stop) noexcept {
    const auto now = std::chrono::steady_clock::now();
    const auto most = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::time_point::max() - now);
    return tcp_connect(address, timeout < most ? now + timeout : std::chrono::steady_clock::time_point::max(), stop);
  }

  /// Connect, pull, close; connects again where the connection is lost on the way.
  template <class Parts, consumer Consumer>
  static result<receipt> pull(std::string_view address, const reference& ref, Consumer& to, const pull_options& options, typename Parts::chunking chunking) noexcept {
    const auto make = [&] { return connect(address, options.per_request_timeout, options.stop); };
    return pull_persistently<Parts>(make, [](std::chrono::milliseconds time) { detail::pause(time); }, ref, to, options, chunking);
  }
};

using tcp = basic_tcp<false>;
using tcp_on_threads = basic_tcp<true>;

}  // namespace tensorpull
