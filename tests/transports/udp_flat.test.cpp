// UDP costs no memory for each chunk, and none for each participant.
#include "support/allocation_counter.hpp"
#include "udp_network.hpp"

#include <tensorpull/consumers/any_schema/digest.hpp>

namespace udp_flat_test {

using namespace test;

/// What one pull of the model allocates in the whole process, the owner's thread included.
template <class Model>
std::uint64_t allocations_of_a_pull() {
  using net = tp::pipeline<tp::raw_tensors<Model>, fit, tp::udp>;
  const auto mine = blank<Model>();
  owner_at_work<net, Model> o;
  const auto address = local(o.owner->port());
  std::uint64_t count = 0;
  for (int i = 0; i < 3; ++i) {  // the first ones also warm the resolver
    const allocation_watch watch;
    EXPECT_TRUE(net::download_tensors(address, o.ref, *mine));
    count = watch.count();
  }
  return count;
}

TEST(UdpFlat, L12_a_pull_allocates_as_much_for_eleven_thousand_chunks_as_for_one) {
  EXPECT_EQ(allocations_of_a_pull<large>(), allocations_of_a_pull<tiny>());
}

TEST(UdpFlat, C7_participants_that_come_and_go_leave_memory_and_descriptors_as_they_were) {
  auto owner = udp_net::downloader::open({.peers = 8, .budgets = {.idle_if_full = 1ms}});
  const auto source = random_model<mlp>(1), mine = blank<mlp>();
  serving server(*owner);
  const auto address = local(owner->port());
  // the least of ten rounds: a recipient that asks once more, since this machine was busy, allocates a little more
  std::uint64_t early = ~std::uint64_t{0}, late = early;
  std::size_t files = 0, memory = 0;
  for (int round = 0; round < 60; ++round) {
    server.stop();
    const auto ref = *owner->add_tensors(*source, {.recipients = 3});
    serving again(*owner);
    const auto pull = [&] { return udp_net::download_tensors(address, ref, *mine); };  // each from a port of its own
    ASSERT_TRUE(pull()) << round;  // what a thread allocates when it starts is over once it has answered
    const allocation_watch watch;
    ASSERT_TRUE(pull() && pull()) << round;
    auto& least = round < 30 ? early : late;
    if (round % 30 >= 20) least = std::min(least, watch.count());
    again.stop();
    ASSERT_TRUE(owner->settled(ref));
    ASSERT_LE(owner->peers(), 8u);
    if (round == 10) files = descriptors(), memory = resident_bytes();
  }
  EXPECT_EQ(late, early);
  EXPECT_EQ(descriptors(), files);
#if !defined(TENSORPULL_TEST_SANITIZED)  // which keeps freed memory
  EXPECT_LT(resident_bytes(), memory + memory / 20);
#endif
  EXPECT_GT(owner->counts().pushed_out, 100u);
}

TEST(UdpFlat, An_owner_allocates_nothing_while_it_serves) {
  auto owner = udp_net::downloader::open();
  const auto source = random_model<mlp>(1);
  const auto ref = *owner->add_tensors(*source);
  std::vector<stranger> all;
  for (int i = 0; i < 20; ++i) all.emplace_back(owner->port());
  const auto ask = describe_of(ref);
  const allocation_watch watch;
  for (auto& s : all) s.say(0, ask.bytes());
  for (int i = 0; i < 20; ++i) owner->run([n = 0](const auto&) mutable { return n++ > 0; });
  EXPECT_EQ(watch.count(), 0u);
  EXPECT_EQ(owner->counts().strangers, 20u);
}

}  // namespace udp_flat_test
