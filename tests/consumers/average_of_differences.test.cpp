// Averages with the old model at hand: what no update has changed keeps its bits, small steps keep their digits, and
// everything else about an average stays as it is.
#include "../support/allocation_counter.hpp"
#include "feed.hpp"
#include "values.hpp"

#include <tensorpull/consumers/average/weighted_average.hpp>

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <deque>
#include <limits>
#include <optional>

namespace average_of_differences_test {

using namespace test;
using tp::chunk_buffers;
using tp::partial_updates;
using tp::weighted_average;
using staged_average = weighted_average<partial_updates::staged>;
using reached_average = weighted_average<partial_updates::divide_by_reached>;

struct part {
  const model* from;
  double weight;
};

template <class Average>
tp::result<void> add(Average& to, const model& from, double weight, const tp::update_peer& peer,
                     std::uint64_t chunk_bytes = 4096) {
  typename Average::update update(to, weight, {peer, to.round()});
  return feeder(update, from, chunk_bytes).run();
}

/// The mean of all parts, in `result`.
template <class Average = weighted_average<>>
void mean_of(model& result, const model* base, const std::vector<part>& parts, std::uint64_t chunk_bytes = 4096,
             bool refuse_no_numbers = true) {
  auto buffers = *chunk_buffers::make(chunk_bytes);
  auto average = Average::make(
      result.destination(), buffers,
      {.base = base != nullptr ? base->source() : tp::source_view{}, .refuse_no_numbers = refuse_no_numbers});
  ASSERT_TRUE(average);
  std::uint64_t peer = 0;
  for (const part& p : parts) ASSERT_TRUE(add(*average, *p.from, p.weight, tp::recipient_id{++peer}, chunk_bytes));
  ASSERT_TRUE(average->finish());
  EXPECT_TRUE(result.guards_intact());
}

/// Weights as they come: whole numbers of samples, and any others.
double any_weight(generator& g) {
  const auto whole = static_cast<double>(50 + g.below(1950));
  return g.below(2) == 0 ? whole : std::ldexp(whole * 1.1, static_cast<int>(g.below(20)) - 10);
}

/// Updates that have moved some elements; for_each_element counts them in the same order in each.
struct frozen_in_part {
  model base = numeric_model(0, 101);
  std::deque<model> updates;
  std::vector<bool> moved;
  std::vector<part> parts;

