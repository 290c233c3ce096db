// A session over any transport, and what accepts such connections.
#pragma once

#include "any_consumer.hpp"
#include "download.hpp"
#include "network.hpp"

#include <tensorpull/links/posix/establish.hpp>
#include <tensorpull/satellites/relay/relay.hpp>
#include <tensorpull/transports/session/stream_session.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>

namespace tensorpull::python {

/// A pollable stream of any transport. Borrows it.
class any_stream {
  struct calls {
    io_result (*read)(void*, std::span<const std::span<std::byte>>) noexcept;
    io_result (*write)(void*, std::span<const std::span<const std::byte>>) noexcept;
    io_ready (*wait)(void*, bool, bool, std::chrono::milliseconds) noexcept;
    io_ready (*interest)(const void*, io_ready) noexcept;
    int (*native_handle)(const void*) noexcept;
  };
  template <class S>
  static constexpr calls calls_of{
      [](void* s, std::span<const std::span<std::byte>> in) noexcept { return static_cast<S*>(s)->read_some(in); },
      [](void* s, std::span<const std::span<const std::byte>> out) noexcept {
        return static_cast<S*>(s)->write_some(out);
      },
      [](void* s, bool read, bool write, std::chrono::milliseconds time) noexcept {
        return static_cast<S*>(s)->wait(read, write, time);
      },
      [](const void* s, io_ready wanted) noexcept { return detail::interest_of(*static_cast<const S*>(s), wanted); },
      [](const void* s) noexcept { return static_cast<const S*>(s)->native_handle(); },
  };

 public:
  template <pollable_stream S>
  static any_stream of(S& stream) noexcept {
    return any_stream(&stream, calls_of<S>);
  }
  io_result read_some(std::span<const std::span<std::byte>> spans) noexcept { return calls_->read(of_, spans); }
  io_result write_some(std::span<const std::span<const std::byte>> spans) noexcept { return calls_->write(of_, spans); }
  io_ready wait(bool read, bool write, std::chrono::milliseconds time) noexcept {
    return calls_->wait(of_, read, write, time);
  }
  io_ready interest(io_ready wanted) const noexcept { return calls_->interest(of_, wanted); }
  int native_handle() const noexcept { return calls_->native_handle(of_); }

 private:
  any_stream(void* of, const calls& c) noexcept : of_(of), calls_(&c) {}
  void* of_;
  const calls* calls_;
};
static_assert(pollable_stream<any_stream>);

/// A session over any transport. The messages' views are valid until the next receive().
struct any_session {
  virtual ~any_session() = default;
  virtual result<receipt> pull(const reference& from, landing& to, const pull_options& options,
                               chunks cut) noexcept = 0;
  virtual result<receipt> pull(const reference& from, any_consumer& to, const pull_options& options,
                               chunks cut) noexcept = 0;
  virtual result<reference> add_image(const source_view& image, const publish_options& options,
                                      unique_any keep) noexcept = 0;
  virtual result<void> withdraw(const reference& ref) noexcept = 0;
  virtual result<publication_status> status_of(const reference& ref) const noexcept = 0;
  virtual bool settled(const reference& ref) const noexcept = 0;
  virtual result<void> send(std::uint32_t kind, std::span<const reference> references, std::span<const std::byte> body,
                            std::chrono::milliseconds time, const stop_token& stop) noexcept = 0;
  virtual result<message> receive(std::chrono::milliseconds time, const stop_token& stop) noexcept = 0;
  virtual result<void> serve(const std::function<bool()>& until, std::chrono::milliseconds time,
                             const stop_token& stop) = 0;
  /// The common name in the certificate of the other end; empty if it has shown none.
  virtual std::string_view peer_name() const noexcept = 0;
  /// Its stream, which a relay may wait for; none over other links.
  virtual std::optional<any_stream> stream() noexcept { return std::nullopt; }
  /// As basic_session::between_frames(); false over other links.
  virtual bool between_frames() const noexcept { return false; }
  /// Passes what the other end has published on to whoever pulls from `recipient`, as relay(); unsupported_request over
  /// other links.
  virtual result<relayed> relay_to(any_stream&, const reference&, std::span<std::byte>, const relay_options&) noexcept {
    return failure(errc::unsupported_request);
  }
};
using made_session = result<std::shared_ptr<any_session>>;

/// All but the pulls, whose chunks are the link's.
template <class Session>
struct session_of : any_session {
  explicit session_of(Session s) noexcept : of(std::move(s)) {}
  result<reference> add_image(const source_view& image, const publish_options& options,
                              unique_any keep) noexcept override {
    return of.add_image(image, options, std::move(keep));
  }
  result<void> withdraw(const reference& ref) noexcept override { return of.withdraw(ref); }
  result<publication_status> status_of(const reference& ref) const noexcept override { return of.status_of(ref); }
  bool settled(const reference& ref) const noexcept override { return of.settled(ref); }
  result<void> send(std::uint32_t kind, std::span<const reference> references, std::span<const std::byte> body,
                    std::chrono::milliseconds time, const stop_token& stop) noexcept override {
    return of.send(kind, references, body, time, stop);
  }
  result<message> receive(std::chrono::milliseconds time, const stop_token& stop) noexcept override {
    return of.receive(time, stop);
  }
  result<void> serve(const std::function<bool()>& until, std::chrono::milliseconds time,
                     const stop_token& stop) override {
    return of.serve([&](const Session&) { return until(); }, time, stop);
  }
  std::string_view peer_name() const noexcept override {
    if constexpr (requires { of.peer(); }) {
      const peer_identity who = of.peer();
      if (who.kind == identity_kind::certificate) return who.name;
    }
    return {};
  }
  Session of;
};
/// Over a stream.
template <class Transport>
struct session_over final : session_of<typename net<Transport>::session> {
  using session_of<typename net<Transport>::session>::session_of;
  result<receipt> pull(const reference& from, landing& to, const pull_options& options, chunks cut) noexcept override {
    return this->of.pull(from, to, options, cut);
  }
  result<receipt> pull(const reference& from, any_consumer& to, const pull_options& options,
                       chunks cut) noexcept override {
    return this->of.pull(from, to, options, cut);
  }
  std::optional<any_stream> stream() noexcept override {
    if constexpr (relays) return any_stream::of(this->of.stream());
    else return std::nullopt;
  }
  bool between_frames() const noexcept override { return this->of.between_frames(); }
  result<relayed> relay_to(any_stream& recipient, const reference& ref, std::span<std::byte> chunk,
                           const relay_options& options) noexcept override {
    if constexpr (relays) return relay<typename net<Transport>::parts>(this->of, recipient, ref, chunk, options);
    else return failure(errc::unsupported_request);
  }

