// Every allocation that a session makes may fail.
#include <tensorpull/satellites/simulation/simulated_network.hpp>
#include <tensorpull/tensorpull.hpp>
#include <tensorpull/testing/failing_allocation.hpp>

#include <gtest/gtest.h>

namespace failing_session_test {

using namespace tensorpull;
using namespace tensorpull::testing;
using net = pipeline<tensor_list, simulated, fixed_bytes<256>>;

TEST(FailingSession, Q1_a_session_without_memory_is_an_error) {
  virtual_clock clock;
  auto both = connect_simulated(clock, {}, seeded_random(1));
  const failing_allocation fails(1);
  EXPECT_EQ(net::session::over(std::move(both.left)).error(), errc::out_of_memory);
  std::byte b;
  const std::span<std::byte> one(&b, 1);
  EXPECT_EQ(both.right.read_some({&one, 1}).status, io_status::closed) << "the stream was not kept";
}

}  // namespace failing_session_test
