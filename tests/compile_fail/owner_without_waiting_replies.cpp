// An owner for which no answer may wait.
// EXPECT: tensorpull: an owner needs `static constexpr std::size_t waiting_replies`, at least 1
#include "owner.hpp"

struct mine : no_owner {
  static constexpr std::size_t waiting_replies = 0;
};

bool use(mine& owner, buffer_pool<>& pool, ignore_messages& handler, no_transfer& idle) {
  return end_of<mine>(owner, pool, handler).parse(idle).has_value();
}
