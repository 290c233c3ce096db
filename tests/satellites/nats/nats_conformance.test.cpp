// A NATS link keeps every requirement of a datagram link.
#include "nats_fixture.hpp"
#include "support/allocation_counter.hpp"

#include <tensorpull/satellites/nats/nats_peer.hpp>
#include <tensorpull/testing/conformance/datagram_conformance.hpp>

namespace nats_conformance_test {

using namespace tensorpull;
using namespace tensorpull::testing;
using NatsConformance = test::nats_test;

struct over_a_server {
  std::string url;
  result<datagram_pair<nats_link>> operator()() const {
    auto left = nats_link::connect({.url = url}), right = nats_link::connect({.url = url});
    if (!left || !right) return failure(left ? right.error() : left.error());
    const nats_subject to = right->inbox();
    return datagram_pair<nats_link>{std::move(*left), std::move(*right), to};
  }
};

TEST_F(NatsConformance, Q6_a_nats_link_keeps_every_requirement) {
  const test::nats_process server;
  const auto r = check_datagram_link(over_a_server{server.url()}, {.allocations = &test::allocations_so_far});
  EXPECT_TRUE(r.passed());
  EXPECT_GE(r.count(check_result::passed), 20u);
  if (!r.passed() || r.count(check_result::passed) < 20) r.print(stderr);
}

struct over_a_meeting {
  std::string url;
  int* made;
  result<datagram_pair<nats_peer<nats_link>>> operator()() const {
    const std::string name = "pair." + std::to_string(++*made);
    const nats_meeting where{{.url = url}, name};
    auto right = where.open();
    auto left = where.connect(std::chrono::seconds(10));
    if (!left || !right) return failure(left ? right.error() : left.error());
    return datagram_pair<nats_peer<nats_link>>{std::move(*left), std::move(*right), {}};
  }
};

TEST_F(NatsConformance, Q6_an_end_of_a_session_keeps_every_requirement) {
  const test::nats_process server;
  int made = 0;
  const auto r = check_datagram_link(over_a_meeting{server.url(), &made}, {.allocations = &test::allocations_so_far});
  EXPECT_TRUE(r.passed());
  EXPECT_GE(r.count(check_result::passed), 20u);
  if (!r.passed() || r.count(check_result::passed) < 20) r.print(stderr);
}

}  // namespace nats_conformance_test
