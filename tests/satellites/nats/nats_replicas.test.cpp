#include "nats_network.hpp"
#include "support/child_process.hpp"

#include <atomic>
#include <functional>
#include <optional>
#include <vector>

namespace nats_replicas_test {

using namespace test;
using namespace tensorpull;

using NatsReplicas = nats_test;

constexpr ref_id shared{11, 22};
constexpr nats_patience short_patience{.gone = 1s};

/// An owner in a process of its own, that can be killed. The process ends with the test.
class owner_process {
 public:
  /// The process waits until begin(). Made before this one has threads: a child has their locks as they are, and
  /// nobody to open them.
  owner_process(const nats_process& server, nats_part part, std::uint64_t seed)
      : child_([&] {
          if (go_.hear() != 'g') return 1;
          const auto model = random_model<large>(seed);
          auto owner = nats_owner_at<large>(server, part);
          ready_.tell(owner.add_tensors(*model, {.id = shared}) ? 'y' : 'n');
          owner.run(stop_token());
          return 0;
        }) {}
  /// It publishes and serves.
  void begin() {
    go_.tell('g');
    EXPECT_EQ(ready_.hear(), 'y');
  }
  void kill() { child_.kill(); }

 private:
  one_word<char> go_, ready_;
  child_process child_;
};

/// Calls something once, when a share of the bytes is there, and looks whether they ever become fewer.
struct at_share {
  std::uint64_t bytes;
  std::function<void()> call;
  std::uint64_t seen = 0;
  bool shrank = false;
  void operator()(const progress_event& e) {
    shrank |= e.bytes_done < seen;
    seen = e.bytes_done;
    if (e.bytes_done >= bytes && call) std::exchange(call, nullptr)();
  }
};

TEST_F(NatsReplicas, Share_the_work_and_one_that_is_killed_changes_nothing) {
  const nats_process server;
  owner_process first(server, nats_part::replica, 5), second(server, nats_part::replica, 5);
  auto owner = nats_owner_at<large>(server);
  const auto model = random_model<large>(5);
  const auto ref = owner.add_tensors(*model, {.recipients = 2, .id = shared});
  ASSERT_TRUE(ref);
  serving on(owner);
  first.begin(), second.begin();  // a replica waits five seconds for a coordinator, and no longer
  for (int round = 0; round < 2; ++round) {
    auto mine = blank<large>();
    at_share kill{sizeof(large) / 4, [&] { first.kill(); }};
    const auto done = nats_net<large>::download_tensors(server.url(), *ref, *mine,
                                                        {.progress = kill, .progress_interval = 0ms});
    ASSERT_TRUE(done) << to_string(done.error().code) << done.error().at;
    EXPECT_EQ(done->outcome, outcome::completed);
    EXPECT_TRUE(done->confirmed);
    EXPECT_TRUE(same(*mine, *model));
    EXPECT_FALSE(kill.shrank);
  }
  on.stop();
  const auto how = owner.settlement_of(*ref);
  EXPECT_EQ(how->verdict, verdict::completed);
  EXPECT_LT(how->counts.bytes_sent, 2 * sizeof(large) * 9 / 10) << "the replicas have sent nothing";
}

TEST_F(NatsReplicas, Without_a_coordinator_the_transaction_ends_as_owner_lost) {
  const nats_process server;
  owner_process coordinator(server, nats_part::coordinator, 6);
  coordinator.begin();
  const auto model = random_model<large>(6);
  verdict how = verdict::open;
  const auto settled = [&](const settlement& s) { how = s.verdict; };
  auto replica = nats_owner_at<large>(server, nats_part::replica, short_patience);
  const auto ref = replica.add_tensors(*model, {.settled = settled, .id = shared});
  ASSERT_TRUE(ref);
  EXPECT_FALSE(replica.settled(*ref));
  serving on(replica);
  auto mine = blank<large>();
  resume_cursor cursor;
  at_share kill{sizeof(large) / 2, [&] { coordinator.kill(); }};
  const std::string url = server.url();
  const auto lost = nats_net<large>::download_tensors(nats_address{{.url = url}, short_patience}, *ref, *mine,
                                                      {.cursor = &cursor, .progress = kill, .progress_interval = 0ms});
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code, errc::owner_lost) << to_string(lost.error().code);
  EXPECT_GE(lost.error().at, sizeof(large) / 2);
  EXPECT_EQ(cursor.offset, lost.error().at);
  on.stop();
  EXPECT_FALSE(replica.run(until_settled(*ref), within(ample_time)));
  EXPECT_EQ(how, verdict::owner_lost);
  EXPECT_EQ(replica.settlement_of(*ref)->verdict, verdict::owner_lost);

