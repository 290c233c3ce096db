// A replica that has few descriptors or places for connections, among strangers and among many recipients at once.
#include "support/child_process.hpp"
#include "support/clocks.hpp"
#include "support/few_descriptors.hpp"
#include "support/frames.hpp"
#include "transports/network.hpp"

#include <tensorpull/core/describe.hpp>
#include <tensorpull/satellites/replica/replica_owner.hpp>

#include <atomic>
#include <latch>
#include <optional>
#include <stop_token>

namespace replica_strangers_test {

using namespace test;

constexpr tp::ref_id shared{61, 62}, unknown{63, 64};
using net = raw_net<mlp, tp::tcp>;

/// A coordinator in a process of its own, so that limits on descriptors are the replica's alone.
class coordinator_elsewhere {
 public:
  explicit coordinator_elsewhere(const mlp& model)
      : child_([&] {
          auto owner = net::downloader::open({.listen = any_port});
          if (!owner || !owner->add_tensors(model, {.id = shared})) return 1;
          said_.tell(owner->port());
          owner->run(std::stop_token());
          return 0;
        }),
        port_(said_.hear()) {}
  std::uint16_t port() const { return port_; }
  void end() { child_.kill(); }

 private:
  one_word<std::uint16_t> said_;
  child_process child_;
  std::uint16_t port_;
};

struct ReplicaStrangers : testing::Test {
  std::unique_ptr<mlp> model = random_model<mlp>(1);
  coordinator_elsewhere coordinator{*model};
  std::optional<tp::replica_of<net>> replica;

  void open(const tp::replica_options& options = {}) {
    // a name, since a file has to be opened to find what it stands for
    auto r = tp::replica_of<net>::open(any_port, "localhost:" + std::to_string(coordinator.port()), options);
    ASSERT_TRUE(r);
    replica.emplace(std::move(*r));
    ASSERT_TRUE(replica->add_tensors(*model, {.id = shared}));
  }
  /// A connection to the replica that takes no descriptor below the limits.
  tp::posix_stream connected_aside() const {
    auto s = tp::tcp_connect(local(replica->port()), steady_clock::now() + 10s);
    EXPECT_TRUE(s);
    return tp::posix_stream(put_aside(s->release()));
  }
  void expect_arrives(tp::posix_stream over) const {
    auto session = net::session::over(std::move(over));
    ASSERT_TRUE(session);
    const auto mine = blank<mlp>();
    const auto done = session->download_tensors(tp::reference{shared, 0, 0}, *mine,
                                                {.per_request_timeout = 200s, .retry = {.retries = 0}});
    ASSERT_TRUE(done) << describe(done.error());
    EXPECT_TRUE(done->confirmed);
    EXPECT_TRUE(same(*mine, *model));
  }
};
// nobody is ended because of time
constexpr tp::connection_budgets patient{.accept = 600s, .stall = 600s, .idle = 600s};

TEST_F(ReplicaStrangers, Q2_those_that_ask_for_what_is_unknown_and_take_all_descriptors_make_room_for_a_recipient) {
  open({.budgets = patient});
  std::vector<raw_peer> strangers;
  for (std::uint32_t i = 0; i < 60; ++i) {
    strangers.emplace_back(connected_aside());
    ASSERT_TRUE(strangers.back().say(request(tp::frame_kind::describe, i, unknown, 0, 0)));
  }
  auto last = connected_aside();
  const fast_clock fast(5);
  const few_descriptors limit(20);
  serving server(*replica);
  expect_arrives(std::move(last));
}

TEST_F(ReplicaStrangers, Q2_silent_ones_that_take_all_descriptors_make_room_for_a_recipient) {
  open({.budgets = patient});
  std::vector<raw_peer> strangers;
  for (int i = 0; i < 60; ++i) strangers.emplace_back(connected_aside());
  auto last = connected_aside();
  const fast_clock fast(5);
  const few_descriptors limit(20);
  serving server(*replica);
  expect_arrives(std::move(last));
}

TEST_F(ReplicaStrangers, Silent_ones_make_room_for_a_recipient_if_a_replica_is_full) {
  open({.max_connections = 4, .budgets = patient});
  serving server(*replica);
  std::vector<raw_peer> strangers;
  for (int i = 0; i < 8; ++i) strangers.emplace_back(replica->port());
  const fast_clock fast(5);
  expect_arrives(connected_aside());
}

TEST_F(ReplicaStrangers, A_silent_one_is_let_alone_at_a_full_replica_if_nobody_waits) {
  open({.max_connections = 2, .budgets = patient});
  serving server(*replica);
  const std::size_t none = descriptors();
  raw_peer first(replica->port());
  EXPECT_TRUE(eventually("it is there", [&] { return descriptors() >= none + 2; }));
  pass_time(2s);  // longer than a silent connection is tolerated while others wait
  raw_peer second(replica->port());
  be_slow(600ms);  // the host looks twice a second
  EXPECT_FALSE(first.ended());
}

TEST_F(ReplicaStrangers, Q2_more_recipients_at_once_than_it_has_descriptors_all_arrive_and_none_is_ended) {
  open({.budgets = patient});
  std::vector<tp::posix_stream> all;
  for (int i = 0; i < 40; ++i) all.push_back(connected_aside());
  std::latch begun(1);  // a sanitizer needs descriptors while a thread is made
  joined_threads recipients(all.size(), [&](std::size_t i) {
    begun.wait();
    expect_arrives(std::move(all[i]));
  });
  const few_descriptors limit(21);
  serving server(*replica);  // they all come within one turn of its loop
  begun.count_down();
  recipients.join();
}

/// Whether a replica that has no descriptor left, and whose strangers wait for one, holds the coordinator for lost.
bool lost_without_descriptors(tp::replica_of<net>& replica) {
  const few_descriptors limit(1);
  const tp::posix_stream last(::dup(0));
  const auto end = steady_clock::now() + 4s;  // it has looked for the coordinator several times
  replica.run([&](const auto&) { return replica.coordinator_lost() || steady_clock::now() >= end; });
  return replica.coordinator_lost();
}

TEST_F(ReplicaStrangers, Q2_what_it_publishes_is_not_lost_because_it_has_no_descriptors) {
  open({.budgets = patient, .gone = 300ms});
  std::vector<raw_peer> strangers;
  for (int i = 0; i < 60; ++i) strangers.emplace_back(connected_aside());
  EXPECT_FALSE(lost_without_descriptors(*replica));
  serving server(*replica);
  expect_arrives(connected_aside());
}

TEST_F(ReplicaStrangers, Q2_a_coordinator_that_is_gone_is_missed_without_descriptors) {
  open({.budgets = patient, .gone = 300ms});
  std::vector<raw_peer> strangers;
  for (int i = 0; i < 60; ++i) strangers.emplace_back(connected_aside());
  coordinator.end();
  EXPECT_TRUE(lost_without_descriptors(*replica));
}

}  // namespace replica_strangers_test
