// Whole updates that are looked at before they are weighed: norms and products against plain loops in double, means,
// trimmed means and sums of every dtype, whatever order they came in; and weights and values that are refused.
#include "../../examples/robust_weights.hpp"
#include "../support/allocation_counter.hpp"
#include "feed.hpp"
#include "values.hpp"

#include <tensorpull/consumers/average/weighing.hpp>


#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <vector>

namespace weighing_test {

using namespace test;
using tp::update_differences;
using tp::update_weights;
using tp::weighing;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double no_number = std::numeric_limits<double>::quiet_NaN();

/// Tensors of these dtypes; of all that have a mean if none is named.
model model_of(const std::vector<dtype>& types, std::uint64_t extent = 1037) {
  if (types.empty()) return numeric_model(0, extent);
  model m;
  for (const dtype t : types) m.add("tensor." + std::string(to_string(t)), t, {extent});
  return std::move(m.ready());
}

std::vector<double> values(model& m, bool counters = true) {
  std::vector<double> all;
  for_each_element(m, [&](dtype type, std::byte* at, std::uint64_t) {
    tp::detail::with_element(
        type,
        [&]<class E>(E) {
          for (std::size_t part = 0; part < E::parts && (counters || !tp::detail::is_integer<E>); ++part)
            all.push_back(static_cast<double>(E::held(at + part * E::bytes)));
          return true;
        },
        false);
  });
  return all;
}

/// How near a mean of moderate values has to be.
double accuracy(dtype type) {
  switch (type) {
    case dtype::f64: return 1e-15;
    case dtype::f32:
    case dtype::c64: return 1e-6;
    case dtype::f16: return 2e-3;
    case dtype::bf16: return 2e-2;
    default: return 0.3;
  }
}

/// Sets element `which` of the model's tensor of this type.
template <class T>
void set(model& m, std::size_t which, T value) {
  const auto all = m.destination().schema->entries();
  const auto at = std::ranges::find(all, tp::dtype_of<T>::value, &tp::tensor_entry::type);
  std::memcpy(m.destination().address(static_cast<std::size_t>(at - all.begin())) + which * sizeof value, &value,
              sizeof value);
}

void own_weights(const update_differences& of, const update_weights& to) {
  for (std::size_t i = 0; i < of.updates.size(); ++i) to.weights[i] = of.updates[i].weight;
}

struct round {
  model base, result;
  std::deque<model> updates;

