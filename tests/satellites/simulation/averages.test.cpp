// An update counts exactly once, whatever goes wrong: 20,000 seeds over the three kinds of averages, more with
// TENSORPULL_SIM_SEEDS. A failure prints its seed; TENSORPULL_SIM_FIRST=<seed> TENSORPULL_SIM_SEEDS=1 with the test's
// name runs it again.
#include "averaged_rounds.hpp"

#include <tensorpull/satellites/simulation/run_seeds.hpp>

#include <gtest/gtest.h>

namespace averages_test {

using namespace tensorpull;
using tests::averaged_rounds;
using tests::averaging_report;

template <class Average>
averaging_report run(std::uint64_t per_thousand) {
  auto seeds = tensorpull::testing::seed_range::from_environment(20'000);
  seeds.count = std::max<std::uint64_t>(1, seeds.count * per_thousand / 1000);
  averaging_report sum;
  for (std::uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    const averaging_report one = averaged_rounds<Average>(seed).run();
    sum.add(one);
    EXPECT_EQ(one.first_failure, nullptr) << "seed " << seed << ": " << one.first_failure;
    if (one.first_failure != nullptr) break;
  }
  if (seeds.count < 1000) return sum;
  EXPECT_GT(sum.averages, seeds.count / 4);
  EXPECT_GT(sum.told, seeds.count);
  EXPECT_GT(sum.untold, seeds.count / 10) << "confirmations have to be lost";
  EXPECT_GT(sum.repeats, seeds.count / 2) << "and updates have to come again";
  EXPECT_GT(sum.under_way, seeds.count / 20);
  EXPECT_GT(sum.overtaken, seeds.count / 100);
  EXPECT_EQ(sum.continued > seeds.count / 100, Average::partial != partial_updates::staged);
  return sum;
}

TEST(AverageSimulation, An_update_counts_exactly_once_if_whole_ones_are_wanted) {
  EXPECT_GT((run<weighted_average<>>(400).partial), 0u);
}
TEST(AverageSimulation, An_update_counts_exactly_once_if_its_elements_are_divided_by_what_reached_them) {
  EXPECT_GT((run<weighted_average<partial_updates::divide_by_reached>>(300).changed), 0u);
}
TEST(AverageSimulation, An_update_counts_exactly_once_if_it_is_staged) {
  EXPECT_EQ((run<weighted_average<partial_updates::staged>>(300).changed), 0u);
}

// The oracle can fail.
TEST(AverageSimulationFinds, An_update_that_is_added_a_second_time) {
  std::size_t found = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed)
    found += averaged_rounds<weighted_average<>>(seed, true).run().first_failure != nullptr;
  EXPECT_GT(found, 50u);
}

}  // namespace averages_test
