// An owner whose peer is not default constructible.
// EXPECT: tensorpull: an owner needs a type `peer`, default constructible
#include <tensorpull/framing/word_framing.hpp>
#include <tensorpull/protocol/connection/endpoint.hpp>

struct mine : tensorpull::no_owner {
  struct peer {
    explicit peer(int) {}
  };
  static bool handle(peer&, const tensorpull::frame&, tensorpull::pending_reply&,
                     const tensorpull::identity_source&) noexcept {
    return false;
  }
  static tensorpull::digest_state locate(peer&, const tensorpull::frame&, std::span<tensorpull::byte_range>,
                                         tensorpull::frame&, const tensorpull::identity_source&) noexcept {
    return {};
  }
  static void forget(peer&) noexcept {}
};

using end_type =
    tensorpull::endpoint<tensorpull::word_framing, tensorpull::default_limits, mine, tensorpull::ignore_messages>;
end_type* begin(mine& owner, tensorpull::buffer_pool<>& pool, tensorpull::ignore_messages& handler) {
  return new end_type(owner, pool, handler);
}
