// Owners behind an end of a connection.
// WITHIN_LINES: 0
// MAX_ERRORS: 3
// MAX_LINES: 40
#include "owner.hpp"

struct mine : no_owner {
  // CASE owner_whose_owns_is_a_number
  // EXPECT: tensorpull: an owner needs `static constexpr bool owns`
  static constexpr int owns = 2;
  // CASE owner_whose_peer_needs_arguments
  // EXPECT: tensorpull: an owner needs a type `peer`, default constructible
  struct peer {
    explicit peer(int) {}
  };
  static bool handle(peer&, const frame&, pending_reply&, const identity_source&) noexcept { return false; }
  static digest_state locate(peer&, const frame&, std::span<byte_range>, frame&, const identity_source&) noexcept {
    return {};
  }
  static void forget(peer&) noexcept {}
  // CASE owner_without_digest
  // EXPECT: tensorpull: an owner needs `digest_state digest(pending_reply&, std::uint64_t& allowance, std::span<std::byte> memory)` (owner_role, 10)
  static constexpr bool owns = true;
  void digest() {}
  // CASE owner_without_unreadable
  // EXPECT: `void unreadable(const pending_reply&)` (owner_role, 8)
  static constexpr bool owns = true;
  void unreadable() {}
  // CASE owner_without_waiting_replies
  // EXPECT: tensorpull: an owner needs `static constexpr std::size_t waiting_replies`, at least 1
  static constexpr std::size_t waiting_replies = 0;
  // EACH ENDS WITH
};

bool use(mine& owner, buffer_pool<>& pool, ignore_messages& handler, no_transfer& idle) {
  return end_of<mine>(owner, pool, handler).parse(idle).has_value();
}
