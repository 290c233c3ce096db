// An update counts exactly once, whatever is lost after its last byte: what an average makes of repeats, late ones, and
// ones that stopped half-way.
#include "../support/allocation_counter.hpp"
#include "../support/pair.hpp"
#include "feed.hpp"
#include "values.hpp"

#include <tensorpull/consumers/average/weighted_average.hpp>
#include <tensorpull/consumers/tee.hpp>

#include <gtest/gtest.h>

#include <optional>

namespace counted_once_test {

using namespace test;
using tp::partial_updates;
using tp::update_state;
using tp::weighted_average;

/// Three peers' models, a result, buffers and an average over them.
template <class Average>
class AnUpdateCountsOnce : public testing::Test {
 protected:
  using update = typename Average::update;
  static constexpr bool staged = Average::partial == partial_updates::staged;

  AnUpdateCountsOnce() {
    for (std::uint64_t i = 0; i < 3; ++i) fill_values(peers.emplace_back(numeric_model()), i + 1);
  }
  tp::result<void> add(const model& from, tp::update_key key, double weight = 1,
                       std::uint64_t until = ~std::uint64_t{0}) {
    update to(average, weight, key);
    feeder f(to, from, 64);
    const auto done = f.run(until);
    if (done && until == ~std::uint64_t{0}) to.confirmed();
    return done;
  }
  /// The state of a peer's update.
  std::optional<update_state> state(const tp::update_peer& peer) const {
    const tp::update_record* const r = average.find(peer);
    return r != nullptr ? std::optional(r->state) : std::nullopt;
  }
  std::uint64_t half() const { return peers[0].schema().image_bytes * 2 / 3; }

