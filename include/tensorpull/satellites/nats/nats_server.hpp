// The NATS server that a link connects to, and the user that it connects as.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/satellites/nats/nats_subject.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/chrono.hpp>

#include <nats/nats.h>

#include <string_view>

namespace tensorpull {

/// A NATS server, or several of one cluster. Its texts must live until the call that takes it returns.
struct nats_server {
  /// `nats://host:port` or `tls://host:port`, with `user:password@` or `token@` before the host if the server requires
  /// it; several between commas, all of them `tls://` or none. Users, passwords and tokens are written with percent
  /// signs where they have other characters than a URL has there
  std::string_view url = "nats://127.0.0.1:4222";
  /// a file with a user's JWT and its seed, as `nsc` writes it; empty: the url is enough
  std::string_view credentials{};
  /// the beginning of our inboxes' names: `_INBOX`, or what this user alone may subscribe to, such as `_INBOX_alice`
  std::string_view inbox = nats_subject::inbox_begin;
  /// how long libnats may take to connect to each server of the url; neither a stop request nor a deadline cuts it
  /// short
  std::chrono::milliseconds timeout = std::chrono::seconds(2);
  /// sets other options, such as certificates; called once before each connection
  natsStatus (*configure)(natsOptions*) = nullptr;

  /// Reads a URL, behind it `?inbox=PREFIX&credentials=FILE` or one of the two, taken as they are. The texts are views.
  /// bad_address: another option, or an empty one.
  static result<nats_server> of(std::string_view text) noexcept {
    nats_server out;
    const auto end = std::min(text.find('?'), text.size());
    out.url = text.substr(0, end);
    for (std::string_view rest = text.substr(end); !rest.empty();) {
      rest.remove_prefix(1);
      const std::string_view one = rest.substr(0, rest.find('&'));
      const auto sign = std::min(one.find('='), one.size());
      const bool is_inbox = one.substr(0, sign) == "inbox";
      if ((!is_inbox && one.substr(0, sign) != "credentials") || sign + 1 >= one.size())
        return failure(errc::bad_address, 0, one);
      (is_inbox ? out.inbox : out.credentials) = one.substr(sign + 1);
      rest.remove_prefix(one.size());
    }
    return out;
  }
};

}  // namespace tensorpull
