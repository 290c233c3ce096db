// Pulls and sessions over links of datagrams.
#pragma once

#include "other_links.hpp"

#include <tensorpull/transports/session/datagram_session.hpp>

#include <algorithm>
#include <optional>
#include <type_traits>
#include <utility>

namespace tensorpull::python {

/// Chunks are what fits a datagram.
template <class Transport>
using datagram_net = pipeline<tensor_list, fit_datagram, Transport, module_limits>;
template <class Transport, class Consumer>
using datagram_net_into = std::conditional_t<
    Consumer::irrevocable, pipeline<tensor_list, fit_datagram, Transport, chunk_and_image_digest, module_limits>,
    datagram_net<Transport>>;

template <class Transport>
result<receipt> pull_in_datagrams(std::string_view address, const reference& from, pull_target to,
                                  const pull_options& options) noexcept {
  constexpr std::uint64_t most = Transport::max_payload_bytes;
  return std::visit(
      [&](auto* target) {
        using consumer_type = std::remove_pointer_t<decltype(target)>;
        target->most_in_a_frame(most);
        return datagram_net_into<Transport, consumer_type>::pull(address, from, *target, options);
      },
      to);
}

/// A session over datagrams. `Most`: bytes of the longest chunk.
template <class Session, std::uint64_t Most>
struct datagram_session_over final : session_of<Session> {
  using session_of<Session>::session_of;
  result<receipt> pull(const reference& from, landing& to, const pull_options& options, chunks) noexcept override {
    to.most_in_a_frame(Most);
    return this->of.pull(from, to, options);
  }
  result<receipt> pull(const reference& from, any_consumer& to, const pull_options& options, chunks) noexcept override {
    to.most_in_a_frame(Most);
    return this->of.pull(from, to, options);
  }
};

template <class Transport, std::uint64_t Most = Transport::max_payload_bytes>
made_session connect_in_datagrams(std::string_view address, const connect_options& options) noexcept {
  using session = typename datagram_net<Transport>::session;
  return as_session<datagram_session_over<session, Most>>(session::connect(address, options));
}

/// What listens over datagrams: one session, with the first end that calls. It is accepted at once, since nothing is
/// said before somebody sends.
template <class Session, std::uint64_t Most>
struct listener_of_one final : any_listener {
  explicit listener_of_one(Session s) noexcept : port_(s.port()), of(std::move(s)) {}
  std::uint16_t port() const noexcept override { return port_; }
  made_session accept(std::chrono::milliseconds, const stop_token&) noexcept override {
    if (!of)
      return failure(errc::unsupported_request, 0,
                     std::string_view("one session for a listener over datagrams: it was accepted before"));
    result<Session> one(std::move(*of));
    of.reset();
    return as_session<datagram_session_over<Session, Most>>(std::move(one));
  }

 private:
  std::uint16_t port_;
  std::optional<Session> of;
};
template <class Transport, std::uint64_t Most = Transport::max_payload_bytes>
std::shared_ptr<any_listener> listen_in_datagrams(std::string_view address) {
  auto opened = [&] {
    const interpreter_unlock unlocked;
    return datagram_net<Transport>::session::open(address);
  }();
  using session = typename decltype(opened)::value_type;
  return std::make_shared<listener_of_one<session, Most>>(value_or_raise(std::move(opened)));
}

}  // namespace tensorpull::python