  round(std::size_t count, std::uint64_t seed, const std::vector<dtype>& types, std::uint64_t extent = 1037)
      : base(model_of(types, extent)), result(model_of(types, extent)) {
    fill_values(base, seed);
    fill_values(result, seed + 99);
    for (std::size_t i = 0; i < count; ++i) fill_values(updates.emplace_back(model_of(types, extent)), seed * 1000 + i);
  }
  weighing made(bool backwards = false) {
    auto w = *weighing::make(result.destination(), base.source(), updates.size());
    for (std::size_t k = 0; k < updates.size(); ++k) {
      const std::size_t i = backwards ? updates.size() - 1 - k : k;
      EXPECT_TRUE(w.add({tp::recipient_id{i + 1}, static_cast<double>(i + 1), updates[i].source()}));
    }
    return w;
  }
};

TEST(Weighing, Norms_and_products_are_those_of_plain_loops) {
  round r(5, 1, {});
  auto w = r.made();
  const auto seen = w.look();
  ASSERT_TRUE(seen);
  const auto old = values(r.base, false);
  for (std::size_t i = 0; i < 5; ++i)
    for (std::size_t j = 0; j < 5; ++j) {
      const auto a = values(r.updates[i], false), b = values(r.updates[j], false);
      long double sum = 0, size = 0;
      for (std::size_t k = 0; k < old.size(); ++k) {
        const long double term = static_cast<long double>(a[k] - old[k]) * static_cast<long double>(b[k] - old[k]);
        sum += term;
        size += std::abs(term);
      }
      EXPECT_NEAR(seen->product(i, j), static_cast<double>(sum), 1e-14 * static_cast<double>(size));
      EXPECT_EQ(seen->norms[i], std::sqrt(seen->product(i, i)));
    }
}

TEST(Weighing, The_mean_has_the_weights_and_scales_and_keeps_what_did_not_change) {
  for (const dtype type : {dtype::f32, dtype::f64, dtype::f16, dtype::bf16, dtype::c64, dtype::f8_e4m3, dtype::f8_e5m2,
                           dtype::f8_e4m3fnuz, dtype::f8_e5m2fnuz}) {
    round r(3, 2, {type});
    // the first half is frozen, in part as what averages lose: zeros below zero
    const std::size_t half = static_cast<std::size_t>(r.base.destination().schema->data_bytes() / 2) / 8 * 8;
    for (auto& u : r.updates) std::memcpy(u.destination().address(0), r.base.destination().address(0), half);
    auto w = r.made();
    ASSERT_TRUE(w.finish([](const update_differences&, const update_weights& to) {
      to.weights[0] = 1, to.weights[1] = 0, to.weights[2] = 3;
      to.scales[2] = 0.5;
    }));
    EXPECT_EQ(std::memcmp(r.result.destination().address(0), r.base.destination().address(0), half), 0);
    const auto old = values(r.base), a = values(r.updates[0]), c = values(r.updates[2]), is = values(r.result);
    const double fine = accuracy(type);
    for (std::size_t k = 0; k < old.size(); ++k)
      EXPECT_NEAR(is[k], old[k] + (a[k] - old[k]) / 4 + (c[k] - old[k]) * 3 / 8, fine * 3) << to_string(type);
    EXPECT_TRUE(r.result.guards_intact());
  }
}

// The mean of differences did not fit a float, although the result does.
TEST(Weighing, A_mean_of_finite_values_is_finite) {
  for (const dtype type : {dtype::f32, dtype::bf16, dtype::f16, dtype::c64}) {
    const double most = type == dtype::f16 ? 60'000 : 3e38;
    round r(1, 5, {type});
    const auto fill = [&](model& m, double value) {
      for_each_element(m, [&](dtype t, std::byte* at, std::uint64_t) {
        tp::detail::with_element(
            t,
            [&]<class E>(E) {
              for (std::size_t part = 0; part < E::parts; ++part) E::write(at + part * E::bytes, value);
              return true;
            },
            false);
      });
    };
    fill(r.base, -most);
    fill(r.updates[0], most);
    auto w = r.made();
    ASSERT_TRUE(w.finish(own_weights)) << to_string(type);
    EXPECT_EQ(values(r.result), values(r.updates[0])) << to_string(type);
  }
}

TEST(Weighing, The_order_of_arrival_does_not_matter_and_nothing_is_allocated_for_an_element) {
  for (const bool trimmed : {false, true}) {
    round a(7, 3, {dtype::f32, dtype::f16, dtype::bf16, dtype::f64});
    round b(7, 3, {dtype::f32, dtype::f16, dtype::bf16, dtype::f64});
    auto first = a.made(), second = b.made(true);
    const allocation_watch watch;
    ASSERT_TRUE(trimmed ? first.trimmed_mean(2) : first.finish(tp::clip_norms{}));
    EXPECT_EQ(watch.count(), 0U);
    ASSERT_TRUE(trimmed ? second.trimmed_mean(2) : second.finish(tp::clip_norms{}));
    EXPECT_TRUE(a.result.same_tensors(b.result));
  }
}

std::vector<double> products_of(const tp::result<update_differences>& seen) {
  EXPECT_TRUE(seen);
  return {seen->products.begin(), seen->products.end()};
}

// Groups of four slices and single ones; tensors that end within a group of four elements and within a block.
TEST(Weighing, A_look_after_each_update_finds_the_same_bits_as_one_at_the_end) {
  for (const std::uint64_t extent : {1U, 2U, 3U, 19U, 1037U}) {
    round r(11, 12, {dtype::f32, dtype::f64, dtype::i8}, extent);
    auto at_the_end = r.made();
    const auto all = products_of(at_the_end.look());
    auto w = *weighing::make(r.result.destination(), r.base.source(), 11);
    std::vector<std::size_t> there;
    for (const std::size_t i : {5U, 2U, 10U, 0U, 9U, 1U, 8U, 3U, 7U, 4U, 6U}) {
      ASSERT_TRUE(w.add({tp::recipient_id{i + 1}, static_cast<double>(i + 1), r.updates[i].source()}));
      there.insert(std::ranges::lower_bound(there, i), i);
      if (i == 1 || i == 4) continue;  // two are new at the next one
      const auto seen = w.look();
      ASSERT_TRUE(seen);
      ASSERT_EQ(seen->norms.size(), there.size());
      for (std::size_t a = 0; a < there.size(); ++a) {
        EXPECT_EQ(seen->updates[a].peer.id().value, there[a] + 1);
        EXPECT_EQ(seen->norms[a], std::sqrt(all[there[a] * 11 + there[a]]));
        for (std::size_t b = 0; b < there.size(); ++b)
          EXPECT_EQ(seen->product(a, b), all[there[a] * 11 + there[b]]) << there[a] << ' ' << there[b];
      }
    }
    ASSERT_TRUE(w.finish(own_weights));
    const auto looked = r.result.image_bytes();
    ASSERT_TRUE(at_the_end.finish(own_weights));
    EXPECT_EQ(r.result.image_bytes(), looked);
  }
}

// Each update in turn, before and after a look at some or all of them, and before others come.
TEST(Weighing, Without_an_update_that_is_removed_the_round_has_the_bits_that_it_has_without_it) {
  constexpr std::size_t all = 6;
  constexpr std::size_t order[] = {3, 0, 5, 1, 4, 2};
  for (std::size_t gone = 0; gone < all; ++gone)
    for (const std::size_t looked_at : {0U, 3U, 6U})
      for (const std::size_t before : {4U, 6U}) {
        round r(all, 21, {dtype::f32, dtype::i8}, 37);
        auto w = *weighing::make(r.result.destination(), r.base.source(), all);
        auto without = *weighing::make(r.result.destination(), r.base.source(), all);
        bool is_gone = false;
        for (std::size_t k = 0; k <= all; ++k) {
          if (k >= before && !is_gone && std::find(order, order + k, gone) != order + k) {
            ASSERT_TRUE(w.remove(tp::recipient_id{gone + 1}));
            is_gone = true;
          }
          if (k == all) break;
          const std::size_t i = order[k];
          const tp::whole_update u{tp::recipient_id{i + 1}, static_cast<double>(i + 1), r.updates[i].source()};
          ASSERT_TRUE(w.add(u));
          ASSERT_TRUE(i == gone || without.add(u));
          ASSERT_TRUE(k + 1 != looked_at || w.look());
        }
        ASSERT_EQ(w.updates().size(), all - 1);
        EXPECT_EQ(products_of(w.look()), products_of(without.look())) << gone << ' ' << looked_at << ' ' << before;
        ASSERT_TRUE(w.finish(own_weights));
        const auto bytes = r.result.image_bytes();
        ASSERT_TRUE(without.finish(own_weights));
        EXPECT_EQ(r.result.image_bytes(), bytes);
        EXPECT_EQ(code_of(w.remove(tp::recipient_id{gone + 1})), errc::no_updates);
        ASSERT_TRUE(w.add({tp::recipient_id{gone + 1}, 1, r.updates[gone].source()}));  // it may come again
        EXPECT_EQ(w.updates().size(), all);
      }
}

// In place: what the result was written over is what was compared.
TEST(Weighing, Comparisons_are_forgotten_when_a_result_is_written_and_when_a_round_begins) {
  for (const int how : {0, 1, 2}) {
    round r(3, 13, {how == 2 ? dtype::u32 : dtype::f32});
    auto w = *weighing::make(r.base.destination(), r.base.source(), 3);
    for (std::size_t i = 0; i < 3; ++i) ASSERT_TRUE(w.add({tp::recipient_id{i + 1}, 1, r.updates[i].source()}));
    const auto before = products_of(w.look());
    const auto held = tp::detail::load_own<std::uint32_t>(r.updates[1].destination().address(0));
    std::memset(r.updates[1].destination().address(0), 1, 4);  // nobody may do so; it shows that nothing is read again
    EXPECT_EQ(products_of(w.look()), before);
    std::memcpy(r.updates[1].destination().address(0), &held, 4);
    const auto refused = w.finish([](const update_differences&, const update_weights&) {});
    EXPECT_EQ(code_of(refused), errc::invalid_argument);
    EXPECT_EQ(products_of(w.look()), before);
    const auto write = [&] {
      if (how == 0) return w.finish(own_weights);
      return how == 1 ? w.trimmed_mean(1) : w.wrapping_sum();
    };
    ASSERT_TRUE(write());
    const auto after = products_of(w.look());
    EXPECT_NE(after, before);
    auto fresh = *weighing::make(r.result.destination(), r.base.source(), 3);
    for (std::size_t i = 0; i < 3; ++i) ASSERT_TRUE(fresh.add({tp::recipient_id{i + 1}, 1, r.updates[i].source()}));
    EXPECT_EQ(products_of(fresh.look()), after);
    w.reset();  // other updates of the same peers
    for (std::size_t i = 0; i < 3; ++i) ASSERT_TRUE(w.add({tp::recipient_id{i + 1}, 1, r.updates[2 - i].source()}));
    const auto turned = products_of(w.look());
    for (std::size_t i = 0; i < 9; ++i) EXPECT_EQ(turned[i], after[8 - i]);
  }
}

/// Nine honest updates make about the same step, one makes the opposite one, times ten. If they count their steps, the
/// honest ones have made thousands, and the other one more than a double holds exactly.
struct one_hostile : round {
  explicit one_hostile(bool counts)
      : round(10, 4, counts ? std::vector{dtype::f32, dtype::i64} : std::vector{dtype::f32}) {
    generator g(5);
    const auto old = values(base, false);
    for (std::size_t i = 0; i < 10; ++i)
      for (std::size_t k = 0; k < old.size(); ++k) {
        const double step = 0.01 + 0.005 * static_cast<double>(g.below(100)) / 100;
        set(updates[i], k, static_cast<float>(old[k] + (i == 3 ? -10 * step : step)));
        if (counts) set(base, k, std::int64_t{5000});
        if (counts) set(updates[i], k, i == 3 ? (std::int64_t{1} << 53) + 1 : std::int64_t{9000});
      }
  }
  /// The mean step.
  double step() {
    const auto old = values(base, false), is = values(result, false);
    double sum = 0;
    for (std::size_t k = 0; k < old.size(); ++k) sum += is[k] - old[k];
    return sum / static_cast<double>(old.size());
  }
};

void expect_to_withstand(one_hostile& r) {
  auto w = *weighing::make(r.result.destination(), r.base.source(), 10);
  for (std::size_t i = 0; i < 10; ++i) ASSERT_TRUE(w.add({tp::recipient_id{i + 1}, 50, r.updates[i].source()}));
  ASSERT_TRUE(w.finish(own_weights));
  EXPECT_LT(r.step(), 0.0);
  ASSERT_TRUE(w.finish(tp::clip_norms{}));
  EXPECT_NEAR(r.step(), 0.0125 * 0.8, 0.0003);
  ASSERT_TRUE(w.finish(tp::clip_norms{1e-3}));
  EXPECT_GT(r.step(), 0.0);
  EXPECT_LT(r.step(), 0.0001);
  ASSERT_TRUE(w.finish(examples::krum{.hostile = 1, .keep = 5}));
  EXPECT_NEAR(r.step(), 0.0125, 0.0003);
  ASSERT_TRUE(w.finish(examples::geometric_median{}));
  EXPECT_NEAR(r.step(), 0.0125, 0.002);
  ASSERT_TRUE(w.trimmed_mean(1));
  EXPECT_NEAR(r.step(), 0.0125, 0.0005);
}
TEST(Weighing, A_hostile_update_turns_the_mean_but_not_what_looks_first) {
  one_hostile r(false);
  expect_to_withstand(r);
}
TEST(Weighing, A_counter_beside_the_weights_hides_no_hostile_update_and_has_the_median) {
  one_hostile r(true);
  expect_to_withstand(r);
  const auto all = values(r.result);
  EXPECT_EQ(std::ranges::count(all, 9000.0), 1037);
  auto w = *weighing::make(r.result.destination(), r.base.source(), 3);
  for (const std::size_t i : {3U, 2U, 8U})
    ASSERT_TRUE(w.add({tp::recipient_id{i + 1}, i == 3 ? 3.0 : 1.0, r.updates[i].source()}));
  ASSERT_TRUE(w.finish(own_weights));  // more than half of the weights are the hostile one's
  std::int64_t first;
  std::memcpy(&first, r.result.destination().address(0), sizeof first);
  EXPECT_EQ(first, (std::int64_t{1} << 53) + 1) << "the bits of an update's element";
}

// Such as without the running variances, which move by thousands while the weights move by hundredths.
TEST(Weighing, Of_named_tensors_alone_has_norms_of_those_and_the_median_of_the_rest) {
  const std::vector<dtype> types{dtype::f64, dtype::f32, dtype::bf16, dtype::i64};
  const std::string_view names[] = {"tensor.F32", "tensor.I64"};
  round r(7, 21, types, 517);
  set(r.updates[5], 3, no_number);  // of F64, which is not named
  set(r.updates[1], 4, -infinity);
  set(r.base, 5, no_number);
  for (model& u : r.updates) set(u, 5, no_number);
  auto w = *weighing::make(r.result.destination(), r.base.source(), 7, names);
  constexpr double own[] = {1, 2, 3, 4, 5, 6, 8};  // no half of them is as heavy as the rest
  for (std::size_t i = 0; i < 7; ++i) ASSERT_TRUE(w.add({tp::recipient_id{i + 1}, own[i], r.updates[i].source()}));
  const auto seen = w.look();
  ASSERT_TRUE(seen);
  const auto all_of = [](model& m) {
    std::map<dtype, std::vector<double>> made;
    for_each_element(m, [&](dtype type, std::byte* at, std::uint64_t) {
      tp::detail::with_element(
          type,
          [&]<class E>(E) {
            made[type].push_back(static_cast<double>(E::held(at)));
            return true;
          },
          false);
    });
    return made;
  };
  auto old = all_of(r.base);
  std::vector<std::map<dtype, std::vector<double>>> now;
  for (model& u : r.updates) now.push_back(all_of(u));
  for (std::size_t i = 0; i < 7; ++i) {
    double sum = 0;
    for (const dtype t : {dtype::f32, dtype::i64})
      for (std::size_t k = 0; k < 517; ++k) sum += std::pow(now[i][t][k] - old[t][k], 2);
    EXPECT_NEAR(seen->norms[i], std::sqrt(sum), 1e-9 * std::sqrt(sum)) << i;
  }
  ASSERT_TRUE(w.finish([](const update_differences& of, const update_weights& to) {
    own_weights(of, to);
    std::ranges::fill(to.scales, 0.0);
  }));
  auto is = all_of(r.result);
  EXPECT_EQ(is[dtype::f32], old[dtype::f32]) << "a scale of 0 leaves what is named";
  EXPECT_EQ(is[dtype::i64], old[dtype::i64]);
  for (const dtype t : {dtype::f64, dtype::bf16})
    for (std::size_t k = 0; k < 517; ++k) {
      std::vector<std::pair<double, double>> sorted;
      for (std::size_t i = 0; i < 7; ++i)
        sorted.emplace_back(std::isnan(now[i][t][k]) ? infinity : now[i][t][k], own[i]);
      std::ranges::sort(sorted);
      double below = 0;
      std::size_t at = 0;
      while (2 * (below += sorted[at].second) < 29) ++at;
      if (t == dtype::f64 && k == 5) EXPECT_TRUE(std::isnan(is[t][k]));
      else EXPECT_EQ(is[t][k], sorted[at].first) << k;
    }

  const std::string_view none[] = {"tensor.F32", "tensor.F16"};
  const auto wrong = weighing::make(r.result.destination(), r.base.source(), 7, none);
  ASSERT_EQ(code_of(wrong), errc::schema_mismatch);
  EXPECT_EQ(wrong.error().name.view(), "tensor.F16");
}

// A number of samples is a site's own word. The hostile update is as long as the others.
TEST(Weighing, A_weight_of_billions_decides_nothing_unless_weights_are_the_programs_own) {
  one_hostile r(false);
  const auto old = values(r.base);
  for (std::size_t k = 0; k < old.size(); ++k) set(r.updates[3], k, static_cast<float>(old[k] - 0.0125));
  auto w = *weighing::make(r.result.destination(), r.base.source(), 10);
  for (std::size_t i = 0; i < 10; ++i)
    ASSERT_TRUE(w.add({tp::recipient_id{i + 1}, i == 3 ? 6e9 : 600 + static_cast<double>(i), r.updates[i].source()}));
  EXPECT_EQ(w.look()->median_weight, 605);
  ASSERT_TRUE(w.finish(tp::clip_norms{}));
  EXPECT_NEAR(r.step(), 0.0125 * 0.8, 0.0003);
  ASSERT_TRUE(w.finish(tp::clip_norms{.heaviest = 700}));
  EXPECT_NEAR(r.step(), 0.0125 * (9 * 605.0 - 700) / (9 * 605 + 700), 0.0003);
  ASSERT_TRUE(w.finish(tp::clip_norms{.heaviest = infinity}));
  EXPECT_NEAR(r.step(), -0.0125, 0.0003);
  ASSERT_TRUE(w.finish(examples::krum{.hostile = 1, .keep = 10}));
  EXPECT_NEAR(r.step(), 0.0125 * 0.8, 0.0003);
  ASSERT_TRUE(w.finish(examples::geometric_median{}));
  EXPECT_GT(r.step(), 0.0125 * 0.8);
}

TEST(Weighing, Robust_weights_are_0_for_NaN_and_for_updates_that_are_too_large_to_be_compared) {
  for (const double value : {no_number, infinity, 1.3e154})
    for (const std::size_t first : {0U, 4U, 8U}) {
      round r(10, 11, {dtype::f64}, 2);
      for (std::size_t i = 0; i < 10; ++i)
        for (std::size_t k = 0; k < 2; ++k) {
          set(r.base, k, 0.0);
          set(r.updates[i], k,
              i == first || i == first + 1 ? value / (k == 0 ? 1 : 10) : 1 + 0.01 * static_cast<double>(i));
        }
      auto w = r.made();
      for (const std::size_t keep : {1U, 10U}) {
        ASSERT_TRUE(w.finish(examples::krum{.hostile = 2, .keep = keep}, false));
        for (const double v : values(r.result)) EXPECT_NEAR(v, 1.045, 0.05) << value << ' ' << first;
      }
      ASSERT_TRUE(w.finish(examples::geometric_median{}, false));
      for (const double v : values(r.result)) EXPECT_NEAR(v, 1.045, 0.05) << value << ' ' << first;
      const auto few = w.finish(examples::krum{.hostile = 4}, false);
      ASSERT_EQ(code_of(few), errc::invalid_argument);
      EXPECT_EQ(few.error().name.view(), "") << "10 are too few against 4";
    }
}

TEST(Weighing, A_trimmed_mean_is_that_of_sorted_values) {
  for (const std::size_t n : {1U, 2U, 3U, 10U, 33U, 64U}) {
    round r(n, 6, {dtype::f32, dtype::f64, dtype::f16, dtype::bf16}, 517);
    auto w = r.made();
    for (const std::size_t cut : {std::size_t{0}, (n - 1) / 2, n / 5}) {
      ASSERT_TRUE(w.trimmed_mean(cut));
      model expected = model_of({dtype::f32, dtype::f64, dtype::f16, dtype::bf16}, 517);
      std::vector<std::vector<double>> all;
      for (auto& u : r.updates) all.push_back(values(u));
      const auto is = values(r.result);
      std::size_t k = 0;
      for_each_element(expected, [&](dtype type, std::byte* at, std::uint64_t) {
        std::vector<double> of;
        for (const auto& u : all) of.push_back(u[k]);
        std::ranges::sort(of);
        double sum = 0;
        for (std::size_t i = cut; i < n - cut; ++i) sum += of[i];
        tp::detail::with_element(
            type,
            [&]<class E>(E) {
              E::write(at, sum / static_cast<double>(n - 2 * cut));
              return true;
            },
            false);
        ++k;
      });
      const auto should = values(expected);
      for (std::size_t e = 0; e < is.size(); ++e) EXPECT_NEAR(is[e], should[e], 1e-15 * std::abs(should[e]));
    }
  }
}

TEST(Weighing, Sums_wrap_around_and_say_whose_they_are) {
  round r(6, 7, {dtype::i32, dtype::u32, dtype::i64, dtype::u64});
  for (std::size_t i = 0; i < 6; ++i) r.updates[i].fill(70 + i);
  auto w = *weighing::make(r.result.destination(), {}, 6);
  for (const std::size_t i : {4U, 0U, 2U}) ASSERT_TRUE(w.add({tp::recipient_id{i + 1}, 1, r.updates[i].source()}));
  ASSERT_TRUE(w.wrapping_sum());
  ASSERT_EQ(w.updates().size(), 3U);
  EXPECT_EQ(w.updates()[1].peer.id().value, 3U);
  for (std::size_t t = 0; t < 4; ++t) {
    const std::size_t bytes = tp::bits(r.result.destination().schema->tensors[t].type) / 8;
    for (std::size_t k = 0; k < 1037; ++k) {
      std::uint64_t sum = 0;
      for (const std::size_t i : {0U, 2U, 4U})
        sum += bytes == 4 ? tp::detail::load_own<std::uint32_t>(r.updates[i].destination().address(t) + 4 * k)
                          : tp::detail::load_own<std::uint64_t>(r.updates[i].destination().address(t) + 8 * k);
      const std::uint64_t is = bytes == 4
                                   ? tp::detail::load_own<std::uint32_t>(r.result.destination().address(t) + 4 * k)
                                   : tp::detail::load_own<std::uint64_t>(r.result.destination().address(t) + 8 * k);
      EXPECT_EQ(is, bytes == 4 ? sum & 0xffffffffU : sum);
    }
  }
}

TEST(Weighing, Bad_weights_are_errors_and_nothing_is_written) {
  round r(3, 8, {dtype::f32});
  auto w = r.made();
  const auto before = r.result.image_bytes();
  const auto refused = [&](std::vector<double> weights, double scale, const char* who) {
    const auto done = w.finish([&](const update_differences&, const update_weights& to) {
      std::ranges::copy(weights, to.weights.begin());
      to.scales[1] = scale;
    });
    ASSERT_EQ(code_of(done), errc::invalid_argument);
    EXPECT_EQ(done.error().name.view(), who);
    EXPECT_EQ(r.result.image_bytes(), before);
  };
  refused({1, no_number, 1}, 1, "2");
  refused({1, 1, infinity}, 1, "3");
  refused({-1, 1, 1}, 1, "1");
  refused({1, 1}, 1, "3");  // one was not set
  refused({}, 1, "");  // none was: the function has given up, and no peer is to blame
  refused({1, 1, 1}, no_number, "2");
  refused({1, 1, 1}, -1, "2");
  refused({0, 0, 0}, 1, "");
  refused({1e308, 1e308, 1}, 1, "");
  for (const double none : {-1.0, no_number, -infinity})
    for (const auto clip : {tp::clip_norms{.longest = none}, tp::clip_norms{.heaviest = none}}) {
      const auto done = w.finish(clip);
      ASSERT_EQ(code_of(done), errc::invalid_argument) << none;
      EXPECT_EQ(done.error().name.view(), "") << "the mistake is the program's, and no peer's";
      EXPECT_EQ(r.result.image_bytes(), before);
    }
}

TEST(Weighing, An_update_with_what_is_no_number_is_refused_by_name_before_the_function_is_called) {
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    round r(3, 9, {dtype::f64, dtype::f32, dtype::bf16});
    set(r.updates[1], 700, value);
    auto w = r.made();
    const auto before = r.result.image_bytes();
    bool called = false;
    const auto call = [&](const update_differences& of, const update_weights& to) {
      called = true;
      tp::clip_norms{}(of, to);
    };
    for (const auto& done : {w.finish(call), w.trimmed_mean(1)}) {
      ASSERT_EQ(code_of(done), errc::value_out_of_range);
      EXPECT_EQ(done.error().name.view(), "2");
      EXPECT_EQ(done.error().at, 1U) << "the second tensor";
    }
    EXPECT_FALSE(called);
    EXPECT_EQ(r.result.image_bytes(), before);
    ASSERT_TRUE(w.finish(call, false));  // let through, it has weight 0
    EXPECT_TRUE(called);
    for (const double v : values(r.result)) EXPECT_TRUE(std::isfinite(v));
    const auto nobody = w.remove("client-7");
    EXPECT_EQ(code_of(nobody), errc::no_updates);
    EXPECT_EQ(nobody.error().name.view(), "client-7");
    ASSERT_TRUE(w.remove(tp::recipient_id{2}));  // by its name, and the round goes on
    ASSERT_TRUE(w.finish(tp::clip_norms{}));
    const auto left = values(r.result);
    for (const double v : left) EXPECT_TRUE(std::isfinite(v));
    ASSERT_TRUE(w.trimmed_mean(0));
  }
}

