// Roles at an end of a connection that lack something.
// WITHIN_LINES: 0
// MAX_ERRORS: 3
// MAX_LINES: 44
#include <tensorpull/framing/word_framing.hpp>
#include <tensorpull/protocol/connection/endpoint.hpp>

// CASE handler_without_on_message
// EXPECT: tensorpull: a message handler needs `void on_message(const frame&)`
struct listener {
  bool ready() { return true; }
  void message_arrived(const tensorpull::frame&) {}
};

int main() {
  tensorpull::no_owner none;
  tensorpull::buffer_pool<> pool;
  listener handler;
  tensorpull::endpoint<tensorpull::word_framing, tensorpull::default_limits, tensorpull::no_owner, listener> end(
      none, pool, handler);
  tensorpull::no_transfer idle;
  return end.parse(idle) ? 0 : 1;
}

// CASE transfer_without_prepare
// EXPECT: tensorpull: a transfer needs `prepared prepare(std::span<std::span<std::byte>>, std::uint64_t most)`
// MAX_LINES: 40
struct mine : tensorpull::no_transfer {
  void prepare() {}
};

int main() {
  tensorpull::no_owner none;
  tensorpull::buffer_pool<> pool;
  tensorpull::ignore_messages handler;
  tensorpull::endpoint<tensorpull::word_framing, tensorpull::default_limits, tensorpull::no_owner,
                       tensorpull::ignore_messages>
      end(none, pool, handler);
  mine transfer;
  std::span<std::byte> spans[2];
  return static_cast<int>(end.plan_read(transfer, spans, 1));
}