  /// `bytes`: the base has any bytes, so all that is no number too; otherwise moderate values.
  frozen_in_part(std::size_t count, std::uint64_t seed, bool bytes) {
    generator g(seed);
    if (bytes) base.fill(seed);
    else fill_values(base, seed);
    for_each_element(base, [&](dtype, std::byte*, std::uint64_t) { moved.push_back(g.below(4) == 0); });
    for (std::size_t k = 0; k < count; ++k) {
      model& u = updates.emplace_back(numeric_model(0, 101));
      fill_values(u, seed * 1000 + k);
      std::vector<const std::byte*> old;
      for_each_element(base, [&](dtype, std::byte* at, std::uint64_t) { old.push_back(at); });
      std::size_t i = 0;
      for_each_element(u, [&](dtype type, std::byte* at, std::uint64_t) {
        if (!moved[i]) std::memcpy(at, old[i], tp::bits(type) / 8);
        ++i;
      });
      parts.push_back({&u, any_weight(g)});
    }
  }
  /// Frozen elements that have other bits in `result`, of one dtype or of all.
  std::size_t lost(model& result, std::optional<dtype> of = {}) {
    std::vector<const std::byte*> old;
    for_each_element(base, [&](dtype, std::byte* at, std::uint64_t) { old.push_back(at); });
    std::size_t i = 0, others = 0;
    for_each_element(result, [&](dtype type, std::byte* at, std::uint64_t) {
      others += !moved[i] && (!of || *of == type) && std::memcmp(at, old[i], tp::bits(type) / 8) != 0;
      ++i;
    });
    return others;
  }
};

template <class Average>
class AverageOfDifferences : public testing::Test {};
using modes = testing::Types<weighted_average<>, reached_average, staged_average>;
TYPED_TEST_SUITE(AverageOfDifferences, modes);

TYPED_TEST(AverageOfDifferences, Keeps_the_bits_of_what_no_update_changed) {
  for (const std::size_t count : {1u, 2u, 10u, 100u})
    for (std::uint64_t seed = 1; seed <= 5; ++seed)
      for (const bool bytes : {false, true}) {
        frozen_in_part all(count, seed, bytes);
        model result = numeric_model(0, 101);
        mean_of<TypeParam>(result, &all.base, all.parts);
        EXPECT_EQ(all.lost(result), 0u) << count << " updates, seed " << seed << ", any bytes " << bytes;
      }
}

TEST(AverageOfValues, Loses_the_bits_of_what_no_update_changed) {
  frozen_in_part all(10, 1, false);
  model result = numeric_model(0, 101);
  mean_of(result, nullptr, all.parts);
  EXPECT_GT(all.lost(result, dtype::f32), 0u) << "then nobody needs a base";
}

TYPED_TEST(AverageOfDifferences, Equals_the_mean_in_double_precision_for_every_dtype) {
  for (const std::size_t shift : {0u, 1u}) {
    model base = numeric_model(shift), result = numeric_model(shift);
    fill_values(base, 7);
    std::deque<model> updates;
    std::vector<part> parts;
    std::vector<contribution> all;
    for (std::size_t i = 0; i < 7; ++i) {
      fill_values(updates.emplace_back(numeric_model(shift)), 100 + i);
      parts.push_back({&updates.back(), 1.0 + static_cast<double>(i * 7 % 5)});
      all.push_back({&updates.back(), parts.back().weight});
    }
    mean_of<TypeParam>(result, &base, parts);
    expect_mean(result, all);
  }
}

TEST(AverageOfDifferences, Is_the_same_wherever_chunks_cut_it) {
  frozen_in_part all(3, 4, false);
  model whole = numeric_model(0, 101);
  mean_of(whole, &all.base, all.parts, 1 << 20);
  for (const std::uint64_t chunk : {1u, 3u, 7u, 13u, 64u, 100u, 1001u}) {
    model result = numeric_model(0, 101);
    mean_of(result, &all.base, all.parts, chunk);
    EXPECT_TRUE(result.same_tensors(whole)) << chunk;
  }
}

model floats(const std::vector<float>& values, dtype type = dtype::f32) {
  model m;
  m.add("w", type, {values.size()}).ready();
  std::memcpy(m.destination().address(0), values.data(), values.size() * sizeof(float));
  return m;
}
std::vector<float> floats_of(model& m) {
  std::vector<float> v(static_cast<std::size_t>(m.schema().data_bytes()) / sizeof(float));
  std::memcpy(v.data(), m.destination().address(0), v.size() * sizeof(float));
  return v;
}
float from_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }
std::vector<std::uint32_t> bits_of(const std::vector<float>& v) {
  std::vector<std::uint32_t> all;
  for (const float f : v) all.push_back(std::bit_cast<std::uint32_t>(f));
  return all;
}

TEST(AverageOfDifferences, Keeps_negative_zeros_subnormals_infinities_and_the_bits_of_NaN) {
  constexpr float most = std::numeric_limits<float>::max(), infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> odd = {-0.0f,
                                  0.0f,
                                  1e-45f,
                                  -1e-41f,
                                  most,
                                  -most,
                                  infinity,
                                  -infinity,
                                  from_bits(0x7fc12345),
                                  from_bits(0xffc00001),
                                  from_bits(0x7fffffff),
                                  1.5f};
  const model base = floats(odd);
  for (const std::size_t count : {1u, 2u, 10u, 100u}) {
    model result = floats(std::vector<float>(odd.size(), 7));
    mean_of(result, &base, std::vector<part>(count, {&base, 0.3}));
    EXPECT_EQ(bits_of(floats_of(result)), bits_of(odd)) << count;
  }
}

