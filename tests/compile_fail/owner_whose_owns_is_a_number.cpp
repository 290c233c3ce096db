// An owner whose `owns` is no bool.
// EXPECT: tensorpull: an owner needs `static constexpr bool owns`
#include "owner.hpp"

struct mine : no_owner {
  static constexpr int owns = 2;
};

bool use(mine& owner, buffer_pool<>& pool, ignore_messages& handler, no_transfer& idle) {
  return end_of<mine>(owner, pool, handler).parse(idle).has_value();
}
