// A serial line keeps every requirement of a datagram link, over two pseudo-terminals.
#include "support/allocation_counter.hpp"
#include "support/noisy_line.hpp"

#include <tensorpull/links/serial/serial_link.hpp>
#include <tensorpull/testing/conformance/datagram_conformance.hpp>
#include <tensorpull/transports/over/serial/serial_port.hpp>

#include <gtest/gtest.h>

#include <memory>

namespace serial_conformance_test {

using namespace tensorpull;
using namespace tensorpull::testing;

/// A new line each time. The one before goes on, since a check may have a second pair.
template <std::size_t MostBytes>
struct over_ptys {
  std::uint64_t rate;
  std::shared_ptr<test::noisy_line> line, before;
  result<datagram_pair<serial_link<serial_port, MostBytes>>> operator()() {
    before = std::exchange(line, std::make_shared<test::noisy_line>(test::line_noise{}, rate));
    auto left = open(line->left()), right = open(line->right());
    if (!left || !right) return failure(left ? right.error() : left.error());
    return datagram_pair<serial_link<serial_port, MostBytes>>{serial_link<serial_port, MostBytes>(std::move(*left)),
                                                              serial_link<serial_port, MostBytes>(std::move(*right)),
                                                              {}};
  }
  static result<serial_port> open(const std::string& path) {
    const auto where = parse_serial_address(path);
    return where ? serial_port::open(*where) : failure(where.error());
  }
  void damage_next() const noexcept { line->damage_next(); }
};

template <std::size_t MostBytes>
void expect_all(std::uint64_t rate) {
  const auto r = check_datagram_link(over_ptys<MostBytes>{rate, {}, {}},
                                     {.patience = test::ample_time, .allocations = &test::allocations_so_far});
  EXPECT_TRUE(r.passed());
  EXPECT_GE(r.count(check_result::passed), 25u);
  if (!r.passed() || r.count(check_result::passed) < 25) r.print(stderr);
}
TEST(SerialConformance, Q6_A_serial_line_keeps_every_requirement) {
  expect_all<128>(0);
  expect_all<640>(0);
}
TEST(SerialConformance, So_does_a_slow_one) { expect_all<256>(460'800); }

}  // namespace serial_conformance_test
