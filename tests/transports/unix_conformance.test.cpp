#include "support/allocation_counter.hpp"
#include "support/own_folder.hpp"

#include <tensorpull/testing/conformance/transport_conformance.hpp>
#include <tensorpull/transports/over/unix_socket/unix_socket.hpp>

#include <gtest/gtest.h>

#include <string>

namespace unix_conformance_test {

using namespace tensorpull;
using namespace tensorpull::testing;

result<stream_pair<unix_stream>> connected() {
  using namespace std::chrono_literals;
  const std::string name = test::abstract_name();
  auto listener = unix_listener::open(name);
  if (!listener) return failure(listener.error());
  auto left = unix_connect(name, 5s);
  if (!left) return failure(left.error());
  auto right = listener->accept(5s);
  if (!right) return failure(right.error());
  return stream_pair<unix_stream>{std::move(*left), std::move(*right)};
}

TEST(UnixConformance, Q5_UnixSocketsKeepEveryRequirement) {
  const auto report = check_byte_stream(connected, {.allocations = &test::allocations_so_far});
  EXPECT_TRUE(report.passed());
  EXPECT_GE(report.count(check_result::passed), 35u);
  if (!report.passed()) report.print(stderr);
}

}  // namespace unix_conformance_test
