// An owner whose port answers HTTP/1.1: `http_only<tcp>` in the transport slot. Beside an owner of frames, whatever its
// transport is: http_door.hpp. The ../README.md has its URLs.
#pragma once

#include <tensorpull/satellites/http/owner/detail/owner_endpoint.hpp>
#include <tensorpull/satellites/http/owner/http_shared.hpp>
#include <tensorpull/transports/host/owner.hpp>

namespace tensorpull {

/// Policy for the transport slot of an owner: HTTP/1.1 over `Next` (tcp, tls, unix_socket, ...), and nothing else. Its
/// recipients are those of `http`, and other programs.
template <class Next>
struct http_only : Next {
  static_assert(!Next::shares_memory, "tensorpull: http_only is for transports whose bytes travel");
  static constexpr std::size_t connection_bytes = Next::connection_bytes + 2560;  ///< as the host keeps it
  /// What connections speak.
  template <class, class Owner, class Handler>
  using endpoint_type = detail::owner_endpoint<Owner, Handler>;
  /// What they share: options and counts.
  template <class Parts, class Lock>
  using shared_type = http_shared<Lock, Parts::limits::recipients>;
};

}  // namespace tensorpull
