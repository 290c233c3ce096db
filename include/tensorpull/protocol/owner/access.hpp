// Access: an owner asks its program whether a peer may have a reference before it tells anything about that reference.
#pragma once

#include <tensorpull/core/ids.hpp>
#include <tensorpull/core/peer_identity.hpp>
#include <tensorpull/std/functional.hpp>

#include <cstdint>
#include <string_view>

namespace tensorpull {

/// Somebody asks for something.
struct access_request {
  peer_identity peer{};  ///< its identity, as far as the transport has proved it; its views are valid during the call
  ref_id ref{};  ///< what is asked for: it need not be published
  std::uint64_t version = 0;  ///< which version of it; 0: any
  recipient_id recipient{};  ///< the number under which it wants to be counted; none: its connection stands for it
  bool expected = false;  ///< whether what is published there expects that number by name
};

/// Whether it may. A program that ties recipients to identities answers false for a number that is another's.
using authorise_callback = basic_callback<bool, const access_request&>;

/// Whether the peer has shown a certificate with that recipient's name: as the common name, or an alternative one.
constexpr bool is_certified_as(const peer_identity& peer, recipient_id who) noexcept {
  const auto is = [&](std::string_view name) { return !name.empty() && recipient_named(name) == who; };
  if (peer.kind != identity_kind::certificate) return false;
  for (const std::string_view name : peer.alternatives)
    if (is(name.substr(name.find(':') + 1))) return true;
  return is(peer.name);
}
/// An authorise_callback for owners whose recipients show certificates: one that is expected by name has to be
/// certified as that. Others may have everything under any number, by which they settle nothing.
inline constexpr auto expected_ones_are_certified = [](const access_request& r) noexcept {
  return !r.expected || is_certified_as(r.peer, r.recipient);
};

}  // namespace tensorpull
