// UDP sockets keep every requirement of a datagram link.
#include "support/allocation_counter.hpp"

#include <tensorpull/testing/conformance/datagram_conformance.hpp>
#include <tensorpull/transports/over/udp/udp_link.hpp>

#include <gtest/gtest.h>

namespace udp_conformance_test {

using namespace tensorpull;
using namespace tensorpull::testing;

TEST(UdpConformance, Q6_UDP_keeps_every_requirement) {
  const auto pair = []() -> result<datagram_pair<udp_link>> {
    auto left = udp_link::open("127.0.0.1:0"), right = udp_link::open("127.0.0.1:0");
    if (!left || !right) return failure(left ? right.error() : left.error());
    udp_address there;  // 127.0.0.1 and the port
    there.host = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};
    there.port = right->port();
    return datagram_pair<udp_link>{std::move(*left), std::move(*right), there};
  };
  const auto r = check_datagram_link(pair, {.allocations = &test::allocations_so_far});
  EXPECT_TRUE(r.passed());
  EXPECT_GE(r.count(check_result::passed), 28u);
  if (!r.passed() || r.count(check_result::passed) < 28) r.print(stderr);
}

}  // namespace udp_conformance_test