TEST(Weighing, An_infinite_or_NaN_element_of_the_old_model_has_no_difference) {
  round r(2, 10, {dtype::f32});
  const auto minus = -std::numeric_limits<float>::infinity();
  set(r.base, 3, minus);
  set(r.base, 4, minus);
  for (auto& u : r.updates) set(u, 3, minus), set(u, 4, 6.0F);
  auto w = r.made();
  ASSERT_TRUE(w.finish([](const update_differences& of, const update_weights& to) {
    own_weights(of, to);
    to.scales[0] = 0.25;
  }));
  const auto is = values(r.result);
  EXPECT_EQ(is[3], -infinity);
  EXPECT_EQ(is[4], 6);
}

// One client of many could have made a mask of minus infinities NaN.
TEST(Weighing, An_update_with_another_infinity_than_the_old_one_is_refused_by_name) {
  const auto infinite = std::numeric_limits<float>::infinity(), none = std::numeric_limits<float>::quiet_NaN();
  for (const float old : {-infinite, infinite, none})
    for (const float value : {-infinite, infinite, none, 5.0F}) {
      SCOPED_TRACE(std::to_string(old) + " " + std::to_string(value));
      round r(5, 12, {dtype::f32});
      for (const std::size_t which : {3U, 700U}) {
        set(r.base, which, old);
        for (auto& u : r.updates) set(u, which, old);
      }
      set(r.updates[3], 700, value);
      auto w = r.made();
      const auto before = r.result.image_bytes();
      const auto done = w.finish(tp::clip_norms{});
      const bool fine = value == 5 || value == old || (std::isnan(old) && std::isnan(value));
      ASSERT_EQ(bool(done), fine);
      if (!fine) {
        EXPECT_EQ(code_of(done), errc::value_out_of_range);
        EXPECT_EQ(done.error().name.view(), "4");
        EXPECT_EQ(r.result.image_bytes(), before);
        ASSERT_TRUE(w.finish(tp::clip_norms{}, false));  // let through, it has weight 0
      }
      for (const std::size_t which : {3U, 700U}) {
        const double is = values(r.result)[which];
        EXPECT_TRUE(std::isnan(old) ? std::isnan(is) : is == static_cast<double>(old)) << which << " " << is;
      }
    }
}