  // another takes over, under the same reference: what was verified is not fetched again
  auto owner = nats_owner_at<large>(server);
  ASSERT_TRUE(owner.add_tensors(*model, {.recipients = 1, .id = shared}));
  serving again(owner);
  const auto done = nats_net<large>::download_tensors(url, *ref, *mine, {.cursor = &cursor});
  ASSERT_TRUE(done) << to_string(done.error().code);
  EXPECT_TRUE(same(*mine, *model));
  again.stop();
  EXPECT_LE(owner.status_of(*ref)->bytes_sent, sizeof(large) / 2 + 64_KiB);
  EXPECT_EQ(owner.settlement_of(*ref)->verdict, verdict::completed);
}

TEST_F(NatsReplicas, Wait_for_nobody_in_a_transaction_of_their_own_either) {
  const nats_process server;
  const auto model = random_model<large>(6);
  for (const bool coordinates : {false, true}) {
    auto owner = nats_owner_at<large>(server, coordinates ? nats_part::coordinator : nats_part::replica);
    const recipient_id names[] = {{5}, {6}};
    const auto in = owner.open_transaction({.named = names});
    ASSERT_TRUE(in);
    const auto ref = owner.add_tensors(*model, {.id = shared, .transaction = *in});
    ASSERT_TRUE(ref);
    owner.seal(*in);
    ASSERT_TRUE(owner.withdraw(*ref));
    EXPECT_EQ(owner.settlement_of(*ref)->expected, coordinates ? 2u : 0u);
  }
}

TEST_F(NatsReplicas, A_coordinator_that_comes_back_in_time_is_not_lost) {
  const nats_process server;
  owner_process coordinator(server, nats_part::coordinator, 7), next(server, nats_part::coordinator, 7);
  const auto model = random_model<large>(7);
  auto replica = nats_owner_at<large>(server, nats_part::replica, {.gone = 600s});
  const auto ref = replica.add_tensors(*model, {.id = shared});
  ASSERT_TRUE(ref);
  serving on(replica);
  coordinator.begin();
  auto mine = blank<large>();
  at_share restart{sizeof(large) / 2, [&] {
                     coordinator.kill();
                     next.begin();
                   }};
  const auto done = nats_net<large>::download_tensors(server.url(), *ref, *mine,
                                                      {.progress = restart, .progress_interval = 0ms});
  ASSERT_TRUE(done) << to_string(done.error().code);
  EXPECT_EQ(done->outcome, outcome::completed);
  EXPECT_TRUE(same(*mine, *model));
  EXPECT_FALSE(restart.shrank);
}

// It answers nothing, so a recipient is not told by it what only another can know.
TEST_F(NatsReplicas, One_with_other_content_is_silent) {
  const nats_process server;
  const auto model = random_model<mlp>(8), other = random_model<mlp>(9);
  auto replica = nats_owner_at<mlp>(server, nats_part::replica);
  ASSERT_TRUE(replica.add_tensors(*other, {.id = shared}));
  serving on(replica);
  auto owner = nats_owner_at<mlp>(server);
  const auto ref = owner.add_tensors(*model, {.recipients = 1, .id = shared});
  ASSERT_TRUE(ref);
  serving too(owner);
  auto mine = blank<mlp>();
  const auto done = nats_net<mlp>::download_tensors(server.url(), *ref, *mine);
  ASSERT_TRUE(done) << to_string(done.error().code);
  EXPECT_TRUE(same(*mine, *model));
}

}  // namespace nats_replicas_test
