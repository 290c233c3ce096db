// Which NATS server a link connects to, and as whom.
#pragma once

#include <tensorpull/satellites/nats/nats_subject.hpp>
#include <tensorpull/std/chrono.hpp>

#include <nats/nats.h>

#include <string_view>

namespace tensorpull {

/// A NATS server, or several of one cluster. What it points to must live until the call that takes it returns.
struct nats_server {
  /// `nats://host:port` or `tls://host:port`, with `user:password@` or `token@` before the host if the server wants it;
  /// several with commas between, of which all say `tls://` or none does
  std::string_view url = "nats://127.0.0.1:4222";
  /// a file with a user's JWT and its seed, as `nsc` writes it; none: the url says all
  std::string_view credentials{};
  /// what the names of our inboxes begin with: `_INBOX`, or what the server lets this user alone subscribe to, such as
  /// `_INBOX_alice`
  std::string_view inbox = nats_subject::inbox_begin;
  /// how long libnats may take for each server of the url to connect and to be let in; neither a stop request nor a
  /// deadline cuts it short
  std::chrono::milliseconds timeout = std::chrono::seconds(2);
  /// sets what is not named here, such as certificates; called once for each connection, before it is made
  natsStatus (*configure)(natsOptions*) = nullptr;
};

}  // namespace tensorpull
