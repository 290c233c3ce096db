// A member of a swarm in the hands of a test: it says anything, and hears what the door says.
#pragma once

#include "support/frames.hpp"
#include "transports/network.hpp"

#include <tensorpull/satellites/parallel/swarm/swarm_door.hpp>

#include <optional>

namespace test {

namespace swarm = tp::detail::swarm;

inline byte_vector message_bytes(std::uint32_t kind, std::span<const tp::reference> references, const_byte_span body) {
  tp::frame m;
  m.kind = tp::frame_kind::application, m.application = kind, m.references = references, m.body = body;
  const frame f = encode(m);
  return {f.bytes().begin(), f.bytes().end()};
}
/// A body of join with any text, also one that no member sends.
inline byte_vector join_body(std::string_view address, std::uint32_t known = 0,
                             swarm::member_state state = swarm::member_state::pulls) {
  byte_vector body(6 + address.size());
  swarm::store_le32(body.data(), known);
  body[4] = std::byte(state);
  body[5] = static_cast<std::byte>(address.size());
  std::memcpy(body.data() + 6, address.data(), address.size());
  return body;
}
inline byte_vector join_bytes(const tp::reference& ref, std::string_view address, std::uint32_t known = 0,
                              swarm::member_state state = swarm::member_state::pulls) {
  return message_bytes(swarm::join_kind, {&ref, 1}, join_body(address, known, state));
}

template <class Stream>
class member_in_hand : public peer_over<Stream> {
 public:
  using peer_over<Stream>::peer_over;

  bool join(const tp::reference& ref, std::string_view address, std::uint32_t known = 0,
            swarm::member_state state = swarm::member_state::pulls) {
    return this->say(join_bytes(ref, address, known, state));
  }
  /// The next frame that has arrived as a whole; none yet.
  std::optional<frame> next() {
    byte_vector piece(8192);
    const auto io = read_some(this->stream(), piece);
    closed_ = closed_ || tp::is_end(io.status);
    got_.insert(got_.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(io.bytes));
    const auto size = tp::detail::measure_frame(got_, 100'000, 16);
    if (!size || !*size || got_.size() < **size) return std::nullopt;
    const auto end = got_.begin() + static_cast<std::ptrdiff_t>(**size);
    const frame f(byte_vector(got_.begin(), end));
    got_.erase(got_.begin(), end);
    return f;
  }
  bool closed() const { return closed_; }

 private:
  byte_vector got_;
  bool closed_ = false;
};

}  // namespace test
