// One line of a replica without sockets: what it does with answers and requests that come in any pieces.
#include "support/frames.hpp"
#include "support/messages.hpp"
#include "support/words.hpp"

#include <tensorpull/integrity/xxhash/xxhash_digest.hpp>
#include <tensorpull/protocol/owner/owner.hpp>
#include <tensorpull/satellites/replica/replica_line.hpp>

#include <gtest/gtest.h>

#include <deque>

namespace replica_line_test {

using namespace test;

/// What one end of a connection was sent, in pieces that are read one at a time, and what it has said.
struct script {
  std::deque<byte_vector> pieces{};
  byte_vector out{};
  std::size_t takes = ~std::size_t{0};  ///< bytes of each write
};
struct scripted_stream {
  script* of;
  tp::io_result read_some(std::span<const byte_span> spans) noexcept {
    if (of->pieces.empty() || spans.empty() || spans[0].empty()) return {tp::io_status::would_block, 0, 0};
    byte_vector& next = of->pieces.front();
    const std::size_t n = std::min(next.size(), spans[0].size());
    std::memcpy(spans[0].data(), next.data(), n);
    next.erase(next.begin(), next.begin() + static_cast<std::ptrdiff_t>(n));
    if (next.empty()) of->pieces.pop_front();
    return {tp::io_status::ok, 0, n};
  }
  tp::io_result write_some(std::span<const const_byte_span> spans) noexcept {
    std::size_t n = 0;
    for (const auto& s : spans) {
      const std::size_t k = std::min(s.size(), of->takes - n);
      of->out.insert(of->out.end(), s.begin(), s.begin() + static_cast<std::ptrdiff_t>(k));
      n += k;
    }
    return {n > 0 ? tp::io_status::ok : tp::io_status::would_block, 0, n};
  }
  tp::io_ready wait(bool read, bool write, std::chrono::milliseconds) noexcept { return {read, write}; }
  int native_handle() const noexcept { return -1; }
};
static_assert(tp::pollable_stream<scripted_stream>);

struct bench {
  using owner_type = tp::owner<tp::xxhash_digest>;
  using line_type = tp::replica_line<tp::word_framing, tp::default_limits, owner_type, scripted_stream>;
  tp::owner_storage<4, 16> storage{};
  owner_type owner{storage, [n = std::uint64_t{0}]() mutable { return ++n; }};
  tp::replica_counts counts{};
  tp::replica_options options{};
  script recipient{}, coordinator{};
  byte_vector scratch = byte_vector(65536);
  line_type line{scripted_stream{&recipient}, owner, counts, {}};

