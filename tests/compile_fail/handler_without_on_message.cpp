// A message handler that takes messages by another name.
// EXPECT: tensorpull: a message handler needs `void on_message(const frame&)`
// MAX_LINES: 44
#include <tensorpull/framing/word_framing.hpp>
#include <tensorpull/protocol/connection/endpoint.hpp>

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