TEST(AverageOfDifferences, Of_what_is_no_number_is_as_without_a_base) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const float nan = from_bits(0x7fc12345), other = from_bits(0x7fc00777);
  //                         old,      one,      two,      mean of weights 1 and 3
  const float rows[][4] = {{infinity, 1, 3, 2.5f},
                           {-infinity, 1, 3, 2.5f},
                           {nan, 1, 3, 2.5f},
                           {nan, 0, 0, 0},
                           {nan, nan, 3, nan},
                           {nan, 3, other, nan},
                           {infinity, 0, 0, 0},
                           {infinity, 2, infinity, infinity},
                           {infinity, -infinity, -infinity, -infinity},
                           {infinity, -infinity, infinity, other},
                           {infinity, other, 1, other},
                           {1, infinity, 1, infinity},
                           {1, other, 1, other},
                           {-0.0f, 0.0f, 0.0f, -0.0f},
                           {0.0f, -0.0f, -0.0f, 0.0f},
                           {0.0f, 1e-40f, 1e-40f, 1e-40f}};
  std::vector<float> columns[4];
  for (const auto& row : rows)
    for (std::size_t i = 0; i < 4; ++i) columns[i].push_back(row[i]);
  const model base = floats(columns[0]), one = floats(columns[1]), two = floats(columns[2]);
  model result = floats(columns[0]);
  mean_of(result, &base, {{&one, 1}, {&two, 3}}, 4096, false);
  const auto got = floats_of(result);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const float expected = columns[3][i];
    if (std::bit_cast<std::uint32_t>(expected) == std::bit_cast<std::uint32_t>(other)) {
      EXPECT_TRUE(std::isnan(got[i])) << "row " << i;
    } else {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(expected)) << "row " << i;
    }
  }
}

template <class Average>
void a_value_that_is_no_number() {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const float nan = from_bits(0x7fc12345);
  const model base = floats({1, -infinity, nan, 2});
  model good = floats({2, -infinity, nan, 3});
  for (const float none : {nan, infinity, -infinity}) {
    const model bad = floats({2, -infinity, nan, none});
    model result = floats({0, 0, 0, 0});
    auto buffers = *tp::chunk_buffers::make(4096);
    auto average = *Average::make(result.destination(), buffers, {.base = base.source()});
    const auto add = [&](const model& from, const char* peer) {
      typename Average::update update(average, 1, {tp::update_peer(peer), 1});
      return feeder(update, from, 4096).run();
    };
    const auto refused = add(bad, "site-2");
    ASSERT_EQ(code_of(refused), errc::value_out_of_range);
    EXPECT_EQ(refused.error().name.view(), "site-2");
    ASSERT_TRUE(add(good, "site-1"));
    ASSERT_TRUE(average.finish());
    EXPECT_EQ(bits_of(floats_of(result)), bits_of(floats_of(good)));
  }
}
TEST(AverageOfDifferences, A_value_that_is_no_number_fails_its_update_by_name_unless_the_base_has_it) {
  a_value_that_is_no_number<tp::weighted_average<>>();
  a_value_that_is_no_number<tp::weighted_average<tp::partial_updates::staged>>();
}

TYPED_TEST(AverageOfDifferences, A_value_that_is_no_number_is_an_error_with_its_client_and_its_tensor) {
  const auto three = [] {
    model m;
    m.add("a", dtype::f64, {700}).add("b", dtype::f32, {3000}).add("c", dtype::f32, {3000});
    return std::move(m.ready());
  };
  for (const char* const name : {"a", "b", "c"}) {
    model base = three(), result = three(), good = three(), bad = three();
    for (model* const m : {&base, &good, &bad}) fill_values(*m, 3);
    const auto all = bad.destination().schema->entries();
    const auto at = static_cast<std::size_t>(std::ranges::find(all, name, &tp::tensor_entry::name) - all.begin());
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const double wide_nan = std::numeric_limits<double>::quiet_NaN();
    std::byte* const last = bad.destination().address(at) + all[at].size_bytes();
    if (all[at].type == dtype::f64) std::memcpy(last - 8, &wide_nan, 8);
    else std::memcpy(last - 4, &nan, 4);
    for (const bool with_base : {true, false}) {
      auto buffers = *chunk_buffers::make(4096);
      auto average = *TypeParam::make(result.destination(), buffers,
                                      {.base = with_base ? base.source() : tp::source_view{}});
      const auto refused = add(average, bad, 1, "site-2");
      ASSERT_EQ(code_of(refused), errc::value_out_of_range);
      EXPECT_EQ(refused.error().name.view(), "site-2");
      const auto* const record = average.find("site-2");
      ASSERT_LT(record->refused_tensor, average.schema().tensor_count);
      EXPECT_EQ(average.schema().tensors[record->refused_tensor].name, name);
      if (record->added_bytes == 0) {  // it may come again
        ASSERT_TRUE(add(average, good, 1, "site-2"));
        EXPECT_EQ(record->refused_tensor, tp::update_record::no_tensor);
      }
    }
  }
}

