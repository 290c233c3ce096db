// NATS costs a constant number of threads, a stated number of allocations for each datagram, and nothing for each
// participant.
#include "nats_network.hpp"
#include "support/allocation_counter.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace nats_flat_test {

using namespace test;
using NatsFlat = nats_test;

// In a program of its own this is before libnats's first connection; otherwise its threads are there already.
TEST_F(NatsFlat, Libnats_has_three_threads_for_many_recipients_and_rounds) {
  const nats_process server;
  const bool first = threads_at_rest() == 1;
  std::size_t before = threads_at_rest() + (first ? tp::nats_link::library_threads : 0);
  auto owner = nats_owner_at<mlp>(server);
  EXPECT_EQ(threads_at_rest(), before);
  const auto source = random_model<mlp>(1);
  for (int round = 0; round < 3; ++round) {
    const auto ref = *owner.add_tensors(*source, {.recipients = 8});
    std::size_t most = 0;
    {
      const joined_threads all(8, [&](std::size_t) {
        const auto mine = blank<mlp>();
        EXPECT_TRUE(nats_net<mlp>::download_tensors(server.url(), ref, *mine));
      });
      EXPECT_TRUE(runs_until("all have pulled", owner, [&] {
        most = std::max(most, threads());
        return owner.settled(ref);
      }));
    }
    EXPECT_LE(most, before + 8) << "a recipient has a thread besides its own";
    EXPECT_EQ(threads_at_rest(), before);
  }
}

/// What one pull of the model allocates in the whole process, the owner's thread included, and for how many chunks.
template <class Model>
std::pair<std::uint64_t, std::uint64_t> allocations_of_a_pull(const nats_process& server) {
  auto owner = nats_owner_at<Model>(server);
  const auto source = random_model<Model>(1), mine = blank<Model>();
  const auto ref = *owner.add_tensors(*source);
  serving on(owner);
  const std::string url = server.url();
  std::pair<std::uint64_t, std::uint64_t> last{};
  for (int i = 0; i < 3; ++i) {  // the first ones also grow libnats's buffers
    const allocation_watch watch;
    const auto done = nats_net<Model>::download_tensors(url, ref, *mine);
    EXPECT_TRUE(done);
    last = {watch.count(), done ? done->chunks : 0};
  }
  return last;
}

TEST_F(NatsFlat, L12_a_chunk_costs_no_allocation_of_ours_and_of_libnats_what_is_stated) {
  const nats_process server;
  const auto [few, one] = allocations_of_a_pull<tiny>(server);
  const auto [many, chunks] = allocations_of_a_pull<large>(server);
  ASSERT_GT(chunks, 150u);
  // each chunk is a message that is received at the recipient, and a part of one that is received at the owner
  EXPECT_LE(many - few, 2 * tp::nats_link::allocations_per_datagram * (chunks - one) + 100);
}

TEST_F(NatsFlat, C7_participants_that_come_and_go_leave_memory_threads_and_descriptors_as_they_were) {
  const nats_process server;
  const std::string url = server.url();
  auto owner = nats_net<mlp>::downloader::open({.server = {.url = url, .timeout = std::chrono::minutes(1)},
                                                .serving = {.peers = 8, .budgets = {.idle_if_full = 1ms}}});
  ASSERT_TRUE(owner);
  const auto source = random_model<mlp>(1), mine = blank<mlp>();
  std::size_t files = 0, memory = 0, running = 0;
  for (int round = 0; round < 100; ++round) {
    const auto ref = owner->add_tensors(*source, {.recipients = 3});
    ASSERT_TRUE(ref) << describe(ref.error());
    serving on(*owner);
    for (int i = 0; i < 3; ++i) {
      const auto done = nats_net<mlp>::download_tensors(url, *ref, *mine);  // each from an inbox of its own
      ASSERT_TRUE(done) << round << describe(done.error());
    }
    on.stop();
    ASSERT_TRUE(owner->settled(*ref));
    ASSERT_LE(owner->peers(), 8u);
    if (round == 70)
      // all places for references were used
      files = descriptors(), memory = resident_bytes(), running = threads_at_rest();
  }
  EXPECT_EQ(descriptors(), files);
  EXPECT_EQ(threads_at_rest(), running);
#if !defined(TENSORPULL_TEST_SANITIZED)  // which keeps freed memory
  EXPECT_LT(resident_bytes(), memory + memory / 10);
#endif
}

}  // namespace nats_flat_test
