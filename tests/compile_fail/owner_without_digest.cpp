// An owner that does not compute digests of chunks.
// EXPECT: tensorpull: an owner needs `digest_state digest(pending_reply&, std::uint64_t& allowance, std::span<std::byte> memory)` (owner_role, 10)
#include "owner.hpp"

struct mine : no_owner {
  static constexpr bool owns = true;
  void digest() {}
};

bool use(mine& owner, buffer_pool<>& pool, ignore_messages& handler, no_transfer& idle) {
  return end_of<mine>(owner, pool, handler).parse(idle).has_value();
}