  std::deque<model> peers;
  model result = numeric_model();
  tp::chunk_buffers buffers = *tp::chunk_buffers::make(64);
  Average average = *Average::make(result.destination(), buffers);
};
using modes =
    testing::Types<weighted_average<partial_updates::divide_by_reached>,
                   weighted_average<partial_updates::error_on_partial>, weighted_average<partial_updates::staged>>;
TYPED_TEST_SUITE(AnUpdateCountsOnce, modes);

TEST(WeightedAverageByDefault, Is_of_whole_updates_or_an_error) {
  static_assert(weighted_average<>::partial == partial_updates::error_on_partial);
  model result = numeric_model(), m = numeric_model();
  fill_values(m, 1);
  auto buffers = *tp::chunk_buffers::make(64);
  auto average = *weighted_average<>::make(result.destination(), buffers);
  {
    weighted_average<>::update whole(average, 1, {"whole", 1});
    ASSERT_TRUE(feeder(whole, m, 64).run());
    weighted_average<>::update stops(average, 1, {"stops", 1});
    feeder f(stops, m, 64);
    ASSERT_TRUE(f.run(2500));
  }
  const auto mixed = average.finish();
  ASSERT_EQ(code_of(mixed), errc::partial_update);
  EXPECT_EQ(mixed.error().name.view(), "stops");
  EXPECT_TRUE(result.untouched());
}

TYPED_TEST(AnUpdateCountsOnce, A_repeat_adds_nothing_and_is_taken_to_its_end_also_with_other_bytes_and_another_weight) {
  ASSERT_TRUE(this->add(this->peers[0], {"a", 1}));
  ASSERT_TRUE(this->add(this->peers[0], {"a", 1}));
  ASSERT_TRUE(this->add(this->peers[2], {"a", 1}, 17));
  ASSERT_TRUE(this->add(this->peers[1], {"b", 1}));
  ASSERT_TRUE(this->average.finish());
  EXPECT_EQ(this->average.whole_updates(), 2u);
  EXPECT_EQ(this->average.whole_weight(), 2.0);
  expect_mean(this->result, {{&this->peers[0], 1}, {&this->peers[1], 1}});
  EXPECT_EQ(this->average.find("a")->version, version_of(this->peers[0]));
  EXPECT_EQ(this->buffers.available(), 4u);
}

TYPED_TEST(AnUpdateCountsOnce, The_report_says_who_counts_and_who_was_told) {
  EXPECT_EQ(this->state("a"), std::nullopt) << "nobody has come";
  typename TypeParam::update a(this->average, 2, {"a", 1});
  feeder f(a, this->peers[0], 64);
  ASSERT_TRUE(f.run(100));
  EXPECT_EQ(this->state("a"), update_state::under_way);
  ASSERT_TRUE(f.run());
  EXPECT_EQ(this->state("a"), update_state::counted);
  a.abandon({errc::connection_lost, 0, 0, {}});
  EXPECT_EQ(this->state("a"), update_state::counted) << "it counts, and nobody has heard the confirmation";
  ASSERT_TRUE(this->add(this->peers[0], {"a", 1}, 2));
  EXPECT_EQ(this->state("a"), update_state::told) << "the repeat was confirmed";
  ASSERT_TRUE(this->add(this->peers[1], {tp::recipient_id{7}, 1}, 1, this->peers[1].schema().header_bytes - 10));
  ASSERT_EQ(this->average.updates().size(), 2u);
  const tp::update_record& first = this->average.updates()[0];
  const tp::update_record& second = this->average.updates()[1];
  EXPECT_EQ(first.peer.name().view(), "a");
  EXPECT_EQ(first.weight, 2.0);
  EXPECT_EQ(first.added_bytes, this->peers[0].schema().data_bytes());
  EXPECT_TRUE(first.counts());
  EXPECT_EQ(second.peer.id(), tp::recipient_id{7});
  EXPECT_EQ(second.peer.name().view(), "7");
  EXPECT_EQ(second.state, update_state::stopped);
  EXPECT_EQ(second.added_bytes, 0u);
  EXPECT_FALSE(second.counts());
}

TYPED_TEST(AnUpdateCountsOnce, A_repeat_is_refused_by_name_while_the_first_is_under_way) {
  typename TypeParam::update first(this->average, 1, {"a", 1});
  feeder f(first, this->peers[0], 64);
  ASSERT_TRUE(f.run(this->half()));
  const auto refused = this->add(this->peers[0], {"a", 1});
  ASSERT_EQ(code_of(refused), errc::update_under_way);
  EXPECT_EQ(refused.error().name.view(), "a");
  ASSERT_TRUE(f.run());
  ASSERT_TRUE(this->average.finish());
  expect_mean(this->result, {{&this->peers[0], 1}});
}

TYPED_TEST(AnUpdateCountsOnce, A_repeat_of_one_that_stopped_goes_on_from_there) {
  ASSERT_TRUE(this->add(this->peers[1], {"b", 1}, 3));
  for (const std::uint64_t until : {this->half(), this->half() / 2, this->half() + 99}) {
    ASSERT_TRUE(this->add(this->peers[0], {"a", 1}, 2, until));
    EXPECT_EQ(this->state("a"), update_state::stopped);
  }
  ASSERT_TRUE(this->add(this->peers[0], {"a", 1}, 2));
  EXPECT_EQ(this->state("a"), update_state::told);
  ASSERT_TRUE(this->average.finish());
  EXPECT_EQ(this->average.partial_update_count(), 0u);
  expect_mean(this->result, {{&this->peers[0], 2}, {&this->peers[1], 3}});
  EXPECT_EQ(this->buffers.available(), 4u);
}

TYPED_TEST(AnUpdateCountsOnce, A_repeat_of_one_that_stopped_at_any_byte_in_chunks_of_any_length) {
  const model& m = this->peers[0];
  generator random(4);
  for (int i = 0; i < 300; ++i) {
    this->average.reset();
    const tp::update_key key{"a", this->average.round()};
    for (const std::uint64_t until :
         {random.below(m.schema().image_bytes), random.below(m.schema().image_bytes), ~std::uint64_t{0}}) {
      typename TypeParam::update to(this->average, 1, key);
      feeder f(to, m, 1 + random.below(64), 1 + random.below(64));
      ASSERT_TRUE(f.run(until));
    }
    ASSERT_TRUE(this->average.finish());
    ASSERT_TRUE(this->result.same_tensors(m));
  }
}

TYPED_TEST(AnUpdateCountsOnce,
           Another_update_after_one_that_stopped_fails_by_name_unless_nothing_of_the_first_was_added) {
  ASSERT_TRUE(this->add(this->peers[0], {"a", 1}, 1, this->half()));
  const auto other = this->add(this->peers[1], {"a", 1});
  if (TestFixture::staged) {
    ASSERT_TRUE(other);
    ASSERT_TRUE(this->average.finish());
    EXPECT_TRUE(this->result.same_tensors(this->peers[1]));
    return;
  }
  ASSERT_EQ(code_of(other), errc::update_changed);
  EXPECT_EQ(other.error().name.view(), "a");
  EXPECT_EQ(code_of(this->add(this->peers[0], {"a", 1}, 5)), errc::update_changed)
      << "its first bytes have another weight";
  {  // a version that is no digest proves nothing
    typename TypeParam::update to(this->average, 1, {"a", 1});
    auto same = describe(this->peers[0]);
    same.verifiable = false;
    EXPECT_EQ(code_of(to.begin(same)), errc::update_changed);
  }
  ASSERT_TRUE(this->add(this->peers[0], {"a", 1})) << "the same one can still complete";
  ASSERT_TRUE(this->average.finish());
  EXPECT_TRUE(this->result.same_tensors(this->peers[0]));
}

TYPED_TEST(AnUpdateCountsOnce, One_of_an_earlier_round_is_taken_and_adds_nothing) {
  ASSERT_TRUE(this->add(this->peers[0], {"a", 1}));
  this->average.reset();
  EXPECT_EQ(this->average.round(), 2u);
  EXPECT_TRUE(this->average.updates().empty());
  ASSERT_TRUE(this->add(this->peers[0], {"a", 1})) << "a repeat";
  ASSERT_TRUE(this->add(this->peers[2], {"c", 1})) << "one that was never counted, and whose round is over";
  EXPECT_TRUE(this->average.updates().empty());
  ASSERT_TRUE(this->add(this->peers[1], {"a", 2}));
  ASSERT_TRUE(this->average.finish());
  EXPECT_TRUE(this->result.same_tensors(this->peers[1]));
}

TYPED_TEST(AnUpdateCountsOnce, A_round_that_has_not_begun_no_round_and_nobody_are_refused) {
  for (const tp::update_key& key : {tp::update_key{"a", 2}, tp::update_key{"a", 0},
                                    tp::update_key{.peer = "", .round = 1}, tp::update_key{tp::recipient_id{}, 1}}) {
    const auto refused = this->add(this->peers[0], key);
    ASSERT_EQ(code_of(refused), errc::invalid_argument);
    EXPECT_EQ(refused.error().name.view(), key.peer.name().view());
  }
  EXPECT_TRUE(this->average.updates().empty());
}

TYPED_TEST(AnUpdateCountsOnce, More_peers_than_there_is_room_for_are_refused_by_name) {
  auto small = *TypeParam::make(this->result.destination(), this->buffers, {.max_peers = 2});
  const allocation_watch watch;
  for (int round = 1; round <= 3; ++round) {
    for (const char* peer : {"a", "b", "a", "b"}) {
      typename TypeParam::update to(small, 1, {peer, small.round()});
      ASSERT_TRUE(to.begin(describe(this->peers[0]))) << peer;
    }
    typename TypeParam::update third(small, 1, {"c", small.round()});
    const auto full = third.begin(describe(this->peers[0]));
    ASSERT_EQ(code_of(full), errc::table_full);
    EXPECT_EQ(full.error().name.view(), "c");
    EXPECT_EQ(small.updates().size(), 2u);
    small.reset();
  }
  EXPECT_EQ(code_of(TypeParam::make(this->result.destination(), this->buffers, {.max_peers = 0})),
            errc::invalid_argument);
  EXPECT_EQ(code_of(TypeParam::make(this->result.destination(), this->buffers, {.max_peers = ~std::size_t{0}})),
            errc::out_of_memory);
  EXPECT_EQ(code_of(TypeParam::make(this->result.destination(), this->buffers, {.first_round = 0})),
            errc::invalid_argument);
}

TYPED_TEST(AnUpdateCountsOnce, A_reset_fails_what_is_under_way_with_its_next_bytes) {
  for (const std::uint64_t until : {std::uint64_t{64}, this->half()}) {
    const std::uint64_t round = this->average.round();
    typename TypeParam::update late(this->average, 1, {"late", round});
    feeder f(late, this->peers[0], 64, 10);
    ASSERT_TRUE(f.run(until));
    typename TypeParam::update waits(this->average, 1, {"waits", round});
    ASSERT_TRUE(waits.begin(describe(this->peers[0])));
    this->average.reset();
    typename TypeParam::update next(this->average, 1, {"next", round + 1});
    feeder n(next, this->peers[1], 64);
    ASSERT_TRUE(n.run(500)) << "the new round has the memory";
    const auto stopped = f.run();
    ASSERT_EQ(code_of(stopped), errc::cancelled);
    EXPECT_EQ(stopped.error().name.view(), "late");
    std::array<byte_span, 1> out;
    ASSERT_GT(waits.prepare(0, 10, out).bytes, 0u);
    EXPECT_EQ(code_of(waits.commit(0, out[0])), errc::cancelled);
    ASSERT_TRUE(n.run());
    ASSERT_TRUE(this->average.finish());
    EXPECT_TRUE(this->result.same_tensors(this->peers[1]));
    this->average.reset();
  }
}

TYPED_TEST(AnUpdateCountsOnce, A_repeat_that_is_under_way_when_its_round_ends_goes_on) {
  ASSERT_TRUE(this->add(this->peers[0], {"a", 1}));
  typename TypeParam::update repeat(this->average, 1, {"a", 1});
  feeder f(repeat, this->peers[0], 64, 10);
  ASSERT_TRUE(f.run(this->half()));
  this->average.reset();
  ASSERT_TRUE(f.run());
  repeat.confirmed();
  EXPECT_TRUE(this->average.updates().empty());
  EXPECT_EQ(code_of(this->average.finish()), errc::no_updates);
}

TYPED_TEST(AnUpdateCountsOnce, One_whose_digest_differs_in_the_end_is_not_mended_by_a_repeat) {
  {
    typename TypeParam::update to(this->average, 1, {"mallory", 1});
    feeder f(to, this->peers[0], 64);
    f.stops_before_finish = true;
    ASSERT_TRUE(f.run());
    to.abandon({errc::digest_mismatch, 0, 0, {}});
  }
  const auto repeat = this->add(this->peers[0], {"mallory", 1});
  EXPECT_EQ(repeat.has_value(), TestFixture::staged);
  if (TestFixture::staged) return;
  EXPECT_EQ(code_of(repeat), errc::digest_mismatch);
  EXPECT_EQ(this->state("mallory"), update_state::spoiled);
  EXPECT_EQ(code_of(this->average.finish()), errc::digest_mismatch);
}

/// A transfer whose last word is lost: everything after the chunk that ends the image.
TYPED_TEST(AnUpdateCountsOnce, When_the_confirmation_is_lost_in_a_real_transfer) {
  using transfer_type = tp::transfer<typename TypeParam::update, tp::bytes_up_to<64>, tp::chunk_and_image_digest>;
  for (const int lost : {0, 1, 2}) {
    this->average.reset();
    const tp::update_key key{"a", this->average.round()};
    {
      pair p;
      p.left.publish(this->peers[0]);
      typename TypeParam::update to(this->average, 1, key);
      transfer_type t(to, {.ref = {1, 2}}, {64}, p.right.end.next_id());
      p.right.end.begin_pull();
      tp::no_transfer idle;
      for (int i = 0; i < 100'000 && this->state("a") != update_state::counted; ++i) ASSERT_TRUE(p.pump(idle, t));
      ASSERT_EQ(this->state("a"), update_state::counted);
      EXPECT_FALSE(t.ended());
      for (int i = 0; i < lost - 1; ++i) (void)p.pump(idle, t);
      if (lost > 0) t.fail({errc::connection_lost, 0, 0, {}});
      p.right.end.end_pull(t);
    }
    {  // it comes again, under another reference, from an owner that was started again
      pair p;
      p.left.publish(this->peers[0]);
      typename TypeParam::update to(this->average, 1, key);
      transfer_type t(to, {.ref = {1, 2}}, {64}, p.right.end.next_id());
      ASSERT_TRUE(p.pull(t));
      EXPECT_EQ(p.left.status().completed, 1u) << "the peer hears it";
      EXPECT_EQ(this->state("a"), update_state::told);
    }
    {
      pair p;
      p.left.publish(this->peers[1]);
      typename TypeParam::update to(this->average, 1, {"b", key.round});
      transfer_type t(to, {.ref = {1, 2}}, {64}, p.right.end.next_id());
      ASSERT_TRUE(p.pull(t));
    }
    ASSERT_TRUE(this->average.finish());
    EXPECT_EQ(this->average.whole_updates(), 2u);
    expect_mean(this->result, {{&this->peers[0], 1}, {&this->peers[1], 1}});
  }
}

TEST(WeightedAverage, Is_told_through_a_tee_who_was_told) {
  model from = numeric_model(), kept = numeric_model(), result = numeric_model();
  fill_values(from, 1);
  auto average = *weighted_average<partial_updates::staged>::make(result.destination());
  weighted_average<partial_updates::staged>::update to(average, 1, {"a", 1});
  tp::land land(kept.destination());
  tp::tee both(land, to);
  ASSERT_TRUE(feeder(both, from, 100).run());
  EXPECT_EQ(average.find("a")->state, update_state::counted);
  both.confirmed();
  EXPECT_EQ(average.find("a")->state, update_state::told);
}

TEST(WeightedAverage, Finds_each_of_thousands_of_peers_and_forgets_them_with_the_round) {
  model m;
  m.add("w", dtype::f32, {1}).ready();
  auto buffers = *tp::chunk_buffers::make(256);
  auto average = *weighted_average<>::make(m.destination(), buffers);
  for (int round = 0; round < 2; ++round) {
    for (std::uint64_t k = 1; k <= 4096; ++k) {
      weighted_average<>::update to(average, static_cast<double>(k), {tp::recipient_id{k * 4096}, average.round()});
      ASSERT_TRUE(feeder(to, m, 256).run());
    }
    ASSERT_EQ(average.whole_updates(), 4096u);
    for (std::uint64_t k = 1; k <= 4096; ++k)
      ASSERT_EQ(average.find(tp::recipient_id{k * 4096})->weight, static_cast<double>(k));
    EXPECT_EQ(average.find(tp::recipient_id{5}), nullptr);
    average.reset();
    EXPECT_EQ(average.find(tp::recipient_id{4096}), nullptr);
  }
}

TEST(UpdatePeer, Is_the_same_by_name_and_by_the_names_number) {
  EXPECT_EQ(tp::update_peer("site-1"), tp::update_peer(tp::recipient_named("site-1")));
  EXPECT_NE(tp::update_peer("site-1"), tp::update_peer("site-2"));
  EXPECT_NE(tp::update_peer(std::string(60, 'x') + "1"), tp::update_peer(std::string(60, 'x') + "2"))
      << "errors cut a long name, recognition does not";
  EXPECT_FALSE(tp::update_peer());
  EXPECT_EQ(tp::update_peer(tp::recipient_id{18446744073709551615u}).name().view(), "18446744073709551615");
  for (const update_state s : {update_state::under_way, update_state::stopped, update_state::spoiled,
                               update_state::counted, update_state::told})
    EXPECT_FALSE(to_string(s).empty());
}

}  // namespace counted_once_test
