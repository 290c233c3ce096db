// An owner that does not compute digests of chunks.
// EXPECT: tensorpull: an owner needs `digest_state digest(pending_reply&, std::uint64_t& allowance, std::span<std::byte> memory)` (owner_role, 10)
#include <tensorpull/framing/word_framing.hpp>
#include <tensorpull/protocol/connection/endpoint.hpp>

struct mine : tensorpull::no_owner {
  static constexpr bool owns = true;
  void digest() {}
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
