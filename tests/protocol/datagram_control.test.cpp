// What is said over datagrams besides chunks: descriptions, named tensors, schema pages, confirmations, messages;
// whole, in order, once.
#include "support/lossy_pair.hpp"

#include <tensorpull/core/describe.hpp>

namespace datagram_control_test {

using namespace test;

template <class Consumer = tp::land, class Integrity = tp::image_digest>
using pull = tp::datagram_transfer<Consumer, tp::bytes_up_to<1112>, Integrity>;

model numbered(std::size_t n, const char* prefix = "layers.0.weight") {
  model m;
  for (std::size_t i = 0; i < n; ++i) m.add(prefix + std::to_string(100 + i), dtype::f32, {10});
  return std::move(m.ready());
}
const link_conditions bad_links[] = {
    {1200, 0.1, 0.1, 300us, 100us}, {128, 0.1, 0.1, 300us, 100us}, {1 << 20, 0.1, 0, 300us, 0us}};

TEST(DatagramControl, Messages_arrive_once_and_in_order_however_long_they_are) {
  for (const auto& link : bad_links)
    for (std::uint64_t seed = 1; seed < 6; ++seed) {
      lossy_pair<> pair(link, seed);
      tp::no_transfer idle;
      std::vector<byte_vector> sent;
      for (std::uint32_t i = 0; i < 12; ++i) {
        byte_vector body(i == 7 ? 64 * 1024 : pair.dice.below(3000));
        pair.dice.fill(body);
        const tp::reference ref{{i, 1}, 2, 3};
        ASSERT_TRUE(pair.right.end->send_message(i, {&ref, 1}, body));
        EXPECT_EQ(code_of(pair.right.end->send_message(i, {}, {})), errc::busy);
        ASSERT_TRUE(pair.run(idle, [&] { return pair.right.end->long_frame_sent(); }))
            << link.datagram_bytes << " " << i << " " << pair.up.sent;
        sent.push_back(std::move(body));
      }
      ASSERT_EQ(pair.left.box.got.size(), sent.size()) << link.datagram_bytes << " " << seed;
      for (std::uint32_t i = 0; i < sent.size(); ++i) {
        EXPECT_EQ(pair.left.box.got[i].kind, i);
        EXPECT_EQ(pair.left.box.got[i].body, sent[i]);
        ASSERT_EQ(pair.left.box.got[i].references.size(), 1u);
        EXPECT_EQ(pair.left.box.got[i].references[0].id.high, i);
      }
      EXPECT_EQ(pair.left.pool.available(), 4u) << "every buffer comes back";
      EXPECT_EQ(pair.right.pool.available(), 4u);
      EXPECT_EQ(pair.not_understood, 0u) << to_string(pair.last_error);
    }
}
TEST(DatagramControl, A_message_waits_for_a_program_that_is_not_ready) {
  for (const auto& link : bad_links) {
    lossy_pair<> pair(link);
    tp::no_transfer idle;
    pair.left.box.takes = false;
    byte_vector body(5000);
    ASSERT_TRUE(pair.right.end->send_message(1, {}, body));
    EXPECT_FALSE(pair.run(idle, [&] { return pair.right.end->long_frame_sent(); }, 20s));
    EXPECT_EQ(pair.left.box.count, 0u);
    pair.left.box.takes = true;
    EXPECT_TRUE(pair.run(idle, [&] { return pair.right.end->long_frame_sent(); }, 20s));
    EXPECT_EQ(pair.left.box.count, 1u);
  }
}
TEST(DatagramControl, A_stranger_gets_no_buffer) {
  lossy_pair<> pair({});
  tp::no_transfer idle;
  pair.left.end->doubt();
  byte_vector body(5000);
  ASSERT_TRUE(pair.right.end->send_message(1, {}, body));
  EXPECT_FALSE(pair.run(idle, [&] { return pair.right.end->long_frame_sent(); }, 2s));
  EXPECT_EQ(pair.left.pool.available(), 4u);
  EXPECT_EQ(pair.left.end->heard(), 0u);
  pair.left.end->trust();
  EXPECT_TRUE(pair.run(idle, [&] { return pair.right.end->long_frame_sent(); }, 20s));
  EXPECT_EQ(pair.left.box.count, 1u);
}
TEST(DatagramControl, A_message_reaches_an_end_that_was_started_again_meanwhile) {
  lossy_pair<> pair(in_order);
  tp::no_transfer idle;
  byte_vector body(40'000);
  ASSERT_TRUE(pair.right.end->send_message(1, {}, body));
  EXPECT_FALSE(pair.run(idle, [&] { return pair.right.end->long_frame_sent(); }, 1000us));
  pair.left.start_again(1200);
  EXPECT_TRUE(pair.run(idle, [&] { return pair.right.end->long_frame_sent(); }));
  EXPECT_EQ(pair.left.box.count, 1u);
}

TEST(DatagramControl, An_answer_in_pieces_to_somebody_who_is_gone_is_in_nobodys_way) {
  lossy_pair<> pair({128, 0, 0, 300us, 0us});
  const model source = numbered(3).fill(1);
  model target = numbered(3);
  const auto id = pair.left.publish(source);
  tp::land to(target.destination());
  pull<> gone(to, request_for(id), {}, pair.right.end->next_id());
  pair.right.end->begin_pull();
  EXPECT_FALSE(pair.run(gone, [] { return false; }, 500us));  // the description is on its way
  ASSERT_FALSE(pair.left.end->long_frame_sent());
  pair.down.on_its_way.clear();
  pair.right.start_again(128);
  pull<> t(to, request_for(id, 10), {}, pair.right.end->next_id());
  const auto before = pair.now;
  ASSERT_TRUE(succeeded(pair.pull(t)));
  EXPECT_LT(pair.now - before, 500ms) << "it asks once";
}

TEST(DatagramControl, Named_tensors_whose_names_do_not_fit_one_datagram) {
  for (const auto& link : bad_links)
    for (const std::size_t count : {3u, 40u, 100u}) {
      lossy_pair<> pair(link);
      const model source = numbered(128).fill(1);
      std::vector<std::string> names;
      std::vector<std::string_view> views;
      model target;
      for (std::size_t i = 0; i < count; ++i) names.push_back("layers.0.weight" + std::to_string(100 + i));
      for (const auto& n : names) views.push_back(n), target.add(n, dtype::f32, {10});
      target.ready();
      const auto id = pair.left.publish(source, {1, 2}, 1);
      tp::land to(target.destination());
      auto request = request_for(id);
      request.subset = views;
      pull<> t(to, request, {}, pair.right.end->next_id());
      ASSERT_TRUE(confirmed(pair.pull(t))) << " " << count << " " << link.datagram_bytes;
      for (const auto& n : names)
        ASSERT_TRUE(target.bytes_of(n) == source.bytes_of(n))
            << n << " " << count << " " << link.datagram_bytes << " landed " << t.landed_bytes() << " of "
            << t.total_bytes();
      EXPECT_EQ(pair.left.references.status_of(id)->completed, 1u);
    }
}
TEST(DatagramControl, More_names_than_one_request_has_arrive) {
  for (const auto& link : bad_links)
    for (const std::size_t every : {1u, 2u}) {
      lossy_pair<> pair(link);
      const model source = numbered(400).fill(1);
      model target;
      for (std::size_t i = 0; i < 200; ++i) target.add(source.name(i * every), dtype::f32, {10});
      target.ready();
      tp::land to(target.destination());
      auto request = request_for(pair.left.publish(source, {1, 2}, 1));
      request.part = true;
      pull<> t(to, request, {}, pair.right.end->next_id());
      ASSERT_TRUE(confirmed(pair.pull(t)));
      for (std::size_t i = 0; i < 200; ++i)
        ASSERT_EQ(target.bytes_of(target.name(i)), source.bytes_of(target.name(i))) << target.name(i);
      EXPECT_EQ(pair.left.references.status_of({1, 2})->completed, 1u);
      EXPECT_EQ(pair.right.pool.available(), 4u);
    }
}
TEST(DatagramControl, L3_the_first_tensor_that_differs_is_named_over_any_length_of_datagrams) {
  for (const auto& link : bad_links) {
    lossy_pair<> pair(link);
    const model source = numbered(60).fill(1);
    model target;
    for (std::size_t i = 0; i < 60; ++i)
      target.add("layers.0.weight" + std::to_string(100 + i), i == 41 ? dtype::i32 : dtype::f32, {10});
    target.ready();
    tp::land to(target.destination());
    pull<> t(to, request_for(pair.left.publish(source)), {}, pair.right.end->next_id());
    ASSERT_EQ(code_of(pair.pull(t)), errc::schema_mismatch);
    EXPECT_EQ(t.outcome().error().name.view(), "layers.0.weight141");
    EXPECT_TRUE(target.untouched());
  }
}
TEST(DatagramControl, R6_unknown_references_and_other_versions_are_errors_at_once) {
  for (const auto& link : bad_links) {
    const model published = numbered(3);
    lossy_pair<> pair(link);
    model target = numbered(3);
    tp::land to(target.destination());
    pull<> t(to, request_for({7, 7}), {}, pair.right.end->next_id());
    EXPECT_EQ(code_of(pair.pull(t)), errc::unknown_reference);
    pair.right.end->end_pull(t);
    auto request = request_for(pair.left.publish(published));
    request.version = 12345;
    tp::land to2(target.destination());
    pull<> second(to2, request, {}, pair.right.end->next_id());
    EXPECT_EQ(code_of(pair.pull(second)), errc::stale_version);
  }
}

TEST(DatagramControl, Garbage_changes_nothing) {
  lossy_pair<> pair(in_order);
  const model source = numbered(60).fill(1);
  model target = numbered(60);
  const auto id = pair.left.publish(source, {1, 2}, 1);
  tp::land to(target.destination());
  pull<> t(to, request_for(id), {}, pair.right.end->next_id());
  t.fits(1200);
  tp::no_transfer idle;
  pair.spoil = [&](datagram&, std::size_t) {
    datagram noise(1 + pair.dice.below(150));
    pair.dice.fill(std::as_writable_bytes(std::span(noise)));
    if (pair.dice.chance(0.5))
      noise[0] = (noise.size() - 1) << 32, noise[1 % noise.size()] = tp::detail::payload_prefix::root_pointer;
    (void)pair.left.end->received(idle, std::as_bytes(std::span(noise)), pair.now);
    (void)pair.right.end->received(t, std::as_bytes(std::span(noise)).first(pair.dice.below(noise.size() * 8)),
                                   pair.now);
  };
  ASSERT_TRUE(succeeded(pair.pull(t)));
  EXPECT_EQ(source.image_bytes(), target.image_bytes());
}

}  // namespace datagram_control_test
