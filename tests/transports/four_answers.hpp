// What an owner's answers to several requests at once travel in.
#pragma once

#include "network.hpp"
#include "support/frames.hpp"

#include <netinet/tcp.h>
#include <optional>

namespace test {

/// The segments with data that a connection has received: on one machine one for each write of its other end. Linux has
/// counted them since 4.6, in a field (tcpi_data_segs_in) that the C library does not know.
inline std::optional<std::uint32_t> segments_received(raw_peer& peer) {
  constexpr std::size_t offset = 152;
  std::array<std::byte, 256> info{};
  socklen_t size = info.size();
  std::uint32_t segments = 0;
  if (::getsockopt(peer.stream().native_handle(), IPPROTO_TCP, TCP_INFO, info.data(), &size) != 0 ||
      size < offset + sizeof segments)
    return std::nullopt;
  std::memcpy(&segments, info.data() + offset, sizeof segments);
  return segments;
}

/// Asks for four chunks at once, lets the owner answer with `turn`, and counts the segments that come. A turn is long
/// enough for four answers on a slow machine: what is left when it ends leaves with the next one.
template <class Turn>
std::uint32_t segments_of_four_answers(raw_peer& peer, const tp::ref_id& ref, Turn turn) {
  byte_vector piece(4096);
  // the bytes that came, at least so many
  const auto answered = [&](std::size_t least) {
    std::size_t heard = 0;
    const auto end = steady_clock::now() + 60s;
    for (int quiet = 0; (heard < least || quiet < 3) && steady_clock::now() < end;) {
      turn();
      const std::size_t n = read_some(peer.stream(), piece).bytes;
      heard += n;
      quiet = n > 0 ? 0 : quiet + 1;
    }
    return heard;
  };
  EXPECT_TRUE(peer.say(request(tp::frame_kind::describe, 0, ref, 0, 0, {7})));
  EXPECT_GT(answered(8), 8u);
  EXPECT_TRUE(peer.say(request(tp::frame_kind::pull, 1, ref, 0, 40)));
  const std::size_t one = answered(40);
  const std::uint32_t before = *segments_received(peer);
  byte_vector four;
  for (std::uint32_t id = 2; id < 6; ++id) {
    const auto each = request(tp::frame_kind::pull, id, ref, 40 * id, 40);
    four.insert(four.end(), each.begin(), each.end());
  }
  EXPECT_TRUE(peer.say(four));
  EXPECT_EQ(answered(4 * one), 4 * one);
  return *segments_received(peer) - before;
}

}  // namespace test
