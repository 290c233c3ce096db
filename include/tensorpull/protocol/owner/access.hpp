// Access: an owner asks its program whether a peer may have a reference before it tells anything about that reference.
#pragma once

#include <tensorpull/core/ids.hpp>
#include <tensorpull/core/peer_identity.hpp>
#include <tensorpull/std/functional.hpp>

#include <cstdint>

namespace tensorpull {

/// Somebody asks for something.
struct access_request {
  peer_identity peer{};  ///< its identity, as far as the transport has proved it; its views are valid during the call
  ref_id ref{};  ///< what is asked for: it need not be published
  std::uint64_t version = 0;  ///< which version of it; 0: any
  recipient_id recipient{};  ///< the number under which it wants to be counted; none: its connection stands for it
};

/// Whether it may. A program that ties recipients to identities answers false for a number that is another's.
using authorise_callback = basic_callback<bool, const access_request&>;

}  // namespace tensorpull