TEST(Weighing, Updates_that_do_not_fit_are_refused_by_name) {
  round r(2, 11, {dtype::f32});
  auto w = *weighing::make(r.result.destination(), r.base.source(), 1);
  EXPECT_EQ(code_of(w.look()), errc::no_updates);
  EXPECT_EQ(code_of(w.add({tp::update_peer{}, 1, r.updates[0].source()})), errc::invalid_argument);
  for (const double weight : {0.0, -1.0, infinity, no_number})
    EXPECT_EQ(w.add({"a", weight, r.updates[0].source()}).error().name.view(), "a");
  model other = model_of({dtype::f16});
  EXPECT_EQ(code_of(w.add({"a", 1, other.source()})), errc::schema_mismatch);
  ASSERT_TRUE(w.add({"a", 1, r.updates[0].source()}));
  EXPECT_EQ(code_of(w.add({"a", 1, r.updates[1].source()})), errc::update_changed);
  EXPECT_EQ(code_of(w.add({"b", 1, r.updates[1].source()})), errc::table_full);
  EXPECT_EQ(code_of(w.wrapping_sum()), errc::unsupported_dtype);
  EXPECT_EQ(code_of(w.trimmed_mean(1)), errc::invalid_argument);
  w.reset();
  EXPECT_EQ(code_of(w.trimmed_mean(0)), errc::no_updates);
  auto none = *weighing::make(r.result.destination(), {}, 1);
  ASSERT_TRUE(none.add({"a", 1, r.updates[0].source()}));
  EXPECT_EQ(code_of(none.look()), errc::invalid_argument);
  EXPECT_EQ(code_of(weighing::make(r.result.destination(), r.base.source(), 0)), errc::invalid_argument);
}

}  // namespace weighing_test
