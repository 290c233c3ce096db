// When withdraw() or until_settled says that a transaction is over, no callback of it runs on any thread, and none
// will.
#include "network.hpp"
#include "support/frames.hpp"

#include <atomic>
#include <latch>
#include <mutex>
#include <stop_token>

namespace publisher_threads_test {

using namespace test;
using net = raw_net<tiny, tp::tcp_on_threads>;
using publisher = tp::publisher<net::parts, tp::detail::thread_lock>;

/// A recipient asks, so that a progress event is due.
void ask(publisher& p, publisher::owner_type::peer& from, const tp::reference& ref, std::uint64_t who) {
  tp::frame m;
  m.kind = tp::frame_kind::describe;
  m.ref = ref.id;
  m.recipient = {who};
  tp::pending_reply r;
  EXPECT_TRUE(p.machine().handle(from, m, r));
}
/// Long enough for a thread that does not wait to be caught at it.
void linger() { be_slow(50ms); }

TEST(PublisherThreads, Withdraw_returns_when_the_progress_callback_of_another_thread_has_returned) {
  const auto model = random_model<tiny>(1);
  std::atomic<bool> inside = false;
  std::latch entered(1);
  auto tell = [&](const tp::progress_event&) {
    if (inside.exchange(true)) return;
    entered.count_down();
    linger();
    inside = false;
  };
  publisher p;
  const auto ref = *p.add_tensors(*model, {.progress = tell, .progress_interval = 0ms});
  publisher::owner_type::peer peer;
  ask(p, peer, ref, 1);
  joined_thread other([&] { p.tick(); });
  entered.wait();
  EXPECT_FALSE(p.settled(ref));
  EXPECT_TRUE(p.withdraw(ref));
  EXPECT_FALSE(inside) << "the callback, and what it borrows, may go away now";
  EXPECT_TRUE(p.settled(ref));
}

TEST(PublisherThreads, A_reference_has_settled_when_its_callback_has_returned_and_the_model_is_released) {
  publisher p;
  std::shared_ptr<tiny> model = random_model<tiny>(1);
  const std::weak_ptr<tiny> kept = model;
  std::atomic<bool> returned = false;
  std::latch entered(1);
  tp::reference ref{};
  bool seen_from_within = false;
  auto tell = [&](const tp::settlement&) {
    seen_from_within = p.settled(ref);
    entered.count_down();
    linger();
    returned = true;
  };
  const std::array who{tp::recipient_id{5}};
  ref = *p.add_tensors(std::move(model), {.named = who, .budgets = {.acquire = 1ms}, .settled = tell});
  joined_thread other([&] {
    while (!returned) p.tick();
  });
  entered.wait();
  ASSERT_TRUE(eventually("it is settled", [&] { return p.settled(ref); }));
  EXPECT_TRUE(returned);
  EXPECT_TRUE(kept.expired());
  EXPECT_TRUE(seen_from_within);
}

TEST(PublisherThreads,
     A_callback_that_withdraws_its_own_reference_does_not_wait_for_itself_and_none_begins_afterwards) {
  publisher p;
  std::shared_ptr<tiny> model = random_model<tiny>(1);
  const std::weak_ptr<tiny> kept = model;
  tp::reference ref{};
  int settled = 0, after = 0;
  bool withdrawn = false, kept_meanwhile = false;
  auto tell_settled = [&](const tp::settlement&) { ++settled, after += withdrawn; };
  auto tell = [&](const tp::progress_event&) {
    after += withdrawn;
    if (withdrawn || settled > 0) return;
    EXPECT_TRUE(p.withdraw(ref));
    EXPECT_TRUE(p.settled(ref));
    withdrawn = true;
    kept_meanwhile = !kept.expired();  // this callback may be in it
  };
  ref = *p.add_tensors(std::move(model), {.settled = tell_settled, .progress = tell, .progress_interval = 0ms});
  publisher::owner_type::peer peer;
  ask(p, peer, ref, 1);
  p.tick();
  p.tick();
  EXPECT_TRUE(withdrawn);
  EXPECT_EQ(settled, 1);
  EXPECT_EQ(after, 0);
  EXPECT_TRUE(kept_meanwhile);
  EXPECT_TRUE(kept.expired());
}

TEST(PublisherThreads, Two_callbacks_that_withdraw_each_others_references_do_not_wait_for_each_other) {
  publisher p;
  const auto model = random_model<tiny>(1);
  std::array<tp::reference, 2> refs;
  std::array<std::atomic<int>, 2> settled{};
  std::latch both(2);
  std::array<std::atomic<bool>, 2> first{true, true};
  const auto withdraw_other = [&](std::size_t me) {
    if (!first[me].exchange(false)) return;
    both.arrive_and_wait();
    EXPECT_TRUE(p.withdraw(refs[1 - me]));
    EXPECT_EQ(settled[1 - me], 1);
  };
  auto tell0 = [&](const tp::progress_event&) { withdraw_other(0); };
  auto tell1 = [&](const tp::progress_event&) { withdraw_other(1); };
  auto settled0 = [&](const tp::settlement&) { ++settled[0]; };
  auto settled1 = [&](const tp::settlement&) { ++settled[1]; };
  refs[0] = *p.add_tensors(*model, {.settled = settled0, .progress = tell0});
  refs[1] = *p.add_tensors(*model, {.settled = settled1, .progress = tell1});
  publisher::owner_type::peer peers[2];
  ask(p, peers[0], refs[0], 1);
  ask(p, peers[1], refs[1], 2);
  {
    joined_thread a([&] { p.tick(); }), b([&] { p.tick(); });
  }
  for (const tp::reference& r : refs) EXPECT_TRUE(p.settled(r));
  EXPECT_EQ(settled[0], 1);
  EXPECT_EQ(settled[1], 1);
}

/// Once withdrawn, every call would be of an object that is gone: run it under the address sanitizer, too.
TEST(PublisherThreads, Callbacks_never_outlive_a_withdrawal_while_threads_tick_ask_and_withdraw) {
  publisher p;
  const auto model = random_model<tiny>(1);
  std::atomic<int> late = 0;
  struct heard {
    std::atomic<int>* late;
    std::atomic<bool> over = false;
    std::atomic<int> settled = 0;
    void operator()(const tp::progress_event&) { *late += over; }
    void operator()(const tp::settlement&) { *late += over, ++settled; }
  };
  joined_threads ticking(3, [&](std::size_t, const std::stop_token& stop) {
    while (!stop.stop_requested()) p.tick();
  });
  on_threads(3, [&](std::size_t t) {
    for (std::uint64_t i = 0; i < 300; ++i) {
      const auto told = std::make_unique<heard>();
      told->late = &late;
      const auto ref = p.add_tensors(*model, {.settled = *told, .progress = *told, .progress_interval = 0ms});
      ASSERT_TRUE(ref);
      publisher::owner_type::peer peer;
      for (std::uint64_t k = 0; k < 8; ++k) ask(p, peer, *ref, 1 + t * 100 + k);
      p.machine().forget(peer);
      ASSERT_TRUE(p.withdraw(*ref));
      EXPECT_EQ(told->settled, 1);
      told->over = true;
    }
  });
  ticking.request_stop();
  ticking.join();
  EXPECT_EQ(late, 0);
}

TEST(PublisherThreads, An_owner_on_threads_has_called_back_when_run_until_settled_returns) {
  auto owner = *net::downloader::open({});
  const auto model = random_model<tiny>(1);
  serving others(owner, 2);
  for (int i = 0; i < 20; ++i) {
    std::atomic<int> state = 0;
    auto tell = [&](const tp::settlement&) {
      state = 1;
      be_slow(5ms);
      state = 2;
    };
    const auto ref = *owner.add_tensors(*model, {.recipients = 1, .settled = tell});
    joined_thread pull([&] {
      const auto mine = blank<tiny>();
      EXPECT_TRUE(net::download_tensors(local(owner.port()), ref, *mine));
    });
    EXPECT_TRUE(owner.run(tp::until_settled(ref), within(ample_time)));
    ASSERT_EQ(state, 2) << "in round " << i;
  }
}
TEST(PublisherThreads, Run_until_settled_is_false_if_it_was_withdrawn_before_anybody_had_it) {
  auto owner = *net::downloader::open({});
  const auto model = random_model<tiny>(1);
  const auto ref = *owner.add_tensors(*model, {.recipients = 1});
  ASSERT_TRUE(owner.withdraw(ref));
  EXPECT_FALSE(owner.run(tp::until_settled(ref), within(ample_time)));
  EXPECT_TRUE(owner.run([](const auto&) { return true; }, within(ample_time)));
}

}  // namespace publisher_threads_test
