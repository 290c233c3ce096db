// An owner that cannot be told that an image could not be read.
// EXPECT: `void unreadable(const pending_reply&)` (owner_role, 8)
#include <tensorpull/framing/word_framing.hpp>
#include <tensorpull/protocol/connection/endpoint.hpp>

struct mine : tensorpull::no_owner {
  static constexpr bool owns = true;
  void unreadable() {}
};

int main() {
  mine owner;
  tensorpull::buffer_pool<> pool;
  tensorpull::ignore_messages handler;
  tensorpull::endpoint<tensorpull::word_framing, tensorpull::default_limits, mine, tensorpull::ignore_messages> end(
      owner, pool, handler);
  tensorpull::no_transfer idle;
  return end.parse(idle) ? 0 : 1;
}
