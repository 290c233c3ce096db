// A session over any transport, and what accepts such connections.
#pragma once

#include "any_consumer.hpp"
#include "download.hpp"
#include "network.hpp"

#include <tensorpull/links/posix/establish.hpp>
#include <tensorpull/transports/session/stream_session.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <utility>

namespace tensorpull::python {

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
