// A connection of libnats whose socket this program's thread waits for, so that libnats needs no thread for it.
#pragma once

#include <tensorpull/satellites/nats/detail/nats_door.hpp>
#include <tensorpull/satellites/nats/detail/nats_handles.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/chrono.hpp>

#include <cstdint>

namespace tensorpull::detail {

/// Set by libnats, from within calls to it. Does not move while there is a connection.
struct nats_socket {
  int descriptor = -1;
  bool writes = false;  ///< bytes wait for the socket

  static natsStatus attach(void** mine, void* loop, natsConnection*, natsSock socket) {
    *mine = loop;
    static_cast<nats_socket*>(loop)->descriptor = socket;
    return NATS_OK;
  }
  static natsStatus reading(void* mine, bool wanted) {
    if (!wanted) static_cast<nats_socket*>(mine)->descriptor = -1;
    return NATS_OK;
  }
  static natsStatus writing(void* mine, bool wanted) {
    static_cast<nats_socket*>(mine)->writes = wanted;
    return NATS_OK;
  }
  static natsStatus detach(void* mine) { return reading(mine, false); }
};

/// Of libnats' buffers. Messages are taken before more is read, so no more than this waits here. The rest waits in
/// the socket and at the server, which ends a connection that is too slow.
inline constexpr int nats_read_bytes = 256 * 1024;

/// Connects to a server. `configure`: sets options of the program's own; may be nullptr.
inline natsStatus connect_nats(const char* url, const char* credentials, std::chrono::milliseconds timeout,
                               natsStatus (*configure)(natsOptions*), nats_socket& socket,
                               nats_connection& to) noexcept {
  natsOptions* made = nullptr;
  natsStatus how = natsOptions_Create(&made);
  const nats_options options(made);
  const auto also = [&](auto set, auto... value) noexcept {
    if (how == NATS_OK) how = set(made, value...);
  };
  nats_user user(url);
  if (!user) return NATS_INVALID_ARG;
  also(natsOptions_SetURL, user.url());
  if (user.password() != nullptr) also(natsOptions_SetUserInfo, user.name(), user.password());
  else if (*user.name() != '\0') also(natsOptions_SetToken, user.name());
  // libnats would use TLS only if the server asks for it, and anybody on the way can say that it does not
  if (asks_for_tls(url)) also(natsOptions_SetSecure, true);
  if (*credentials != '\0') also(natsOptions_SetUserCredentialsFromFiles, credentials, nullptr);
  // what is longer than an int has milliseconds would be cut to anything by libnats
  also(natsOptions_SetTimeout, std::min(std::max<std::int64_t>(timeout.count(), 1), std::int64_t{1} << 30));
  also(natsOptions_SetSendAsap, true);  // otherwise it has a thread that flushes
  // it would have a thread for that, and in version 3.4 take the next server's bytes for the rest of a message
  also(natsOptions_SetAllowReconnect, false);
  also(natsOptions_SetPingInterval, 0);  // its thread of timers would close the socket that this one reads
  also(natsOptions_SetIOBufSize, nats_read_bytes);
  also(natsOptions_SetEventLoop, static_cast<void*>(&socket), nats_socket::attach, nats_socket::reading,
       nats_socket::writing, nats_socket::detach);
  if (configure != nullptr) also(configure);
  natsConnection* connected = nullptr;
  if (how == NATS_OK) how = natsConnection_Connect(&connected, made);
  to = nats_connection(connected);
  return how;
}

}  // namespace tensorpull::detail
