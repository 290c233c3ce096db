// An owner whose peer is not default constructible.
// EXPECT: tensorpull: an owner needs a type `peer`, default constructible
#include "owner.hpp"

struct mine : no_owner {
  struct peer {
    explicit peer(int) {}
  };
  static bool handle(peer&, const frame&, pending_reply&, const identity_source&) noexcept { return false; }
  static digest_state locate(peer&, const frame&, std::span<byte_range>, frame&, const identity_source&) noexcept {
    return {};
  }
  static void forget(peer&) noexcept {}
};

bool use(mine& owner, buffer_pool<>& pool, ignore_messages& handler, no_transfer& idle) {
  return end_of<mine>(owner, pool, handler).parse(idle).has_value();
}
