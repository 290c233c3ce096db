// A transfer that gives no memory for its chunks.
// EXPECT: tensorpull: a transfer needs `prepared prepare(std::span<std::span<std::byte>>, std::uint64_t most)`
#include <tensorpull/framing/word_framing.hpp>
#include <tensorpull/protocol/connection/endpoint.hpp>

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