TYPED_TEST(AverageOfDifferences, A_weight_is_capped_where_a_client_gives_it) {
  const model base = floats({0, 0, 0, 0}), honest = floats({1, 1, 1, 1}), hostile = floats({-1, -1, -1, -1});
  for (const bool capped : {true, false}) {
    model result = floats({7, 7, 7, 7});
    auto buffers = *chunk_buffers::make(4096);
    auto average = *TypeParam::make(result.destination(), buffers,
                                    {.base = base.source(), .heaviest = capped ? 1000.0 : 0x1p60});
    for (std::uint64_t peer = 1; peer <= 9; ++peer) ASSERT_TRUE(add(average, honest, 600, tp::recipient_id{peer}));
    ASSERT_TRUE(add(average, hostile, 6e9, tp::recipient_id{10}));
    EXPECT_EQ(average.updates().back().weight, capped ? 1000 : 6e9);
    ASSERT_TRUE(average.finish());
    for (const float v : floats_of(result)) EXPECT_NEAR(v, capped ? (9 * 600 - 1000) / (9 * 600 + 1000.0) : -1.0, 1e-5);
  }
  model result = floats({0});
  auto buffers = *chunk_buffers::make(4096);
  for (const double none : {0.0, -1.0, 0x1p61, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_EQ(code_of(TypeParam::make(result.destination(), buffers, {.heaviest = none})), errc::invalid_argument);
}

/// The largest distance from the mean in long double, in units of the last place of the old value.
double worst_ulps(const std::vector<float>& got, const std::vector<float>& base,
                  const std::vector<std::vector<float>>& updates, const std::vector<double>& weights) {
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    long double sum = 0, weight = 0;
    for (std::size_t k = 0; k < updates.size(); ++k) {
      sum += static_cast<long double>(weights[k]) * static_cast<long double>(updates[k][i]);
      weight += static_cast<long double>(weights[k]);
    }
    const float size = std::max(std::fabs(base[i]), std::fabs(got[i]));  // a step may lead to where numbers lie further
                                                                         // apart
    const auto ulp = static_cast<long double>(std::nextafter(size, HUGE_VALF) - size);
    worst = std::max(worst, static_cast<double>(std::fabs(static_cast<long double>(got[i]) - sum / weight) / ulp));
  }
  return worst;
}

TEST(AverageOfDifferences, Of_small_steps_is_rounded_once) {
  struct row {
    std::size_t count;
    double better;  // than without a base, at least
  };
  for (const auto& [count, better] : {row{10, 4}, row{100, 12}})
    for (const float step : {1e-5f, 1e-6f}) {
      generator g(count);
      const auto uniform = [&g] {
        return static_cast<float>(static_cast<double>(static_cast<std::int64_t>(g())) / 0x1p63);
      };
      std::vector<float> base(5000);
      for (float& v : base) {
        const float size = 0.01f + 0.09f * std::fabs(uniform());
        v = std::copysign(size, uniform());
      }
      std::vector<std::vector<float>> updates(count, base);
      std::vector<double> weights;
      std::deque<model> models;
      std::vector<part> parts;
      for (auto& u : updates) {
        for (float& v : u) v += step * uniform();
        weights.push_back(any_weight(g));
        parts.push_back({&models.emplace_back(floats(u)), weights.back()});
      }
      const model old = floats(base);
      model with = floats(base), without = floats(base);
      mean_of(with, &old, parts);
      mean_of(without, nullptr, parts);
      const double by_differences = worst_ulps(floats_of(with), base, updates, weights),
                   by_values = worst_ulps(floats_of(without), base, updates, weights);
      EXPECT_LT(by_differences, 0.51) << count << " updates, steps of " << step;
      EXPECT_GT(by_values, better * by_differences) << count << " updates, steps of " << step;
    }
}

TYPED_TEST(AverageOfDifferences, In_place_is_the_same_and_goes_on_from_there) {
  for (const bool bytes : {false, true}) {
    frozen_in_part all(10, 3, bytes);
    model apart = numeric_model(0, 101);
    mean_of<TypeParam>(apart, &all.base, all.parts);
    model here = numeric_model(0, 101);
    const auto restore = [&] {
      const auto from = all.base.source();
      const auto to = here.destination();
      for (std::size_t i = 0; i < to.schema->tensor_count; ++i)
        std::memcpy(to.address(i), from.address(i), static_cast<std::size_t>(to.schema->tensors[i].size_bytes()));
    };
    restore();
    auto buffers = *chunk_buffers::make(4096);
    auto average = *TypeParam::make(here.destination(), buffers, {.base = here.source()});
    for (std::uint64_t round = 1; round <= 2; ++round, average.reset(), restore()) {
      for (std::size_t k = 0; k < 10; ++k)
        ASSERT_TRUE(add(average, *all.parts[k].from, all.parts[k].weight, tp::recipient_id{k + 1}));
      ASSERT_TRUE(average.finish());
      EXPECT_TRUE(here.same_tensors(apart));
      ASSERT_TRUE(average.finish()) << "again: nothing has come";
      EXPECT_TRUE(here.same_tensors(apart));
    }
    // in two steps, too, what is frozen is frozen
    for (std::size_t k = 0; k < 10; ++k) {
      ASSERT_TRUE(add(average, *all.parts[k].from, all.parts[k].weight, tp::recipient_id{k + 1}));
      if (k == 4) {
        ASSERT_TRUE(average.finish());
      }
    }
    ASSERT_TRUE(average.finish());
    EXPECT_EQ(all.lost(here), 0u);
  }
}

TEST(AverageOfDifferences, In_place_that_goes_on_is_the_mean_of_all) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const float nan = from_bits(0x7fc12345);
  model here = floats({1, -0.0f, infinity, nan, nan, 2});
  const model one = floats({3, -0.0f, 5, 5, nan, 2}), two = floats({7, -0.0f, 9, 9, 9, infinity}),
              three = floats({11, -0.0f, 13, 13, 13, 2});
  auto buffers = *chunk_buffers::make(4096);
  auto average = *weighted_average<>::make(here.destination(), buffers,
                                           {.base = here.source(), .refuse_no_numbers = false});
  ASSERT_TRUE(add(average, one, 1, "one"));
  ASSERT_TRUE(average.finish());
  EXPECT_EQ(bits_of(floats_of(here)), bits_of({3, -0.0f, 5, 5, nan, 2}));
  ASSERT_TRUE(add(average, two, 1, "two"));
  ASSERT_TRUE(average.finish());
  EXPECT_EQ(bits_of(floats_of(here)), bits_of({5, -0.0f, 7, 7, nan, infinity}));
  ASSERT_TRUE(add(average, three, 2, "three"));
  ASSERT_TRUE(average.finish());
  EXPECT_EQ(bits_of(floats_of(here)), bits_of({8, -0.0f, 10, 10, nan, infinity}));
}

