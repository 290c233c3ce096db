// The owner's side of every transport over streams: publishes, and serves many recipients on the caller's threads.
#pragma once

#include <tensorpull/links/posix/wait.hpp>
#include <tensorpull/transports/host/host.hpp>
#include <tensorpull/transports/over/stream_transport.hpp>
#include <tensorpull/transports/publishing_owner.hpp>

#include <concepts>
#include <string_view>

namespace tensorpull {

/// Where and how an owner listens.
struct owner_options {
  /// The address. None: the transport's any_address (tcp: a free port of 127.0.0.1). Without an any_address it does not
  /// listen, and serves adopted streams.
  std::string_view listen{};
  host_options host{};  ///< limits and budgets of its connections
};

namespace detail {

/// The part of an owner over streams that does not depend on its models: an event loop, and a host on it that pulls
/// nothing.
template <class Parts>
class stream_owner_state {
  using transport = typename Parts::transport;

 public:
  explicit stream_owner_state(const host_options& options) : connections(io, handler, options) {}

  /// As stream_owner::open.
  static result<unique_ptr<stream_owner_state>> open(const owner_options& options) noexcept {
    return open_by(options.host, [&](stream_owner_state& s) -> result<std::uint16_t> {
      if constexpr (requires { transport::listen(options.listen); }) {
        std::string_view listen = options.listen;
        if constexpr (requires { transport::any_address; })
          if (listen.data() == nullptr) listen = transport::any_address;
        if (listen.data() != nullptr) return s.connections.listen(listen);
      } else if (options.listen.data() != nullptr)
        return failure(errc::bad_address, 0,
                       std::string_view("this transport wants an object, open(where)"));  // such as a tls_address
      return std::uint16_t{0};
    });
  }
  template <class Address>
  static result<unique_ptr<stream_owner_state>> open(const Address& listen, const host_options& options) noexcept {
    return open_by(options, [&](stream_owner_state& s) { return s.connections.listen(listen); });
  }

  event_loop io;
  silent_handler handler;
  host<Parts, silent_handler, no_consumer> connections;
  std::uint16_t port = 0;

 private:
  template <class Listen>
  static result<unique_ptr<stream_owner_state>> open_by(const host_options& options, Listen listen) noexcept {
    try {
      unique_ptr<stream_owner_state> s(new stream_owner_state(options));
      if (s->io.error() != 0) return failure(errc::io, 0, {}, s->io.error());
      const result<std::uint16_t> port = listen(*s);
      if (!port) return failure(port.error());
      s->port = *port;
      return s;
    } catch (...) {
      return failure(errc::out_of_memory);
    }
  }
};

}  // namespace detail

/// A pipeline's `downloader` over streams. Movable. Its destructor settles every open transaction, and callbacks are
/// called once more. open() allocates the buffers; each connection is one more allocation.
template <class Parts, class Tensors>
  requires listening_transport<typename Parts::transport>
class stream_owner<Parts, Tensors> : public publishing_owner<stream_owner<Parts, Tensors>, Tensors> {
  using transport = typename Parts::transport;
  using state = detail::stream_owner_state<Parts>;

 public:
  /// Starts to listen. Errors: bad_address, connection_failed (with errno: the address is in use, ...), io (the event
  /// loop has no descriptors), out_of_memory.
  static result<stream_owner> open(const owner_options& options = {}) noexcept { return with(state::open(options)); }
  /// Starts to listen on an address: text, or what is more than text, such as a tls_address. Owners over all transports
  /// are opened like this. Errors: as above, and those of the address.
  template <class Address>
    requires std::convertible_to<const Address&, std::string_view> ||
             detail::listens<Address, typename detail::listener_of<transport>::type>
  static result<stream_owner> open(const Address& listen, const host_options& options = {}) noexcept {
    if constexpr (std::convertible_to<const Address&, std::string_view>)
      return open({.listen = listen, .host = options});
    else return with(state::open(listen, options));
  }

  /// The port that it listens on; 0 if the transport has no ports, or if it does not listen.
  std::uint16_t port() const noexcept { return s_->port; }

  /// Serves a connection that the program has made itself. Errors as host::adopt.
  result<void> adopt(typename transport::stream&& stream) noexcept { return s_->connections.adopt(std::move(stream)); }

  /// How many connections there are.
  std::size_t connections() const noexcept { return s_->connections.connections(); }
  /// The object that its connections share, if the transport has one: the options and counts of http_only.
  auto& shared() noexcept { return s_->connections.shared(); }
  /// The event loop, for a program with a loop of its own. With the publisher it serves another host over the same
  /// references, such as http_door. Both are valid as long as the owner.
  tensorpull::event_loop& event_loop() noexcept { return s_->io; }
  /// See event_loop().
  auto& publications() noexcept { return s_->connections.published(); }

 private:
  friend publishing<stream_owner, Tensors>;
  friend publishing_owner<stream_owner, Tensors>;
  auto& published() noexcept { return s_->connections.published(); }
  const auto& published() const noexcept { return s_->connections.published(); }
  void serve_a_while() { s_->io.run_one_for(detail::wait_step); }

  static result<stream_owner> with(result<detail::unique_ptr<state>> s) noexcept {
    if (!s) return failure(s.error());
    return stream_owner(std::move(*s));
  }
  explicit stream_owner(detail::unique_ptr<state> s) noexcept : s_(std::move(s)) {}
  detail::unique_ptr<state> s_;
};

/// An owner over a transport that cannot listen, which is refused.
template <class Parts, class Tensors>
  requires(!listening_transport<typename Parts::transport>)
class stream_owner<Parts, Tensors> {
  static_assert(
      detail::never<Parts>,
      "tensorpull: this transport cannot have an owner: it needs `static result<L> listen(std::string_view address) noexcept`, where L "
      "is a stream_listener and its stream a pollable_stream (links/posix/pollable_stream.hpp)");

 public:
  static result<stream_owner> open(const owner_options& = {}) noexcept;  ///< not defined
};

}  // namespace tensorpull
