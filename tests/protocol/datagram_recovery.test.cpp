// What a pull over datagrams survives: owners that are started again, consumers that have no memory for a while, a
// loss that is found by later answers.
#include "support/lossy_pair.hpp"

#include <tensorpull/consumers/tee.hpp>

namespace datagram_recovery_test {

using namespace test;

template <class Consumer = tp::land, class Integrity = tp::image_digest>
using pull = tp::datagram_transfer<Consumer, tp::fixed_bytes<1112>, Integrity>;

model large(std::uint64_t floats = 30'000) {
  model m;
  m.add("w", dtype::f32, {floats}).add("b", dtype::f32, {1000}).ready();
  return m;
}
/// Wants its bytes in order, and sometimes has no memory.
struct ordered : tp::land {
  using tp::land::land;
  static constexpr bool any_order = false;
  tp::prepared prepare(std::uint64_t offset, std::uint64_t length, std::span<byte_span> out) noexcept {
    EXPECT_EQ(offset, at);
    if (++asked % dry == 0) return {};
    return land::prepare(offset, std::min<std::uint64_t>(length, part), out);
  }
  tp::result<void> commit(std::uint64_t offset, const_byte_span bytes) noexcept {
    EXPECT_EQ(offset, at);
    at += bytes.size();
    return land::commit(offset, bytes);
  }
  void rewind(std::uint64_t offset) noexcept { at = offset; }
  std::uint64_t at = 0, asked = 0, dry = 7, part = 700;
};

const link_conditions lossy{1200, 0.05, 0.02, 300us, 0us};

TEST(DatagramRecovery, Requests_that_have_begun_to_leave_do_so_until_the_window_is_full) {
  byte_vector hold(100'000);
  tp::selective_recipient<tp::fixed_bytes<1112>> machine(request_for({1, 2}), {}, 1);
  machine.fits(1200);
  machine.lands(true, hold);
  tp::frame asked;
  ASSERT_TRUE(machine.next(asked));
  tp::frame m;
  m.kind = tp::frame_kind::description;
  m.id = asked.id;
  m.ref = {1, 2};
  m.version = 5;
  m.nonce = 7;
  m.image_bytes = 1'000'000;
  m.data_start = 8;
  m.length = 1112;
  m.window = 8;  // requests in a datagram
  ASSERT_TRUE(machine.on(m));
  const microseconds now(1'000'000);
  std::uint32_t n = 0;
  for (bool last = false; machine.wants_pulls(now) && machine.next_pull(asked, last, now);) ++n;
  EXPECT_EQ(n, machine.window().size()) << "also those that would not fill a datagram";
}
TEST(DatagramRecovery, A_chunk_that_a_consumer_had_no_memory_for_in_the_middle_is_checked_from_its_beginning) {
  lossy_pair<> pair(in_order);
  const model source = large().fill(1);
  model target = large();
  ordered to(target.destination());
  to.dry = 5, to.part = 400;
  pull<ordered, tp::chunk_digest> t(to, request_for(pair.left.publish(source)), {}, pair.right.end->next_id());
  t.fits(1200);  // and no memory for what comes early, so that chunks land as they come
  std::uint64_t n = 0;
  pair.spoil = [&](datagram& d, std::size_t bytes) {
    if (bytes > 1000 && ++n % 5 == 0) d[20] ^= 1;  // in the part of the chunk that lands first
  };
  pair.right.end->begin_pull();
  ASSERT_TRUE(succeeded(pair.finish(t)));
  EXPECT_GT(t.outcome()->damaged, 0u);
  EXPECT_EQ(source.image_bytes(), target.image_bytes());
}
TEST(DatagramRecovery, An_owner_that_is_started_again_is_asked_anew_at_once) {
  for (const bool other : {false, true}) {
    lossy_pair<> pair(in_order);
    const model source = large().fill(1), second = large().fill(2);
    model target = large();
    tp::land to(target.destination());
    const auto id = pair.left.publish(source, {1, 2}, 1);
    pull<> t(to, request_for(id), {}, pair.right.end->next_id());
    pair.begin(t);
    ASSERT_TRUE(pair.run(t, [&] { return t.landed_bytes() > 20'000; }));
    const auto before = pair.now;
    pair.left.end.reset();
    std::destroy_at(&pair.left.references);
    std::destroy_at(&pair.left.storage);
    std::construct_at(&pair.left.storage);
    std::construct_at(&pair.left.references, pair.left.storage, [&] { return pair.left.random(); });
    pair.left.start_again(1200);
    pair.left.publish(other ? second : source, id, 1);
    ASSERT_TRUE(pair.run(t, [&] { return t.ended(); }));
    if (other) {
      EXPECT_EQ(code_of(t.outcome()), errc::stale_version);
      continue;
    }
    ASSERT_TRUE(confirmed(t.outcome()));
    EXPECT_EQ(source.image_bytes(), target.image_bytes());
    EXPECT_EQ(pair.left.references.status_of(id)->completed, 1u);
    EXPECT_LT(pair.now - before, 2s) << "no time-out of the request is waited for";
  }
}
TEST(DatagramRecovery, A_gap_is_found_by_three_later_answers_and_not_by_time) {
  lossy_pair<> pair({1200, 0, 0, 2000us, 0us});
  const model source = large().fill(1);
  model target = large();
  tp::land to(target.destination());
  pull<> t(to, request_for(pair.left.publish(source)), {}, pair.right.end->next_id());
  pair.begin(t);
  int chunks = 0;
  pair.spoil = [&](datagram& d, std::size_t n) {
    if (n > 200 && ++chunks == 30) d[0] = 0;  // one answer is lost
  };
  ASSERT_TRUE(pair.run(t, [&] { return t.landed_bytes() > 25 * 1112; }));
  const auto before = pair.now;
  ASSERT_TRUE(pair.run(t, [&] { return t.landed_bytes() > 60 * 1112; }));
  EXPECT_LT(pair.now - before, 20'000us) << "less than any time-out";
  ASSERT_TRUE(pair.run(t, [&] { return t.ended(); }));
  EXPECT_TRUE(t.outcome());
  EXPECT_EQ(pair.left.references.status_of({1, 2})->bytes_sent, t.total_bytes() + 1112)
      << "nothing but the lost chunk is sent twice";
}
TEST(DatagramRecovery, An_image_whose_owner_writes_another_header_lands_in_any_order) {
  lossy_pair<> pair(lossy);
  model source = large().fill(1);
  std::vector<tp::tensor_view> views;
  const auto w = source.bytes_of("w"), b = source.bytes_of("b");
  const std::uint64_t ws[] = {30'000}, bs[] = {1000};
  views.push_back({"w", dtype::f32, ws, w.data()}), views.push_back({"b", dtype::f32, bs, b.data()});
  const std::string note(3000, 'x');
  const tp::metadata_entry metadata[] = {{"note", note}};
  const auto image = tp::dynamic_image::make(std::span<const tp::tensor_view>(views), metadata);
  ASSERT_TRUE(image);
  ASSERT_TRUE(pair.left.references.publish(image->source(), *tp::image_version<tp::xxhash_digest>(image->source()),
                                           true, {1, 2}, 1));
  model target = large();
  tp::land to(target.destination());
  pull<> t(to, request_for({1, 2}), {}, pair.right.end->next_id());
  std::vector<std::uint64_t> hold(4 * 139);
  t.hold(std::as_writable_bytes(std::span(hold)));
  ASSERT_TRUE(succeeded(pair.pull(t)));
  EXPECT_TRUE(source.bytes_of("w") == target.bytes_of("w") && source.bytes_of("b") == target.bytes_of("b"));
}

struct shorter : tp::default_limits {
  static constexpr std::size_t window = 1024;
};
struct small : tp::default_limits {
  static constexpr std::size_t window = 16;
};
TEST(DatagramMemory, Is_as_stated) {
  using no_owner_end = tp::datagram_endpoint<tp::word_framing, tp::default_limits, tp::no_owner, tp::ignore_messages>;
  using owner_end = tp::datagram_endpoint<tp::word_framing, tp::default_limits, owner, tp::ignore_messages>;
  static_assert(sizeof(no_owner_end) <= 512);
  static_assert(sizeof(owner_end) <= 1984, "an owner has no more for a peer over datagrams than over a stream");
  static_assert(sizeof(pull<>) <= 36 * 1024, "a window of 4,096 chunks");
  static_assert(sizeof(tp::datagram_transfer<tp::land, tp::fixed_bytes<48>, tp::image_digest, shorter>) <= 11 * 1024,
                "a window of 1,024 chunks");
  static_assert(sizeof(tp::datagram_transfer<tp::land, tp::fixed_bytes<48>, tp::unverified, small>) <= 2048,
                "for a small machine");
  std::printf("endpoint %zu, of an owner %zu, transfer %zu\n", sizeof(no_owner_end), sizeof(owner_end), sizeof(pull<>));
}

}  // namespace datagram_recovery_test