TEST(AverageOfDifferences, Divides_each_element_by_the_weight_that_reached_it_in_place_too) {
  model base = numeric_model(), here = numeric_model();
  fill_values(base, 1);
  fill_values(here, 1);
  std::deque<model> updates;
  std::vector<contribution> all;
  auto buffers = *chunk_buffers::make(50);
  auto average = *reached_average::make(here.destination(), buffers, {.base = here.source()});
  generator random(9);
  for (std::size_t i = 0; i < 6; ++i) {
    all.push_back({&updates.emplace_back(numeric_model()), 1.0 + static_cast<double>(i)});
    fill_values(updates.back(), 50 + i);
    reached_average::update update(average, all[i].weight, {tp::recipient_id{i + 1}, 1});
    feeder f(update, updates.back(), 50, 20);
    if (i == 0) {
      ASSERT_TRUE(f.run());
      continue;
    }
    ASSERT_TRUE(f.run(random.below(base.schema().image_bytes)));
    update.abandon({errc::connection_lost, 0, f.at(), {}});
    all[i].bytes = average.find(tp::recipient_id{i + 1})->added_bytes;
  }
  ASSERT_TRUE(average.finish());
  expect_mean(here, all);
  // one of those that stopped goes on from there
  reached_average::update update(average, all[3].weight, {tp::recipient_id{4}, 1});
  ASSERT_TRUE(feeder(update, updates[3], 50).run());
  ASSERT_TRUE(average.finish());
}

