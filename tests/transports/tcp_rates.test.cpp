// An owner that may send only so much, over TCP.
#include "transports/network.hpp"

namespace tcp_rates_test {

using namespace test;
template <class Tcp>
using net = raw_net<mlp, Tcp>;

/// Two recipients of 400 KB each; how long both took.
template <class Tcp>
steady_clock::duration both(const tp::send_limits& limits, std::size_t threads) {
  using net = tcp_rates_test::net<Tcp>;
  const auto source = random_model<mlp>(1);
  auto owner = net::downloader::open({.listen = any_port, .host = {.limits = limits}});
  EXPECT_TRUE(owner);
  const auto ref = owner->add_tensors(*source, {.recipients = 2});
  EXPECT_TRUE(ref);
  serving run(*owner, threads);
  const auto start = steady_clock::now();
  {
    const auto pull = [&] {
      auto mine = blank<mlp>();
      const auto done = net::download_tensors(local(owner->port()), *ref, *mine);
      EXPECT_TRUE(succeeded(done));
      EXPECT_TRUE(same(*source, *mine));
    };
    joined_thread a(pull), b(pull);
  }
  const auto took = steady_clock::now() - start;
  run.stop();
  EXPECT_TRUE(owner->settled(*ref));
  return took;
}

// 806 KB and a burst of 50 KB at 800 KB a second. A machine that is busy only takes longer.
TEST(TcpRates, An_owner_sends_no_faster_than_it_may) {
  EXPECT_GE(both<tp::tcp>({.owner_bytes_per_second = 800'000}, 1), 900ms);
}
TEST(TcpRates, Nor_to_one_recipient) { EXPECT_GE(both<tp::tcp>({.recipient_bytes_per_second = 400'000}, 1), 900ms); }
TEST(TcpRates, Nor_on_many_threads) {
  EXPECT_GE(both<tp::tcp_on_threads>({.owner_bytes_per_second = 1'600'000, .recipient_bytes_per_second = 600'000}, 3),
            550ms);
}

}  // namespace tcp_rates_test
