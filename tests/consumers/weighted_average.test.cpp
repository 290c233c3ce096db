// Averages of every dtype against double precision; carried elements, shared buffers, updates that stop, spoiled
// rounds.
#include "../support/allocation_counter.hpp"
#include "feed.hpp"
#include "values.hpp"

#include <tensorpull/consumers/average/weighted_average.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <memory>
#include <optional>

namespace weighted_average_test {

using namespace test;
using tp::chunk_buffers;
using tp::partial_updates;
using tp::weighted_average;
using staged_average = weighted_average<partial_updates::staged>;
using strict_average = weighted_average<partial_updates::error_on_partial>;
using reached_average = weighted_average<partial_updates::divide_by_reached>;

/// A result model, buffers and an average over them.
template <class Average = weighted_average<>>
struct round_of {
  model result;
  chunk_buffers buffers;
  Average average;

  explicit round_of(std::uint64_t chunk_bytes = 4096, tp::average_options options = {}, std::size_t shift = 0,
                    std::uint64_t extent = 37)
      : result(numeric_model(shift, extent)), buffers(*chunk_buffers::make(chunk_bytes)),
        average(*Average::make(result.destination(), buffers, options)) {}

  /// An update of a peer of its own.
  tp::result<void> add(const model& from, double weight, std::uint64_t chunk_bytes = 4096) {
    return add(from, weight, chunk_bytes, tp::recipient_id{++peers});
  }
  tp::result<void> add(const model& from, double weight, std::uint64_t chunk_bytes, const tp::update_peer& peer) {
    typename Average::update update(average, weight, {peer, average.round()});
    return feeder(update, from, chunk_bytes).run();
  }
  std::uint64_t added_bytes(const tp::update_peer& peer) const {
    const tp::update_record* const r = average.find(peer);
    return r != nullptr ? r->added_bytes : 0;
  }
  std::uint64_t peers = 0;
};

struct clients {
  std::deque<model> models;
  std::vector<contribution> all;
  explicit clients(std::size_t n, std::size_t shift = 0, std::uint64_t extent = 37) {
    for (std::size_t i = 0; i < n; ++i) {
      fill_values(models.emplace_back(numeric_model(shift, extent)), 100 + i);
      all.push_back({&models.back(), 1.0 + static_cast<double>(i * 7 % 5)});
    }
  }
};

TEST(WeightedAverage, Equals_the_mean_in_double_precision_for_every_dtype) {
  for (const std::size_t shift : {0u, 1u}) {
    clients c(7, shift);
    round_of r(4096, {}, shift);
    for (const auto& k : c.all) ASSERT_TRUE(r.add(*k.from, k.weight));
    ASSERT_TRUE(r.average.finish());
    expect_mean(r.result, c.all);
    EXPECT_TRUE(r.result.guards_intact());
    EXPECT_EQ(r.average.whole_updates(), 7u);
    EXPECT_EQ(r.buffers.available(), 4u);
  }
}

TEST(WeightedAverage, Of_one_update_is_that_update) {
  clients c(1);
  for (const double weight : {1.0, 0.1, 37.0}) {
    round_of r;
    ASSERT_TRUE(r.add(c.models[0], weight));
    ASSERT_TRUE(r.average.finish());
    expect_mean(r.result, c.all);
    if (weight == 1.0) {
      EXPECT_TRUE(r.result.same_tensors(c.models[0]));
    }
  }
}

TEST(WeightedAverage, Carries_elements_that_a_chunk_cuts_and_the_result_does_not_depend_on_the_cuts) {
  clients c(3);
  round_of whole(1 << 20);
  for (const auto& k : c.all) ASSERT_TRUE(whole.add(*k.from, k.weight, 1 << 20));
  ASSERT_TRUE(whole.average.finish());
  for (const std::uint64_t chunk : {1u, 3u, 7u, 13u, 64u, 100u, 1001u})
    for (const std::uint64_t piece : {1u, 5u, 4096u}) {
      round_of r(chunk);
      for (const auto& k : c.all) {
        weighted_average<>::update update(r.average, k.weight, {tp::recipient_id{++r.peers}, 1});
        ASSERT_TRUE(feeder(update, *k.from, chunk, piece).run());
      }
      ASSERT_TRUE(r.average.finish());
      EXPECT_TRUE(r.result.same_tensors(whole.result)) << chunk << " in pieces of " << piece;
    }
}

TEST(WeightedAverage, Mixes_a_hundred_interleaved_updates_in_four_buffers) {
  clients c(100);
  round_of r(61);
  std::deque<weighted_average<>::update> updates;
  std::deque<feeder<weighted_average<>::update>> feeders;
  for (const auto& k : c.all)
    feeders.emplace_back(updates.emplace_back(r.average, k.weight, tp::update_key{tp::recipient_id{++r.peers}, 1}),
                         *k.from, 61, 17);
  generator random(5);
  std::size_t waited = 0, left = feeders.size();
  std::vector<bool> done(feeders.size());
  const allocation_watch watch;
  while (left > 0) {
    const std::size_t i = static_cast<std::size_t>(random.below(feeders.size()));
    if (done[i]) continue;
    const step s = feeders[i].advance();
    ASSERT_NE(s, step::failed);
    waited += s == step::waiting;
    if (s == step::done) done[i] = true, --left;
  }
  EXPECT_GT(waited, 100u);
  ASSERT_TRUE(r.average.finish());
  EXPECT_EQ(watch.count(), 0u) << "allocations while updates were added";
  EXPECT_EQ(r.buffers.available(), 4u);
  expect_mean(r.result, c.all);
}

TEST(WeightedAverage, Needs_the_sums_and_the_buffers_and_nothing_else) {
  model result;
  result.add("w", dtype::bf16, {1000, 1000}).ready();
  const allocation_watch watch;
  auto buffers = chunk_buffers::make(65536);
  ASSERT_TRUE(buffers);
  EXPECT_EQ(watch.count(), 1u);
  EXPECT_LE(watch.largest(), 4u * (65536 + 64) + 128);
  auto average = weighted_average<>::make(result.destination(), *buffers);
  ASSERT_TRUE(average);
  EXPECT_LE(watch.count(), 4u);
  EXPECT_LE(average->allocated_bytes(), 4u * 1000 * 1000 + 8 + 64 * 16 + 4096 * 112 + 512);
}

TEST(WeightedAverage, Divides_each_element_by_the_weight_that_reached_it) {
  clients c(6);
  round_of<reached_average> r(50);
  generator random(9);
  ASSERT_TRUE(r.add(*c.all[0].from, c.all[0].weight, 50));
  for (std::size_t i = 1; i < c.all.size(); ++i) {
    const tp::update_peer peer = tp::recipient_id{100 + i};
    reached_average::update update(r.average, c.all[i].weight, {peer, 1});
    feeder f(update, *c.all[i].from, 50, 20);
    ASSERT_TRUE(f.run(random.below(c.models[i].schema().image_bytes)));
    update.abandon({errc::connection_lost, 0, f.at(), {}});
    c.all[i].bytes = r.added_bytes(peer);
  }
  EXPECT_EQ(r.buffers.available(), 4u);
  ASSERT_TRUE(r.average.finish());
  expect_mean(r.result, c.all);
}

TEST(WeightedAverage, Counts_an_update_that_stops_at_any_byte) {
  clients c(2, 0, 3);
  const std::uint64_t image = c.models[1].schema().image_bytes;
  for (std::uint64_t k = c.models[1].schema().header_bytes - 2; k <= image; ++k) {
    round_of<reached_average> r(7, {}, 0, 3);
    ASSERT_TRUE(r.add(*c.all[0].from, 2, 7));
    {
      reached_average::update update(r.average, 3, {"stops", 1});
      feeder f(update, *c.all[1].from, 7, 1);
      f.stops_before_finish = true;
      ASSERT_TRUE(f.run(k));
      update.abandon({errc::timed_out, 0, k, {}});
      c.all[1].bytes = r.added_bytes("stops");
      EXPECT_LE(c.all[1].bytes, k < f.data_start() ? 0 : k - f.data_start());
    }
    c.all[0].weight = 2, c.all[1].weight = 3;
    ASSERT_TRUE(r.average.finish());
    expect_mean(r.result, c.all);
  }
}

TEST(WeightedAverage, As_many_places_to_stop_as_there_is_room_for) {
  clients c(1);
  round_of<reached_average> r(1, {.max_partial_updates = 3});
  ASSERT_TRUE(r.add(c.models[0], 1, 1));
  const auto stop_at = [&](std::uint64_t k, const tp::update_peer& peer) {
    reached_average::update update(r.average, 1, {peer, 1});
    feeder f(update, c.models[0], 1);
    ASSERT_TRUE(f.run(f.data_start() + k));
  };
  std::uint64_t peer = 100;
  for (const std::uint64_t k : {80u, 16u, 40u, 16u, 80u, 40u, 42u})
    stop_at(k, tp::recipient_id{++peer});  // 42: in the middle of an element, so at 40
  ASSERT_TRUE(r.average.finish());
  EXPECT_EQ(r.average.partial_update_count(), 7u);
  expect_mean(r.result, c.all);
  stop_at(3, "stopped before anything was added");
  ASSERT_TRUE(r.average.finish());
  stop_at(48, "one too many");
  const auto error = r.average.finish();
  ASSERT_EQ(code_of(error), errc::too_many_partial_updates);
  EXPECT_EQ(error.error().name.view(), "one too many");
}

TEST(WeightedAverage, Partial_updates_can_be_an_error) {
  clients c(2);
  round_of<strict_average> r(32);
  ASSERT_TRUE(r.add(c.models[0], 1, 32));
  {
    strict_average::update untouched(r.average, 1, {"came with the header only", 1});
    feeder f(untouched, c.models[1], 32);
    ASSERT_TRUE(f.run(64));
  }
  ASSERT_TRUE(r.average.finish());
  EXPECT_TRUE(r.result.same_tensors(c.models[0]));
  {
    strict_average::update update(r.average, 1, {"10.0.0.7:8002", 1});
    feeder f(update, c.models[1], 32);
    ASSERT_TRUE(f.run(f.data_start() + 100));
  }
  const auto error = r.average.finish();
  ASSERT_EQ(code_of(error), errc::partial_update);
  EXPECT_EQ(error.error().name.view(), "10.0.0.7:8002");
  EXPECT_GT(error.error().at, 0u);
  r.average.reset();
  ASSERT_TRUE(r.add(c.models[1], 1, 32));
  ASSERT_TRUE(r.average.finish());
  EXPECT_TRUE(r.result.same_tensors(c.models[1]));
}

TEST(WeightedAverage, Staged_updates_count_whole_or_not_at_all) {
  clients c(5);
  round_of<staged_average> r;
  std::deque<staged_average::update> updates;
  std::deque<feeder<staged_average::update>> feeders;
  for (const auto& k : c.all)
    feeders.emplace_back(updates.emplace_back(r.average, k.weight, tp::update_key{tp::recipient_id{++r.peers}, 1}),
                         *k.from, 13);
  ASSERT_TRUE(feeders[0].run(1500));
  EXPECT_EQ(feeders[1].advance(), step::waiting);
  updates[0].abandon({errc::digest_mismatch, 0, 0, {}});
  for (std::size_t i = 1; i < feeders.size(); ++i) {
    ASSERT_TRUE(feeders[i].run(100));
    if (i + 1 < feeders.size()) {
      EXPECT_EQ(feeders[i + 1].advance(), step::waiting);
    }
    ASSERT_TRUE(feeders[i].run());
  }
  c.all.erase(c.all.begin());
  ASSERT_TRUE(r.average.finish());
  EXPECT_EQ(r.average.whole_updates(), 4u);
  expect_mean(r.result, c.all);
  ASSERT_TRUE(staged_average::make(r.result.destination())) << "no buffers are needed";
}

TEST(WeightedAverage, A_digest_that_differs_in_the_end_spoils_the_round_and_names_the_peer) {
  clients c(2);
  round_of r;
  ASSERT_TRUE(r.add(c.models[0], 1));
  {
    weighted_average<>::update update(r.average, 1, {"mallory", 1});
    feeder f(update, c.models[1], 64);
    f.stops_before_finish = true;
    ASSERT_TRUE(f.run());
    update.abandon({errc::digest_mismatch, 0, f.at(), {}});
  }
  ASSERT_TRUE(r.add(c.models[0], 1)) << "others go on";
  const auto error = r.average.finish();
  ASSERT_EQ(code_of(error), errc::digest_mismatch);
  EXPECT_EQ(error.error().name.view(), "mallory");
  EXPECT_TRUE(r.result.untouched());
}

TEST(WeightedAverage, Says_which_tensor_no_update_reached_and_writes_nothing) {
  clients c(1);
  round_of<reached_average> r(1);
  const auto none = r.average.finish();
  ASSERT_EQ(code_of(none), errc::no_updates);
  EXPECT_EQ(none.error().name.view(), "tensor.U64");
  {
    reached_average::update update(r.average, 1, {"a", 1});
    feeder f(update, c.models[0], 1);
    ASSERT_TRUE(f.run(f.data_start() + 37 * 8 * 2 + 1));
  }
  const auto some = r.average.finish();
  ASSERT_EQ(code_of(some), errc::no_updates);
  EXPECT_EQ(some.error().name.view(), "tensor.F64");
  EXPECT_EQ(some.error().at, 37u * 8 * 2);
  EXPECT_TRUE(r.result.untouched());
}

TEST(WeightedAverage, Refuses_to_finish_while_an_update_is_half_way) {
  clients c(2);
  round_of r(16);
  ASSERT_TRUE(r.add(c.models[0], 1, 16));
  weighted_average<>::update update(r.average, 1, {"a", 1});
  feeder f(update, c.models[1], 16);
  ASSERT_TRUE(f.run(f.data_start()));
  EXPECT_TRUE(r.average.finish()) << "it has added nothing yet";
  ASSERT_TRUE(f.run(f.data_start() + 200));
  const auto error = r.average.finish();
  EXPECT_EQ(code_of(error), errc::partial_update);
  ASSERT_TRUE(f.run());
  EXPECT_TRUE(r.average.finish());
  expect_mean(r.result, {{&c.models[0], 1}, {&c.models[1], 1}});
}

TEST(WeightedAverage, A_reset_ends_what_is_under_way) {
  clients c(2);
  round_of r(16);
  weighted_average<>::update late(r.average, 1, {"late", 1});
  feeder f(late, c.models[0], 16);
  ASSERT_TRUE(f.run(f.data_start() + 300));
  const allocation_watch watch;
  r.average.reset();
  EXPECT_EQ(watch.count(), 0u);
  const auto stopped = f.run();
  EXPECT_EQ(code_of(stopped), errc::cancelled);
  ASSERT_TRUE(r.add(c.models[1], 5, 16));
  ASSERT_TRUE(r.average.finish());
  expect_mean(r.result, {{&c.models[1], 5}});
  EXPECT_EQ(r.average.partial_update_count(), 0u);
  EXPECT_EQ(r.buffers.available(), 4u);
}

TEST(WeightedAverage, A_buffer_comes_back_however_an_update_ends) {
  clients c(1);
  round_of r(64);
  {
    weighted_average<>::update a(r.average, 1, {"a", 1}), b(r.average, 1, {"b", 1}), d(r.average, 1, {"d", 1}),
        e(r.average, 1, {"e", 1}), waits(r.average, 1, {"waits", 1});
    feeder fa(a, c.models[0], 64, 10), fb(b, c.models[0], 64, 10), fd(d, c.models[0], 64, 10),
        fe(e, c.models[0], 64, 10), fw(waits, c.models[0], 64, 10);
    EXPECT_EQ(fa.advance(), step::moved);
    EXPECT_EQ(fb.advance(), step::moved);
    EXPECT_EQ(fd.advance(), step::moved);
    EXPECT_EQ(fe.advance(), step::moved);
    EXPECT_EQ(r.buffers.available(), 0u);
    EXPECT_EQ(fw.advance(), step::waiting);
    b.abandon({errc::connection_lost, 0, 0, {}});
    EXPECT_EQ(r.buffers.available(), 1u);
    EXPECT_EQ(fw.advance(), step::moved);
  }
  EXPECT_EQ(r.buffers.available(), 4u);
}

TEST(WeightedAverage, Refuses_dtypes_that_have_no_mean) {
  auto buffers = *chunk_buffers::make(64);
  for (const dtype t : {dtype::boolean, dtype::f4, dtype::f6_e2m3, dtype::f6_e3m2, dtype::f8_e8m0}) {
    model m;
    m.add("fine", dtype::f32, {4}).add("not.this", t, {8}).ready();
    const auto made = weighted_average<>::make(m.destination(), buffers);
    ASSERT_EQ(code_of(made), errc::unsupported_dtype) << to_string(t);
    EXPECT_EQ(made.error().name.view(), "not.this");
  }
}

TEST(WeightedAverage, Refuses_weights_and_models_that_do_not_fit_before_anything_arrives) {
  clients c(1);
  round_of r;
  for (const double weight : {0.0, -1.0, HUGE_VAL, -HUGE_VAL, std::nan(""), 2e-38, 1e38, 1e-60, 1e60}) {
    const auto refused = r.add(c.models[0], weight, 4096, "peer");
    ASSERT_EQ(code_of(refused), errc::invalid_argument) << weight;
    EXPECT_EQ(refused.error().name.view(), "peer");
  }
  weighted_average<>::update update(r.average, 1, {"a", 1});
  auto other = describe(c.models[0]);
  ++other.fingerprint;
  EXPECT_EQ(code_of(update.begin(other)), errc::schema_mismatch);
  for (const std::uint64_t change : {1u, 8u, 4096u}) {
    auto longer = describe(c.models[0]);
    longer.image_bytes += change;
    EXPECT_EQ(code_of(update.begin(longer)), errc::schema_mismatch);
    auto shorter = describe(c.models[0]);
    shorter.data_start += change;
    EXPECT_EQ(code_of(update.begin(shorter)), errc::schema_mismatch);
  }
}

TEST(WeightedAverage, A_chunk_longer_than_a_buffer_fails_its_transfer) {
  clients c(1);
  round_of r(100);
  const auto refused = r.add(c.models[0], 1, 5000);
  ASSERT_EQ(code_of(refused), errc::does_not_fit);
  EXPECT_EQ(refused.error().at, 100u);
  EXPECT_EQ(r.buffers.available(), 4u);
}

TEST(WeightedAverage, Integers_are_rounded_to_nearest_even_and_saturate) {
  const auto written = []<class T>(double v, T) {
    T out;
    tp::detail::integer<T>::write(reinterpret_cast<std::byte*>(&out), v);
    return out;
  };
  EXPECT_EQ(written(2.5, std::int32_t{}), 2);
  EXPECT_EQ(written(3.5, std::int32_t{}), 4);
  EXPECT_EQ(written(-2.5, std::int8_t{}), -2);
  EXPECT_EQ(written(0.5, std::uint8_t{}), 0);
  EXPECT_EQ(written(255.4, std::uint8_t{}), 255);
  EXPECT_EQ(written(255.6, std::uint8_t{}), 255);
  EXPECT_EQ(written(-0.6, std::uint8_t{}), 0);
  EXPECT_EQ(written(1e30, std::int64_t{}), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(written(-1e30, std::int64_t{}), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(written(-0x1p63, std::int64_t{}), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(written(0x1p64, std::uint64_t{}), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(written(0x1.fffffffffffffp63, std::uint64_t{}), 0xfffffffffffff800u);
}

TEST(WeightedAverage, May_be_moved_while_updates_are_under_way) {
  clients c(1);
  round_of r(16);
  weighted_average<>::update update(r.average, 1, {"a", 1});
  feeder f(update, c.models[0], 16);
  ASSERT_TRUE(f.run(f.data_start() + 99));
  auto moved = std::move(r.average);
  ASSERT_TRUE(f.run());
  ASSERT_TRUE(moved.finish());
  EXPECT_TRUE(r.result.same_tensors(c.models[0]));
}

TEST(WeightedAverage, Of_a_model_without_elements_needs_an_update) {
  model m;
  m.add("empty", dtype::f32, {0}).ready();
  auto buffers = *chunk_buffers::make(64);
  auto average = *weighted_average<>::make(m.destination(), buffers);
  EXPECT_EQ(code_of(average.finish()), errc::no_updates);
  weighted_average<>::update update(average, 1, {"a", 1});
  ASSERT_TRUE(feeder(update, m, 64).run());
  EXPECT_TRUE(average.finish());
}

TEST(WeightedAverage, Of_a_model_that_is_too_large_is_an_error_value) {
  auto buffers = *chunk_buffers::make(64);
  alignas(8) std::array<std::byte, 8> never_written{};
  constexpr std::uint64_t most = std::numeric_limits<std::size_t>::max();
  for (const std::uint64_t extent : {std::min(std::uint64_t{1} << 50, most >> 5), most >> 5, most >> 4}) {
    const tp::mutable_tensor_view huge[] = {{"huge", dtype::u8, {&extent, 1}, never_written.data(), {}}};
    auto image = tp::dynamic_image::make(huge);
    ASSERT_TRUE(image);
    EXPECT_EQ(code_of(weighted_average<>::make(image->destination(), buffers)), errc::out_of_memory);
    EXPECT_EQ(code_of(staged_average::make(image->destination())), errc::out_of_memory);
  }
  model m = numeric_model();
  EXPECT_EQ(code_of(weighted_average<>::make(m.destination(), buffers, {.max_partial_updates = ~std::size_t{0}})),
            errc::out_of_memory);
}

TEST(ChunkBuffers, Refuses_nothing_and_too_much) {
  EXPECT_EQ(code_of(chunk_buffers::make(0)), errc::invalid_argument);
  EXPECT_EQ(code_of(chunk_buffers::make(64, 0)), errc::invalid_argument);
  EXPECT_EQ(code_of(chunk_buffers::make(~std::uint64_t{0})), errc::out_of_memory);
  EXPECT_EQ(code_of(chunk_buffers::make(std::uint64_t{1} << 40, ~std::size_t{0} / 4)), errc::out_of_memory);
}

}  // namespace weighted_average_test