TEST(AverageOfDifferences, Has_nothing_of_an_update_that_failed) {
  frozen_in_part all(3, 6, false);
  model without = numeric_model(0, 101), result = numeric_model(0, 101);
  mean_of<staged_average>(without, &all.base, {all.parts[0], all.parts[2]});
  auto average = *staged_average::make(result.destination(), {.base = all.base.source()});
  ASSERT_TRUE(add(average, *all.parts[0].from, all.parts[0].weight, "first"));
  {
    staged_average::update update(average, all.parts[1].weight, {"fails", 1});
    feeder f(update, *all.parts[1].from, 64);
    f.stops_before_finish = true;
    ASSERT_TRUE(f.run());
    update.abandon({errc::digest_mismatch, 0, f.at(), {}});
  }
  ASSERT_TRUE(add(average, *all.parts[2].from, all.parts[2].weight, "third"));
  ASSERT_TRUE(average.finish());
  EXPECT_TRUE(result.same_tensors(without));
}

TEST(AverageOfDifferences, Takes_an_update_up_where_it_stopped) {
  frozen_in_part all(2, 8, false);
  model whole = numeric_model(0, 101), result = numeric_model(0, 101);
  mean_of(whole, &all.base, all.parts, 61);
  auto buffers = *chunk_buffers::make(61);
  auto average = *weighted_average<>::make(result.destination(), buffers, {.base = all.base.source()});
  ASSERT_TRUE(add(average, *all.parts[0].from, all.parts[0].weight, "first", 61));
  for (const std::uint64_t k : {700u, 1500u, 1501u}) {
    weighted_average<>::update update(average, all.parts[1].weight, {"comes in parts", 1});
    feeder f(update, *all.parts[1].from, 61);
    ASSERT_TRUE(f.run(f.data_start() + k));
  }
  EXPECT_EQ(code_of(average.finish()), errc::partial_update);
  ASSERT_TRUE(add(average, *all.parts[1].from, all.parts[1].weight, "comes in parts", 61));
  ASSERT_TRUE(average.finish());
  EXPECT_TRUE(result.same_tensors(whole));
}

TEST(AverageOfDifferences, Needs_no_more_memory_than_an_average_of_values) {
  model result, base;
  result.add("w", dtype::bf16, {1000, 1000}).ready();
  base.add("w", dtype::bf16, {1000, 1000}).ready();
  auto buffers = *chunk_buffers::make(65536);
  const auto values = *weighted_average<>::make(result.destination(), buffers);
  auto differences = *weighted_average<>::make(result.destination(), buffers, {.base = base.source()});
  EXPECT_EQ(differences.allocated_bytes(), values.allocated_bytes());
  weighted_average<>::update update(differences, 1, {"a", 1});
  feeder f(update, base, 65536);
  const allocation_watch watch;
  ASSERT_TRUE(f.run());
  ASSERT_TRUE(differences.finish());
  EXPECT_EQ(watch.count(), 0u);
}

