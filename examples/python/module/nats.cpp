// Links through a NATS server (nats://). Without libnats this file is not compiled.
#include "in_datagrams.hpp"
#include "owner_by_turns.hpp"

#include <tensorpull/satellites/nats/nats.hpp>

#include <string>

namespace tensorpull::python {

result<receipt> pull_nats(std::string_view url, const reference& from, pull_target to, const pull_options& options,
                          chunks) noexcept {
  return pull_in_datagrams<nats>(url, from, to, options);
}

// Datagrams of a session are shorter than those of an owner.
constexpr std::uint64_t most_in_a_session = 64 * 1024;
made_session connect_nats(std::string_view url, const connect_options& options) noexcept {
  return connect_in_datagrams<nats, most_in_a_session>(url, options);
}
std::shared_ptr<any_listener> listen_nats(std::string_view url) {
  return listen_in_datagrams<nats, most_in_a_session>(url);
}

std::shared_ptr<any_owner> open_nats(std::string_view url, const host_options& host) {
  using downloader = datagram_net<nats>::downloader;
  auto made = std::make_shared<owner_by_turns<downloader, std::string>>(std::string(url));
  nats_owner_options options;
  options.server.url = made->borrowed;
  options.serving = peers_of(host, {});
  const interpreter_unlock unlocked;
  auto opened = downloader::open(options);
  if (!opened) {
    const interpreter_lock lock;
    raise(opened.error());
  }
  made->of.emplace(std::move(*opened));
  return made;
}

}  // namespace tensorpull::python
