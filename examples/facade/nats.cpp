#include "datagrams.hpp"

#include <tensorpull/satellites/nats/nats.hpp>

namespace tensorpull::facade {
namespace {

/// Datagrams of a session are shorter than those of an owner.
constexpr std::uint64_t most_in_a_session = 64 * 1024;

result<std::unique_ptr<any_owner>> own_nats(const place& at, const host_options& host) {
  using downloader = datagram_net<nats>::downloader;
  auto kept = std::make_unique<const place>(at);
  nats_owner_options options;
  const auto server = nats_server::of(kept->address);
  if (!server) return failure(server.error());
  options.server = *server;
  options.serving = peers_of(host);
  return boxed_as<any_owner, owner_by_turns<downloader>>(downloader::open(options), std::move(kept));
}

}  // namespace

extern const link_kind link_nats = datagram_kind<nats, most_in_a_session>({}, &own_nats);

}  // namespace tensorpull::facade