TEST(AverageOfDifferences, Refuses_a_base_that_is_another_model_and_names_the_tensor) {
  auto buffers = *chunk_buffers::make(64);
  model result;
  result.add("a", dtype::f32, {4}).add("b", dtype::f32, {2, 3}).ready();
  const auto refused = [&](model& base) {
    base.ready();
    const auto made = weighted_average<>::make(result.destination(), buffers, {.base = base.source()});
    EXPECT_FALSE(made);
    return made ? tp::error{} : made.error();
  };
  const auto is = [](const tp::error& e, errc code, std::string_view name) {
    EXPECT_EQ(e.code, code) << to_string(e.code);
    EXPECT_EQ(e.name.view(), name);
  };
  model type, shape, name, fewer, more;
  is(refused(type.add("a", dtype::f32, {4}).add("b", dtype::i32, {2, 3})), errc::schema_mismatch, "b");
  is(refused(shape.add("a", dtype::f32, {4}).add("b", dtype::f32, {3, 2})), errc::schema_mismatch, "b");
  is(refused(name.add("a", dtype::f32, {4}).add("c", dtype::f32, {2, 3})), errc::schema_mismatch, "b");
  is(refused(fewer.add("a", dtype::f32, {4})), errc::schema_mismatch, "b");
  is(refused(more.add("a", dtype::f32, {4}).add("b", dtype::f32, {2, 3}).add("c", dtype::f32, {1})),
     errc::schema_mismatch, "c");

  const std::array<float, 12> numbers{};
  const std::uint64_t four = 4, two_by_three[] = {2, 3};
  const std::int64_t strides[] = {24, 8};
  const tp::tensor_view strided[] = {
      {.name = "a", .type = dtype::f32, .shape = {&four, 1}, .data = reinterpret_cast<const std::byte*>(&numbers)},
      {.name = "b",
       .type = dtype::f32,
       .shape = two_by_three,
       .data = reinterpret_cast<const std::byte*>(&numbers),
       .strides_bytes = strides}};
  const auto image = *tp::dynamic_image::make(std::span<const tp::tensor_view>(strided));
  const auto made = weighted_average<>::make(result.destination(), buffers, {.base = image.source()});
  ASSERT_FALSE(made);
  is(made.error(), errc::unsupported_layout, "b");
}

TEST(AverageOfDifferences, Refuses_a_base_that_lies_across_the_result) {
  auto buffers = *chunk_buffers::make(64);
  std::array<float, 12> numbers{};
  const std::uint64_t six = 6, none = 0;
  const auto at = [&](std::size_t i, const std::uint64_t& extent) {
    const tp::mutable_tensor_view view[] = {
        {"w", dtype::f32, {&extent, 1}, reinterpret_cast<std::byte*>(&numbers[i]), {}}};
    return *tp::dynamic_image::make(view);
  };
  for (std::size_t i = 0; i <= 6; ++i) {
    auto to = at(3, six);
    const auto from = at(i, six);
    const auto made = weighted_average<>::make(to.destination(), buffers, {.base = from.source()});
    if (i == 3) {
      EXPECT_TRUE(made) << "in place";
      continue;
    }
    ASSERT_FALSE(made) << i;
    EXPECT_EQ(code_of(made), errc::invalid_argument);
    EXPECT_EQ(made.error().name.view(), "w");
  }
  auto to = at(0, six), behind = at(6, six), empty = at(2, none);
  const auto other = at(3, none);
  EXPECT_TRUE(weighted_average<>::make(to.destination(), buffers, {.base = behind.source()}));
  EXPECT_TRUE(weighted_average<>::make(behind.destination(), buffers, {.base = to.source()}));
  EXPECT_TRUE(weighted_average<>::make(empty.destination(), buffers, {.base = other.source()}));
}

TEST(AverageOfDifferences, Needs_an_update_like_any_other) {
  model base = numeric_model(), result = numeric_model();
  auto buffers = *chunk_buffers::make(64);
  auto average = *weighted_average<>::make(result.destination(), buffers, {.base = base.source()});
  EXPECT_EQ(code_of(average.finish()), errc::no_updates);
  EXPECT_TRUE(result.untouched());
}

}  // namespace average_of_differences_test
