// Requests that come faster than their answers can leave.
#include "support/messages.hpp"
#include "support/pair.hpp"

namespace pipelining_test {

using namespace test;
using kind = tp::frame_kind;

/// Frames of one size, one after the other.
byte_vector joined(std::uint32_t count, tp::frame m, auto change) {
  byte_vector all;
  for (m.id = 0; m.id < count; ++m.id) {
    change(m);
    const frame f = encode(m);
    all.insert(all.end(), f.bytes().begin(), f.bytes().end());
  }
  return all;
}
/// Runs one end until nothing moves.
void settle(party& p, pipe_end& stream, const wire& in, const wire& out) {
  tp::no_transfer idle;
  for (std::uint64_t last = ~0ull; in.waiting() + (out.carried << 20) != last;) {
    last = in.waiting() + (out.carried << 20);
    ASSERT_TRUE(tp::pump_once(p.end, idle, stream, {reinterpret_cast<std::byte*>(p.scratch.get()), 65536}));
  }
}
std::vector<frame> frames_of(const wire& w) {
  std::vector<frame> all;
  for (const_byte_span rest(w.bytes); !rest.empty();) {
    const auto size = tp::detail::measure_frame(rest, ~std::size_t{0}, 16);
    if (!size || !*size || rest.size() < **size) break;
    all.emplace_back(rest.first(**size));
    rest = rest.subspan(**size);
  }
  return all;
}

// Requests about one transfer are never refused for being many: what does not fit the window stays in the stream.
TEST(Pipelining, F7_beyond_the_window_an_owner_stops_reading_until_its_answers_are_taken) {
  const model source = mixed_model().fill(1);
  for (const kind k : {kind::describe, kind::pull}) {
    party p(1);
    p.publish(source);
    tp::frame m;
    m.kind = k;
    m.ref = {1, 2};
    m.length = 100;
    wire in, out;
    out.capacity = 0;
    pipe_end stream(in, out, {}, {});
    in.put(joined(100, m, [](const tp::frame&) {}));
    const std::size_t one = in.waiting() / 100, all = in.waiting();
    settle(p, stream, in, out);
    EXPECT_TRUE(p.end.stalled());
    const std::size_t taken = all - in.waiting();
    EXPECT_GE(taken, tp::default_limits::pipelined_requests * one) << "the stated window is answered without waiting";
    EXPECT_LE(taken, owner::waiting_replies * one + endpoint::input_bytes) << "no queue grows with requests";

    out.capacity = ~std::size_t{0};
    settle(p, stream, in, out);
    EXPECT_FALSE(p.end.stalled());
    const auto answers = frames_of(out);
    ASSERT_EQ(answers.size(), 100u);
    for (std::uint32_t i = 0; i < 100; ++i) {
      EXPECT_EQ(static_cast<std::uint32_t>(answers[i].word(2)), i);
      EXPECT_EQ(kind_of(answers[i].bytes()), k == kind::pull ? kind::chunk : kind::description);
    }
  }
}

// Busy is for transfers: more than a connection may have open at a time.
TEST(Pipelining, F7_more_transfers_at_once_than_allowed_are_busy_in_their_place_in_the_order) {
  constexpr std::uint64_t allowed = tp::default_limits::transfers_per_connection;
  const model source = mixed_model().fill(1);
  party p(1);
  for (std::uint64_t i = 1; i <= allowed + 2; ++i) p.publish(source, {i, 0});
  tp::frame m;
  m.kind = kind::describe;
  wire in, out;
  pipe_end stream(in, out, {}, {});
  in.put(joined(allowed + 2, m, [](tp::frame& each) { each.ref = {each.id + 1, 0}; }));
  settle(p, stream, in, out);
  const auto answers = frames_of(out);
  ASSERT_EQ(answers.size(), allowed + 2);
  for (std::uint32_t i = 0; i < answers.size(); ++i) {
    const decoded d(answers[i]);
    ASSERT_TRUE(d.outcome);
    EXPECT_EQ(d.m.id, i);
    EXPECT_EQ(d.m.kind, i < allowed ? kind::description : kind::refused);
    if (i >= allowed) {
      EXPECT_EQ(d.m.status, tp::status::busy);
      EXPECT_EQ(std::chrono::milliseconds(d.m.delay_ms), tp::default_limits::busy_delay);
    }
  }
}

}  // namespace pipelining_test
