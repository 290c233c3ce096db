// An owner that cannot be told that an image could not be read.
// EXPECT: `void unreadable(const pending_reply&)` (owner_role, 8)
#include "owner.hpp"

struct mine : no_owner {
  static constexpr bool owns = true;
  void unreadable() {}
};

bool use(mine& owner, buffer_pool<>& pool, ignore_messages& handler, no_transfer& idle) {
  return end_of<mine>(owner, pool, handler).parse(idle).has_value();
}
