// A port of its own on which an owner answers HTTP/1.1, beside the one on which recipients pull: over the same
// references, recipients and event loop.
#pragma once

#include <tensorpull/satellites/http/owner/http_owner.hpp>
#include <tensorpull/transports/over/tcp/tcp.hpp>

#include <memory>

namespace tensorpull {

/// How a door is opened. The budgets and limits of `host` are those of its own connections; its `authorise` is not
/// used, since the owner has one.
struct http_door_options {
  http_options http{};  ///< see there
  host_options host{};  ///< see there
};

namespace detail {
template <class Parts, class Next, class Publisher>
struct door_parts : Parts {
  using transport = http_only<Next>;
  using shared_publisher = Publisher;
};
}  // namespace detail

/// Answers HTTP over what an owner, or a host, publishes. `Parts`: the owner's; `Next`: what the port speaks below HTTP
/// (tcp, tls, unix_socket), whatever the owner's transport is; its `threads` is the owner's. It has to end before the
/// owner does. Movable.
template <class Parts, class Next, class Publisher>
class http_door {
  using parts = detail::door_parts<Parts, Next, Publisher>;
  using host_type = host<parts, detail::silent_handler, no_consumer>;
  static_assert(std::is_same_v<typename Publisher::owner_type::lock_type, typename host_type::lock_type>,
                "tensorpull: the owner's transport and the door's are both for one thread, or both for several");

 public:
  /// Starts to listen. Errors: those of listen(), io, out_of_memory. Allocates its table of recipients and its buffers.
  template <class Address>
  static result<http_door> open(event_loop& io, Publisher& published, const Address& listen,
                                http_door_options options = {}) noexcept {
    try {
      options.host.authorise = {};
      std::unique_ptr<state> s(new state(io, options, published));
      s->connections.shared().options = options.http;
      const result<std::uint16_t> port = s->connections.listen(listen);
      if (!port) return failure(port.error());
      s->port = *port;
      return http_door(std::move(s));
    } catch (...) {
      return failure(errc::out_of_memory);
    }
  }

  /// The port that it listens on.
  std::uint16_t port() const noexcept { return s_->port; }
  /// How many connections there are.
  std::size_t connections() const noexcept { return s_->connections.connections(); }
  /// What was answered so far.
  const http_counts& counts() const noexcept { return s_->connections.shared().counts; }

 private:
  struct state {
    state(event_loop& io, const http_door_options& options, Publisher& published)
        : connections(io, handler, options.host, &published) {}
    detail::silent_handler handler;
    host_type connections;
    std::uint16_t port = 0;
  };
  explicit http_door(std::unique_ptr<state> s) noexcept : s_(std::move(s)) {}
  std::unique_ptr<state> s_;
};

/// Opens a door beside an owner: `auto door = open_http_door(*owner, std::string_view("0.0.0.0:8080"));`, or with
/// `open_http_door<tls>(*owner, tls_address{...})`. The owner's run() serves it. Errors: as http_door::open.
template <class Next = tcp, class Parts, class Tensors, class Address>
auto open_http_door(stream_owner<Parts, Tensors>& owner, const Address& listen,
                    const http_door_options& options = {}) noexcept {
  using publisher_type = std::remove_reference_t<decltype(owner.publications())>;
  return http_door<Parts, Next, publisher_type>::open(owner.event_loop(), owner.publications(), listen, options);
}

}  // namespace tensorpull
