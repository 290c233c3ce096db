// Pulls and sessions over the streams of the ground floor: TCP, TLS, Unix sockets, and pipes.
#include "engine.hpp"

#include <tensorpull/links/posix/dialer.hpp>
#include <tensorpull/links/posix/establish.hpp>
#include <tensorpull/transports/over/tcp/tcp.hpp>
#include <tensorpull/transports/session/stream_session.hpp>

#include <fcntl.h>

namespace tensorpull::facade {
namespace {

using stream_net = net<any_streams>;

/// Through the proxy of a place.
class through_proxy final : public dialer {
 public:
  explicit through_proxy(const place& p) noexcept : proxy_(p.proxy) {}
  result<posix_stream> dial(std::string_view address, std::chrono::milliseconds timeout,
                            const stop_token& stop) const noexcept override {
    return features.dial(proxy_, address, timeout, stop);
  }

 private:
  const proxy_settings& proxy_;
};
#if TENSORPULL_FACADE_TLS
tls_address tls_address_of(const place& p, const dialer* through = nullptr) noexcept {
  return {p.address, context_of(p), p.tls ? std::string_view(p.tls->given.check_hostname) : std::string_view(),
          through};
}
#endif
template <class Places>
result<any_way> way(result<Places> found) {
  if (!found) return failure(found.error());
  const auto all = std::make_shared<Places>(std::move(*found));
  return any_way{[all] { return all->more(); }, [all] { return as_stream(all->start_connect()); }};
}
template <class Listener>
result<any_acceptor> acceptor(result<Listener> made) {
  if (!made) return failure(made.error());
  return any_acceptor(std::make_shared<Listener>(std::move(*made)));
}
/// A call that allocates.
template <class F>
auto with_memory(F f) noexcept -> decltype(f()) {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    return failure(errc::out_of_memory);
  }
}

}  // namespace

std::unique_ptr<any_stream> lend_descriptor(int fd) noexcept {
  return std::unique_ptr<any_stream>(new (std::nothrow) any_stream(posix_stream(::fcntl(fd, F_DUPFD_CLOEXEC, 0))));
}

result<any_stream> stream_place::connect(std::chrono::milliseconds timeout, const stop_token& stop) const noexcept {
  if (to->scheme == "unix") return as_stream(unix_socket::connect(to->address, timeout, stop));
  const through_proxy proxy(*to);
  const bool direct = to->proxy.address.empty();
#if TENSORPULL_FACADE_TLS
  if (to->is.encrypted) return as_stream(tls_address_of(*to, direct ? nullptr : &proxy).connect(timeout, stop));
#endif
  if (to->is.port)
    return as_stream(direct ? tcp::connect(to->address, timeout, stop) : proxy.dial(to->address, timeout, stop));
  if (to->address == "-") return as_stream(pipe_stream::standard());
  command_words line;
  const auto words = line.split(to->address);
  if (!words) return failure(words.error());
  return as_stream(child_stream::start(*words, lives));
}
result<any_way> stream_place::resolve() const noexcept {
  return with_memory([&]() -> result<any_way> {
    if (to->scheme == "unix") return way(unix_socket::resolve(to->address));
    const bool direct = to->proxy.address.empty();
#if TENSORPULL_FACADE_TLS
    if (direct && to->is.encrypted) return way(tls_address_of(*to).resolve());
#endif
    if (direct) return way(tcp::resolve(to->address));
    auto made = connect(each, lives);  // a connection that is there
    if (!made) return failure(made.error());
    const auto only = std::make_shared<std::optional<any_stream>>(std::move(*made));
    return any_way{[only] { return only->has_value(); },
                   [only] { return result<any_stream>(*std::exchange(*only, std::nullopt)); }};
  });
}
result<any_acceptor> stream_place::listen() const noexcept {
  return with_memory([&]() -> result<any_acceptor> {
    if (to->scheme == "unix") return acceptor(unix_socket::listen(to->address));
#if TENSORPULL_FACADE_TLS
    if (to->is.encrypted) return acceptor(tls_address_of(*to).listen());
#endif
    return acceptor(tcp::listen(to->address));
  });
}

