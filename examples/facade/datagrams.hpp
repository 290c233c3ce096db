// Pulls, owners and sessions over a link of datagrams.
#pragma once

#include "engine.hpp"
#include "turns.hpp"

#include <tensorpull/transports/peers/owner.hpp>
#include <tensorpull/transports/session/datagram_session.hpp>

namespace tensorpull::facade {

/// Chunks are what fits a datagram.
template <class Transport, class... More>
using datagram_net = net<Transport, fit_datagram, More...>;

template <class Transport>
result<receipt> pull_in_datagrams(any_pull& how, const reference& ref, any_consumer& to, const pull_options& options) {
  to.fits(Transport::max_payload_bytes);
  const std::string_view from = how.from.front().address;
  if (to.undoes()) return datagram_net<Transport>::pull(from, ref, to, options);
  return datagram_net<Transport, chunk_and_image_digest>::pull(from, ref, to, options);
}

/// A call waits while another thread serves: until it is told to hurry, or 0.05 s at most.
template <class Downloader>
class owner_by_turns : public owner_of<Downloader, turns> {
 public:
  explicit owner_by_turns(Downloader d, std::unique_ptr<const place> keep = nullptr)
      : owner_of<Downloader, turns>(std::move(d), std::move(keep)) {
    if constexpr (requires { this->end.link().ring(); }) this->turns_.hurry = [this] { this->end.link().ring(); };
  }
  bool run(const std::function<bool()>& until) override {
    while (!until()) {
      const auto mine = this->turns_.take(true);
      bool served = false;
      this->end.run([&](const Downloader&) { return std::exchange(served, true); });
    }
    return true;
  }
};
/// The options of a host that an owner of peers without a goodbye takes. Their places are allocated at once, so there
/// are not more of them than `most`.
inline datagram_owner_options peers_of(const host_options& host, std::string_view listen = {},
                                       std::size_t most = datagram_owner_options{}.peers) {
  datagram_owner_options o;
  o.listen = listen;
  o.peers = std::min(host.max_connections, most);
  o.budgets.idle = host.budgets.idle;
  o.limits = host.limits;
  o.authorise = host.authorise;
  o.room = host.room;
  return o;
}
template <class Transport, std::size_t Most = datagram_owner_options{}.peers>
result<std::unique_ptr<any_owner>> own_in_datagrams(const place& at, const host_options& host) {
  using downloader = typename datagram_net<Transport>::downloader;
  return boxed_as<any_owner, owner_by_turns<downloader>>(downloader::open(peers_of(host, at.address, Most)));
}

template <class Transport, std::uint64_t Most>
result<std::unique_ptr<any_session>> connect_in_datagrams(const place& to, const connect_options& how) {
  using transport_net = datagram_net<Transport>;
  return boxed_session<transport_net, Most>(transport_net::session::connect(std::string_view(to.address), how));
}
/// One session, with the first end that calls. It is accepted at once, since nothing is said before somebody sends.
template <class Transport, std::uint64_t Most>
result<any_listener> listen_in_datagrams(const place& at) {
  auto made = datagram_net<Transport>::session::open(std::string_view(at.address));
  if (!made) return failure(made.error());
  using session = typename decltype(made)::value_type;
  const std::uint16_t port = made->port();
  const auto only = std::make_shared<std::optional<session>>(std::move(*made));
  return any_listener{port, [only](std::chrono::milliseconds, const stop_token&) {
                        if (!*only)
                          return result<std::unique_ptr<any_session>>(failure(
                              errc::unsupported_request, 0,
                              std::string_view("one session for a listener over datagrams: it was accepted before")));
                        result<session> one(*std::exchange(*only, std::nullopt));
                        return boxed_session<datagram_net<Transport>, Most>(std::move(one));
                      }};
}

/// `Most`: bytes of the longest chunk of a session.
template <class Transport, std::uint64_t Most = Transport::max_payload_bytes>
constexpr link_kind datagram_kind(link_traits is, decltype(link_kind::own) own) {
  is.loses = is.listens = true;
  return {.name = Transport::scheme,
          .is = is,
          .pull = &pull_in_datagrams<Transport>,
          .own = own,
          .connect = &connect_in_datagrams<Transport, Most>,
          .listen = &listen_in_datagrams<Transport, Most>};
}

}  // namespace tensorpull::facade