 private:
  static constexpr bool relays =
      pollable_stream<std::remove_cvref_t<decltype(std::declval<typename net<Transport>::session&>().stream())>>;
};

template <class Over, class Session>
made_session as_session(result<Session> s) noexcept {
  if (!s) return failure(s.error());
  return std::shared_ptr<any_session>(std::make_shared<Over>(std::move(*s)));
}
template <class Transport, class Where>
made_session connect_over(const Where& where, const connect_options& options) noexcept {
  return as_session<session_over<Transport>>(net<Transport>::session::connect(where, options));
}

/// What accepts connections that become sessions.
struct any_listener {
  virtual ~any_listener() = default;
  virtual std::uint16_t port() const noexcept = 0;
  virtual made_session accept(std::chrono::milliseconds time, const stop_token& stop) noexcept = 0;
};
template <class Transport, class Listener>
struct listener_over final : any_listener {
  explicit listener_over(Listener l) noexcept : of(std::move(l)) {}
  std::uint16_t port() const noexcept override {
    if constexpr (requires { of.port(); }) return of.port();
    else return 0;
  }
  made_session accept(std::chrono::milliseconds time, const stop_token& stop) noexcept override {
    // several threads may accept, and a listener over TLS remembers who shakes hands
    const std::unique_lock hold(turn, time);
    if (!hold) return failure(error{errc::timed_out, 0, 0, {}});
    auto stream = of.accept(time, stop);
    if (!stream) {
      // a peer whose handshake fails gets no connection, and says nothing about the others
      const bool of_a_peer = stream.error() == errc::connection_failed || stream.error() == errc::not_authenticated;
      return failure(of_a_peer ? error{errc::timed_out, 0, 0, {}} : stream.error());
    }
    return as_session<session_over<Transport>>(net<Transport>::session::over(std::move(*stream)));
  }
  Listener of;
  std::timed_mutex turn;
};
/// Raises what listening fails with.
template <class Transport, class Where>
std::shared_ptr<any_listener> listener_at(const Where& where) {
  auto l = value_or_raise([&] {
    if constexpr (requires { where.listen(); }) return where.listen();
    else return Transport::listen(where);
  }());
  return std::make_shared<listener_over<Transport, decltype(l)>>(std::move(l));
}

}  // namespace tensorpull::python
