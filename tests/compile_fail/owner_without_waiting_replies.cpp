// An owner for which no answer may wait.
// EXPECT: tensorpull: an owner needs `static constexpr std::size_t waiting_replies`, at least 1
#include <tensorpull/framing/word_framing.hpp>
#include <tensorpull/protocol/connection/endpoint.hpp>

struct mine : tensorpull::no_owner {
  static constexpr std::size_t waiting_replies = 0;
};

using end_type =
    tensorpull::endpoint<tensorpull::word_framing, tensorpull::default_limits, mine, tensorpull::ignore_messages>;
end_type* begin(mine& owner, tensorpull::buffer_pool<>& pool, tensorpull::ignore_messages& handler) {
  return new end_type(owner, pool, handler);
}