result<receipt> pull_by(const dial& where, const any_pull& how, const reference& ref, any_consumer& to,
                        const pull_options& options) {
  return pull_over<any_streams>(where, how, ref, to, options);
}

namespace {

result<receipt> pull_streams(any_pull& how, const reference& ref, any_consumer& to, const pull_options& options) {
  if (how.from.size() > 1 || how.connections) return features.several(how, ref, to, options);
  const stream_place only{&how.from.front(), options.stop};
  const dial told{[&, made = 0u](std::chrono::milliseconds timeout, const stop_token& stop) mutable {
    auto s = only.connect(timeout, stop);
    if (how.tell) how.tell({0, made, s ? errc{} : s.error().code, s ? 0 : s.error().system});
    made += s.has_value();
    return s;
  }};
  return pull_by(told, how, ref, to, options);
}
result<std::unique_ptr<any_session>> connect_streams(const place& to, const connect_options& how) {
  return boxed_session<stream_net>(stream_net::session::connect(stream_place{&to}, how));
}
result<any_listener> listen_streams(const place& at) {
  return listen_with<stream_net>(stream_place{&at}.listen(), authorised_at(at));
}

/// The stream below TLS, if there is to be TLS.
result<any_stream> secured(any_stream below, [[maybe_unused]] const tunnel_end& how) noexcept {
  if (!how.tls) return below;
#if TENSORPULL_FACADE_TLS
  const auto deadline = detail::deadline_after(how.timeout);
  auto s = below.secured(context_of(*how.tls), how.peer, how.accepts);
  if (!s) return s;
  if (const auto ok = detail::establish_by(*s, deadline, how.stop); !ok) return failure(ok.error());
  if (const peer_identity who = s->peer(); who.kind != identity_kind::certificate || who.name != how.peer)
    return failure(errc::not_authenticated, 0, std::string_view("it has the certificate of somebody else"));
  return s;
#else
  return failure(errc::unsupported_request);
#endif
}

/// One program is served, and there is no other.
class owner_over_pipe final : public publisher_of<any_owner, stream_net::session> {
 public:
  using publisher_of::publisher_of;
  std::uint16_t port() const noexcept override { return 0; }
  std::size_t connections() const noexcept override { return gone_ ? 0 : 1; }
  bool run(const std::function<bool()>& until) override {
    while (!gone_) {
      const auto held = end.serve([&](const stream_net::session&) { return until(); });
      if (held) return true;
      gone_ = held.error().code != errc::timed_out;
    }
    return until();
  }

 private:
  bool gone_ = false;
};
result<std::unique_ptr<any_owner>> own_pipe(const place& at, const host_options& host) {
  const std::size_t most = host.room.references != 0 ? host.room.references : facade_limits::references;
  connect_options how;
  how.room = {most, 2 * most};
  return boxed_as<any_owner, owner_over_pipe>(stream_net::session::connect(stream_place{&at}, how));
}

constexpr link_kind kind(std::string_view name, link_traits is) {
  is.several = is.listens = true;
  return {.name = name,
          .is = is,
          .pull = &pull_streams,
          .own = &own_streams,
          .connect = &connect_streams,
          .listen = &listen_streams};
}

}  // namespace

result<std::unique_ptr<any_session>> session_through(any_session& of, const tunnel_end& how) noexcept {
  using over_stream = session_of<stream_net::session, stream_net::parts>;
  any_stream* const below = dynamic_cast<over_stream*>(&of) != nullptr ? of.lend() : nullptr;
  if (below == nullptr || !below->is_tcp()) return failure(errc::unsupported_request);
  if (!of.between_frames()) return failure(errc::unread_messages);
  if (how.tls && (how.peer.empty() || (how.accepts && !how.tls->given.require_client_certificates)))
    return failure(errc::invalid_argument);
  auto s = secured(std::move(*below), how);
  if (!s) return failure(s.error());
  return boxed_session<stream_net>(stream_net::session::over(std::move(*s)));
}

extern const link_kind link_tcp = kind("tcp", {.port = true}), link_unix = kind("unix", {.path = true}),
                       link_tls = kind("tls", {.port = true, .encrypted = true}),
                       link_pipe{.name = "pipe", .pull = &pull_streams, .own = &own_pipe, .connect = &connect_streams};

}  // namespace tensorpull::facade
