// One end of a datagram connection, spoken to directly: what it takes, what it refuses, and what it sends again.
#include "support/lossy_pair.hpp"
#include "support/messages.hpp"

namespace datagram_endpoint_test {

using namespace test;
using kind = tp::frame_kind;

/// An owner's end, and a peer that says what it likes.
struct spoken_to {
  explicit spoken_to(std::size_t datagram_bytes = 1200, std::size_t buffers = 4) : p(1, datagram_bytes, buffers) {}

  errc hears(const tp::frame& m) { return hears(encode(m)); }
  errc hears(const frame& f) {
    const auto ok = p.end->received(idle, f.bytes(), now);
    return ok ? errc{} : ok.error().code;
  }
  /// The datagram that it sends next; empty: none.
  byte_vector says(bool taken = true) {
    tp::datagram_plan plan;
    p.end->plan_datagram(idle, plan, p.room(), now);
    const byte_vector all = bytes_of(plan);
    if (plan.bytes > 0) p.end->sent(idle, plan, taken);
    return all;
  }
  /// The control frame that it says next.
  tp::frame answer() {
    const auto bytes = says();
    const frame f(bytes);
    tp::word_framing::decode_storage lists;
    tp::frame m;
    EXPECT_TRUE(tp::word_framing::decode(f.bytes(), m, lists)) << bytes.size();
    return m;
  }

  datagram_party<> p;
  tp::no_transfer idle;
  microseconds now{1'000'000};
};
tp::frame ask(kind k, std::uint32_t id, std::uint64_t who = 9) {
  tp::frame m;
  m.kind = k;
  m.id = id;
  m.ref = {1, 2};
  if (k == kind::describe) m.recipient = {who};
  return m;
}

TEST(DatagramEndpoint, Answers_fit_a_datagram_whatever_is_asked_for) {
  for (const std::size_t datagram_bytes : {128u, 256u, 1200u}) {
    spoken_to end(datagram_bytes);
    const model source = mixed_model().fill(1);
    end.p.publish(source);
    EXPECT_EQ(end.hears(ask(kind::describe, 1)), errc{});
    if (datagram_bytes >= 256) EXPECT_EQ(end.answer().length, datagram_bytes - 80) << "the longest chunk";
    else
      while (!end.says().empty()) {
      }
    tp::frame m = ask(kind::pull, 2);
    m.length = 1 << 20;
    EXPECT_EQ(end.hears(m), errc{});
    EXPECT_EQ(end.says().size(), datagram_bytes);
  }
}
TEST(DatagramEndpoint, R14_a_message_outside_of_pieces_and_a_chunk_that_nobody_asked_for_are_refused) {
  spoken_to end;
  tp::frame m;
  m.kind = kind::application;
  m.body = some_body;
  EXPECT_EQ(end.hears(m), errc::unexpected_frame) << "it could come twice";
  EXPECT_EQ(end.p.box.count, 0u);
  EXPECT_EQ(end.hears(chunk_frame(ask(kind::chunk, 1), some_body)), errc::unexpected_frame);
  EXPECT_EQ(end.hears(ask(kind::end, 1)), errc::unexpected_frame);
}
TEST(DatagramEndpoint, A_datagram_that_the_link_did_not_take_is_sent_again_at_once) {
  spoken_to end;
  const model source = mixed_model().fill(1);
  end.p.publish(source);
  EXPECT_EQ(end.hears(ask(kind::describe, 1)), errc{});
  const auto answer = end.says(false);
  EXPECT_FALSE(answer.empty());
  EXPECT_EQ(end.says(), answer);
  EXPECT_TRUE(end.says().empty());
  const byte_vector body(3000, std::byte{7});
  ASSERT_TRUE(end.p.end->send_message(1, {}, body));
  const auto piece = end.says(false);
  EXPECT_FALSE(piece.empty());
  EXPECT_EQ(end.says(), piece);
  EXPECT_NE(end.says(), piece);
}
TEST(DatagramEndpoint, Named_tensors_are_busy_if_no_buffer_is_free_for_the_answer) {
  spoken_to end(1200, 1);
  const model source = mixed_model().fill(1);
  end.p.publish(source);
  EXPECT_EQ(end.hears(ask(kind::describe, 1)), errc{});
  EXPECT_EQ(end.answer().kind, kind::description);
  std::byte* const kept = end.p.pool.acquire();
  const std::string_view names[] = {source.source().schema->tensors[0].name};
  tp::frame m = ask(kind::locate, 2);
  m.names = names;
  tp::frame said;
  for (int round = 0; round < 10 && said.kind == kind::nothing; ++round) {
    EXPECT_EQ(end.hears(m), errc{});
    if (end.p.end->answers_wait()) said = end.answer();
  }
  EXPECT_EQ(said.kind, kind::refused);
  EXPECT_EQ(said.status, tp::status::busy);
  end.p.pool.release(kept);
}

}  // namespace datagram_endpoint_test