  /// Until the line has nothing left to do. False: it has ended.
  bool run() {
    for (int i = 0; i < 1'000'000; ++i) {
      switch (line.step(scratch, {}, options)) {
        case line_type::need::end: return false;
        case line_type::need::coordinator: line.call(scripted_stream{&coordinator}, {}); break;
        case line_type::need::again: break;
        default: return true;
      }
    }
    ADD_FAILURE() << "it never comes to rest";
    return false;
  }
};

tp::frame of_kind(tp::frame_kind kind) {
  for (const tp::frame& m : every_message())
    if (m.kind == kind) return m;
  ADD_FAILURE();
  return {};
}
byte_vector bytes_of(const tp::frame& m) {
  const frame f = encode(m);
  return {f.bytes().begin(), f.bytes().end()};
}

/// A page of a schema that almost fills a frame.
byte_vector long_page() {
  static const std::string name(100, 'n');
  static const std::array<std::uint64_t, 2> shape{3, 4};
  const std::vector<tp::schema_row> rows(20, tp::schema_row{name, "F32", shape});
  tp::frame m = of_kind(tp::frame_kind::schema_page);
  m.rows = rows;
  return bytes_of(m);
}

/// Long answers that were asked for ahead: they pass through a buffer of 16 KiB, whose end comes in the middle of one
/// of them.
TEST(ReplicaLine, Answers_that_end_anywhere_in_its_buffer_are_handed_on) {
  byte_vector asked, answered;
  const auto request = bytes_of(of_kind(tp::frame_kind::schema)), answer = long_page();
  ASSERT_GT(answer.size(), 3000u);
  ASSERT_LE(answer.size(), tp::default_limits::control_frame_bytes);
  constexpr int count = 60;
  for (int i = 0; i < count; ++i) {
    asked.insert(asked.end(), request.begin(), request.end());
    answered.insert(answered.end(), answer.begin(), answer.end());
  }
  for (const std::size_t piece : {std::size_t{1}, std::size_t{24}, std::size_t{1000}, std::size_t{4096},
                                  std::size_t{16376}, std::size_t{16383}, answered.size()}) {
    bench b;
    b.recipient.pieces.push_back(request), b.coordinator.pieces.push_back(answer);  // it has shown something
    ASSERT_TRUE(b.run());
    b.coordinator.out.clear(), b.recipient.out.clear();
    for (std::size_t at = 0; at < asked.size(); at += 4096) {
      const std::size_t n = std::min<std::size_t>(4096, asked.size() - at);
      b.recipient.pieces.emplace_back(asked.begin() + static_cast<std::ptrdiff_t>(at),
                                      asked.begin() + static_cast<std::ptrdiff_t>(at + n));
    }
    ASSERT_TRUE(b.run());
    ASSERT_EQ(b.coordinator.out.size(), asked.size());
    for (std::size_t at = 0; at < answered.size(); at += piece) {
      const std::size_t n = std::min(piece, answered.size() - at);
      b.coordinator.pieces.emplace_back(answered.begin() + static_cast<std::ptrdiff_t>(at),
                                        answered.begin() + static_cast<std::ptrdiff_t>(at + n));
    }
    ASSERT_TRUE(b.run()) << piece;
    EXPECT_TRUE(b.recipient.out == answered) << "pieces of " << piece;
    EXPECT_TRUE(b.coordinator.pieces.empty()) << "pieces of " << piece;
  }
}

/// Asks, is told no, and asks again: time runs for those who have been refused, and not before the first answer.
TEST(ReplicaLine, Those_that_ask_again_after_a_refusal_have_shown_nothing) {
  bench b;
  const tp::connection_budgets budgets{.accept = 2s};
  const auto asks = bytes_of(of_kind(tp::frame_kind::describe)), no = bytes_of(of_kind(tp::frame_kind::refused));
  bench::line_type::time_point now(1s);
  b.recipient.pieces.push_back(asks);
  ASSERT_TRUE(b.run());
  for (int i = 0; i < 5; ++i, now += 1s) {
    EXPECT_FALSE(b.line.expired(budgets, now, false)) << "the coordinator has said nothing yet";
    tp::detail::room_maker room;
    EXPECT_FALSE(b.line.makes_room(room, now));
  }
  b.coordinator.pieces.push_back(no);
  b.recipient.pieces.push_back(asks);
  ASSERT_TRUE(b.run());
  tp::detail::room_maker room;
  EXPECT_TRUE(b.line.makes_room(room, now));
  EXPECT_TRUE(b.line.expired(budgets, now, false));
}

TEST(ReplicaLine, F17_a_request_of_an_unknown_kind_is_the_coordinators_to_refuse) {
  bench b;
  const frame newer = single_segment(static_cast<tp::frame_kind>(17), {0});
  const byte_vector bytes(newer.bytes().begin(), newer.bytes().end());
  const auto no = bytes_of(of_kind(tp::frame_kind::refused));
  b.recipient.pieces.push_back(bytes);
  ASSERT_TRUE(b.run());
  EXPECT_EQ(b.coordinator.out, bytes);
  b.coordinator.pieces.push_back(no);
  ASSERT_TRUE(b.run());
  EXPECT_EQ(b.recipient.out, no);
}
/// Asks for what is unknown without an end, and reads nothing.
TEST(ReplicaLine, One_that_has_shown_nothing_asks_the_coordinator_for_a_little_at_a_time) {
  bench b;
  const auto asks = bytes_of(of_kind(tp::frame_kind::describe)), no = bytes_of(of_kind(tp::frame_kind::refused));
  for (int i = 0; i < 100; ++i) b.recipient.pieces.push_back(asks);
  const auto passed_on = [&] {
    EXPECT_TRUE(b.run());
    return b.coordinator.out.size() / asks.size();
  };
  const std::size_t most = passed_on();
  EXPECT_LE(most, 10u);
  b.coordinator.pieces.assign(most, no);
  EXPECT_EQ(passed_on(), most) << "whatever it is told";
  EXPECT_FALSE(b.line.expired({}, {}, false));
  EXPECT_EQ(passed_on(), 2 * most) << "as many after each look at its budgets";
  b.coordinator.pieces.push_back(bytes_of(of_kind(tp::frame_kind::description)));
  EXPECT_EQ(passed_on(), 100u) << "it has shown something";
}

}  // namespace replica_line_test
