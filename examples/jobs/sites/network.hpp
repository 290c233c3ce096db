// The pipeline of the examples with several sites, and the messages between a site and the coordinator.
#pragma once

#include "processes.hpp"
#include "site_digits.hpp"

#include "jobs/federated/training.hpp"

#include <tensorpull/messages/tensor_decomposer.hpp>
#include <tensorpull/tensorpull.hpp>
#include <tensorpull/transports/host/owner.hpp>
#include <tensorpull/transports/over/tcp/tcp_listener.hpp>

#include <cstdio>
#include <string>
#include <thread>

BOOST_HANA_ADAPT_STRUCT(federated::perceptron, hidden_weight, hidden_bias, output_weight, output_bias);

namespace sites {

using federated::perceptron;
using namespace std::chrono_literals;

/// A site trains on one thread and serves other sites on a second one.
using net = tensorpull::pipeline<tensorpull::raw_tensors<perceptron>, tensorpull::fixed_bytes<64 * 1024>,
                                 tensorpull::tcp_on_threads>;
using letters = tensorpull::tensor_decomposer<net>;

/// The longest wait for another process.
inline constexpr auto patience = 300s;

inline bool complain(const char* what, const tensorpull::error& e) {
  std::fprintf(stderr, "%s: %s\n", what, describe(e).c_str());
  return false;
}

/// Sends a message that publishes nothing.
template <class Letter>
bool say(net::session& to, std::uint32_t kind, const Letter& letter) {
  const auto sent = letters::send(to, kind, letter, {}, patience);
  return sent ? true : complain("cannot send", sent.error());
}
/// Receives the next message, which has to be of this kind.
template <class Letter>
bool hear(net::session& from, std::uint32_t kind, Letter& letter) {
  const auto got = letters::receive(from, letter, {.timeout = patience});
  if (!got) return complain("cannot receive", got.error());
  if (*got == kind) return true;
  std::fprintf(stderr, "a letter of kind %u where %u was expected\n", *got, kind);
  return false;
}

inline std::string at_port(std::uint16_t port) { return "127.0.0.1:" + std::to_string(port); }

/// The first message of every site: which site it is.
struct hello {
  std::uint32_t site;
};
inline constexpr std::uint32_t hello_kind = 1;

/// The sites' connections, by their numbers.
inline bool accept_sites(tensorpull::tcp_listener& listener, processes& children,
                         std::vector<std::optional<net::session>>& all) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    auto stream = listener.accept(200ms);
    for (int waits = 0; !stream && !children.one_ended() && waits < 5 * 300; ++waits) stream = listener.accept(200ms);
    if (!stream) return complain("a site did not come", stream.error());
    auto session = net::session::over(std::move(*stream));
    if (!session) return complain("cannot accept", session.error());
    hello who{};
    if (!hear(*session, hello_kind, who)) return false;
    if (who.site >= all.size() || all[who.site]) return false;
    all[who.site].emplace(std::move(*session));
  }
  return true;
}

/// A job's whole program: its coordinator in this process, and each of its sites in a process of its own, over TCP.
/// Returns an exit status.
template <class RunSite, class Coordinate>
int run_job(const options& chosen, RunSite run_site, Coordinate coordinate) {
  auto listener = tensorpull::tcp_listener::open("127.0.0.1:0");
  if (!listener) {
    complain("cannot listen", listener.error());
    return 1;
  }
  processes children;
  for (std::uint32_t site = 0; site < chosen.sites; ++site)
    children.start([&, site] { return run_site(chosen, site, listener->port()); });
  if (!coordinate(chosen, *listener, children)) return 1;
  return children.wait() ? 0 : 1;
}

}  // namespace sites

BOOST_HANA_ADAPT_STRUCT(sites::hello, site);
