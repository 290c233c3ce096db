// Norm clipping of updates that land one at a time: what weighing makes of all of them together is made of them one
// after the other, in the memory of one.
#include "feed.hpp"
#include "values.hpp"

#include <tensorpull/consumers/average/weighing.hpp>
#include <tensorpull/consumers/average/weighted_average.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <limits>

namespace clipped_average_test {

using namespace test;
using average_type = tp::weighted_average<tp::partial_updates::staged>;

constexpr double no_number = std::numeric_limits<double>::quiet_NaN();

tp::result<void> add(average_type& to, const model& from, double weight, const tp::update_peer& peer) {
  average_type::update update(to, weight, {peer, to.round()});
  return feeder(update, from, 997).run();
}
model wide(const std::vector<double>& numbers) {
  model m;
  m.add("first", dtype::f64, {1}).add("numbers", dtype::f64, {numbers.size()});
  m.ready();
  std::memset(m.destination().address(0), 0, 8);
  std::memcpy(m.destination().address(1), numbers.data(), 8 * numbers.size());
  return m;
}
std::vector<double> numbers_of(const model& m) {
  std::vector<double> all(m.schema().tensors[1].size_bytes() / 8);
  std::memcpy(all.data(), m.source().address(1), 8 * all.size());
  return all;
}

TEST(ClippedAverage, Is_as_weighing_makes_it_of_all_dtypes_at_once) {
  model base = numeric_model(0, 1037), result = numeric_model(0, 1037), together = numeric_model(0, 1037);
  fill_values(base, 1);
  std::deque<model> updates;
  for (std::size_t i = 0; i < 5; ++i) fill_values(updates.emplace_back(numeric_model(0, 1037)), 10 + i);
  auto all = *tp::weighing::make(together.destination(), base.source(), 5);
  for (std::size_t i = 0; i < 5; ++i)
    ASSERT_TRUE(all.add({tp::recipient_id{i + 1}, 1.0 + static_cast<double>(i), updates[i].source()}));
  const auto norms = all.look()->norms;
  const double longest = norms[2] / 3;
  auto average = *average_type::make(result.destination(), {.base = base.source(), .longest = longest});
  const auto bytes = average_type::make(result.destination(), {.base = base.source()})->allocated_bytes();
  EXPECT_EQ(average.allocated_bytes(), bytes) << "one update is in memory, clipped or not";
  for (std::size_t i = 0; i < 5; ++i)
    ASSERT_TRUE(add(average, updates[i], 1.0 + static_cast<double>(i), tp::recipient_id{i + 1}));
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(average.updates()[i].norm, norms[i]) << "the same bits";
  ASSERT_TRUE(average.finish());
  ASSERT_TRUE(all.finish(tp::clip_norms{.longest = longest, .heaviest = HUGE_VAL}));
  std::vector<contribution> unclipped;
  for (std::size_t i = 0; i < 5; ++i) unclipped.push_back({&updates[i], 1.0 + static_cast<double>(i)});
  std::vector<std::array<double, 2>> is, should;
  std::vector<dtype> types;
  for_each_element(result, [&](dtype type, std::byte* at, std::uint64_t) {
    is.push_back(read_element(type, at));
    types.push_back(type);
  });
  for_each_element(together,
                   [&](dtype type, std::byte* at, std::uint64_t) { should.push_back(read_element(type, at)); });
  for (std::size_t k = 0; k < is.size(); ++k) {
    if (tp::detail::has_integers(types[k])) continue;  // weighing has their median
    for (const std::size_t part : {0U, 1U}) EXPECT_NEAR(is[k][part], should[k][part], tolerance(types[k], 2)) << k;
  }
  // counters have no part in a step: their mean is that of an average that clips nothing
  model plain = numeric_model(0, 1037);
  auto other = *average_type::make(plain.destination(), {.base = base.source()});
  for (std::size_t i = 0; i < 5; ++i)
    ASSERT_TRUE(add(other, updates[i], 1.0 + static_cast<double>(i), tp::recipient_id{i + 1}));
  ASSERT_TRUE(other.finish());
  std::size_t k = 0;
  for_each_element(plain, [&](dtype type, std::byte* at, std::uint64_t) {
    if (tp::detail::has_integers(type)) {
      EXPECT_EQ(read_element(type, at), is[k]);
    }
    ++k;
  });
}

TEST(ClippedAverage, One_client_cannot_lead_the_mean_further_than_the_others) {
  const model base = wide({0, 0, 0}), honest = wide({3, 0, 4}), hostile = wide({-3e9, 0, -4e9});
  model result = wide({0, 0, 0});
  auto average = *average_type::make(result.destination(), {.base = base.source(), .longest = 5});
  for (std::uint64_t peer = 1; peer <= 4; ++peer) ASSERT_TRUE(add(average, honest, 10, tp::recipient_id{peer}));
  ASSERT_TRUE(add(average, hostile, 10, "site-5"));
  EXPECT_EQ(average.find("site-5")->norm, 5e9);
  ASSERT_TRUE(average.finish());
  const auto is = numbers_of(result);
  EXPECT_DOUBLE_EQ(is[0], 3 * 0.6);
  EXPECT_EQ(is[1], 0);
  EXPECT_DOUBLE_EQ(is[2], 4 * 0.6);
  // the next round clips to what was seen in this one
  average.reset();
  ASSERT_TRUE(average.clip(2.5));
  ASSERT_TRUE(add(average, honest, 10, "site-1"));
  ASSERT_TRUE(average.finish());
  EXPECT_DOUBLE_EQ(numbers_of(result)[2], 2);
}

TEST(ClippedAverage, An_old_value_that_is_no_number_has_no_difference_that_could_be_shortened) {
  const double infinite = std::numeric_limits<double>::infinity();
  const model base = wide({0, -infinite, no_number}), one = wide({30, 6, 2}), two = wide({3, 8, 4});
  model result = wide({0, 0, 0});
  auto average = *average_type::make(result.destination(), {.base = base.source(), .longest = 3});
  ASSERT_TRUE(add(average, one, 1, "1"));
  ASSERT_TRUE(add(average, two, 1, "2"));
  EXPECT_EQ(average.updates()[0].norm, 30);
  ASSERT_TRUE(average.finish());
  const auto is = numbers_of(result);
  EXPECT_DOUBLE_EQ(is[0], 3);
  EXPECT_DOUBLE_EQ(is[1], 7);
  EXPECT_DOUBLE_EQ(is[2], 3);
}

TEST(ClippedAverage, A_difference_without_a_length_is_refused_with_its_client_and_its_tensor_and_adds_nothing) {
  const model base = wide({0, 0}), good = wide({1, 2});
  for (const double value : {1e200, no_number}) {
    const model bad = wide({1, value});
    model result = wide({0, 0});
    auto average = *average_type::make(result.destination(),
                                       {.base = base.source(), .refuse_no_numbers = false, .longest = 10});
    const auto refused = add(average, bad, 1, "site-2");
    ASSERT_EQ(code_of(refused), errc::value_out_of_range);
    EXPECT_EQ(refused.error().name.view(), "site-2");
    EXPECT_EQ(average.find("site-2")->refused_tensor, 1U);
    ASSERT_TRUE(add(average, good, 1, "site-1"));
    ASSERT_TRUE(average.finish());
    EXPECT_EQ(numbers_of(result), numbers_of(good));
  }
}

TEST(ClippedAverage, Wants_a_length_a_base_and_whole_updates) {
  const model base = wide({0});
  model result = wide({0});
  auto buffers = *tp::chunk_buffers::make(4096);
  using streamed = tp::weighted_average<>;
  EXPECT_EQ(code_of(streamed::make(result.destination(), buffers, {.base = base.source(), .longest = 1})),
            errc::invalid_argument);
  EXPECT_EQ(code_of(average_type::make(result.destination(), {.longest = 1})), errc::invalid_argument);
  auto plain = *average_type::make(result.destination());
  EXPECT_EQ(code_of(plain.clip(1)), errc::invalid_argument) << "there is no base";
  auto average = *average_type::make(result.destination(), {.base = base.source()});
  for (const double none : {-1.0, 0.0, no_number}) EXPECT_EQ(code_of(average.clip(none)), errc::invalid_argument);
  for (const double none : {-1.0, no_number})
    EXPECT_EQ(code_of(average_type::make(result.destination(), {.base = base.source(), .longest = none})),
              errc::invalid_argument);
}

}  // namespace clipped_average_test
