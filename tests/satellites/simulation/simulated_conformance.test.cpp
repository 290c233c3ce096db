// Simulated streams are held to what is asked of every stream.
#include "support/allocation_counter.hpp"

#include <tensorpull/satellites/simulation/simulated_stream.hpp>
#include <tensorpull/testing/conformance/transport_conformance.hpp>

#include <gtest/gtest.h>

#include <memory>

namespace simulated_conformance_test {

using namespace tensorpull;
using namespace tensorpull::testing;
using namespace std::chrono_literals;

struct in_virtual_time {
  wire_conditions conditions{};
  std::shared_ptr<virtual_clock> clock = std::make_shared<virtual_clock>();
  seeded_random random{3};
  result<stream_pair<simulated_stream>> operator()() {
    auto both = connect_simulated(*clock, conditions, random.fork());
    return stream_pair<simulated_stream>{std::move(both.left), std::move(both.right)};
  }
  std::uint64_t now_us() const noexcept { return clock->now(); }
};

const conformance_options strict{.allocations = &test::allocations_so_far};

void expect_all(const conformance_report& r) {
  EXPECT_TRUE(r.passed());
  EXPECT_GE(r.count(check_result::passed), 35u);
  if (!r.passed()) r.print(stderr);
}
TEST(SimulatedConformance, Simulated_streams_keep_every_requirement) {
  expect_all(check_byte_stream(in_virtual_time{}, strict));
  expect_all(check_byte_stream(
      in_virtual_time{
          {.latency = 3ms, .jitter = 2ms, .capacity_bytes = 700, .most_per_read = 90, .most_per_write = 70}},
      strict));
}

}  // namespace simulated_conformance_test
