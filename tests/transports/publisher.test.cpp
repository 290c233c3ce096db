// The owner role on a host: what is kept how long, and when budgets begin.
#include "network.hpp"

#include <tensorpull/transports/host_budget.hpp>

#include <memory>

namespace {

using namespace test;
using namespace std::chrono_literals;
using net = tp::pipeline<tp::loopback, tp::raw_tensors<mlp>, tp::fixed_bytes<64_KiB>>;

TEST(Publisher, Keeps_each_new_version_that_takes_the_place_of_another_while_every_slot_is_in_use) {
  const auto owner = std::make_unique<net::downloader>();
  std::vector<tp::reference> refs;
  std::weak_ptr<mlp> newest;
  const auto add = [&](tp::ref_id id) {
    std::shared_ptr<mlp> m = random_model<mlp>(refs.size() + 1);
    newest = m;
    return owner->add_tensors(std::move(m), {.id = id});
  };
  for (;;) {
    const auto ref = add({});
    if (!ref) break;
    refs.push_back(*ref);
  }
  EXPECT_TRUE(newest.expired()) << "what could not be published is not kept";
  ASSERT_FALSE(refs.empty());
  for (int i = 0; i < 3; ++i) {
    const auto again = add(refs[0].id);
    ASSERT_TRUE(again);
    EXPECT_FALSE(newest.expired());
    const auto mine = blank<mlp>();
    EXPECT_TRUE(net::download_tensors(*owner, *again, *mine));
  }
  const auto before = newest;
  ASSERT_TRUE(add(refs[0].id));
  EXPECT_TRUE(before.expired());
}

TEST(Publisher, T7_budgets_begin_with_publishing_and_not_with_the_clock) {
  const auto owner = std::make_unique<net::downloader>();
  const auto source = random_model<mlp>(1);
  const std::array who{tp::recipient_id{5}};
  const auto ref = owner->add_tensors(*source, {.named = who, .budgets = {.acquire = std::chrono::minutes(1), .transaction_idle = std::chrono::minutes(1)}});
  ASSERT_TRUE(ref);
  owner->tick();
  EXPECT_FALSE(owner->settled(*ref)) << "nothing has passed yet";
}

TEST(Publisher, A_callback_may_publish_and_withdraw) {
  const auto owner = std::make_unique<net::downloader>();
  tp::reference next{};
  auto settled = [&](const tp::settlement&) {
    if (const auto r = owner->add_tensors(std::shared_ptr<mlp>(random_model<mlp>(2)))) next = *r;
  };
  const auto ref = owner->add_tensors(std::shared_ptr<mlp>(random_model<mlp>(1)), {.recipients = 1, .settled = settled});
  ASSERT_TRUE(ref);
  ASSERT_TRUE(owner->withdraw(*ref));
  const auto mine = blank<mlp>();
  EXPECT_TRUE(net::download_tensors(*owner, next, *mine));
}

TEST(ConnectionBudgets, The_longest_times_never_pass) {
  constexpr auto never = std::chrono::milliseconds::max();
  const tp::connection_budgets budgets{.accept = never, .stall = never, .idle = never, .frame = never};
  const auto start = std::chrono::steady_clock::now();
  for (const bool owing : {false, true})
    for (const bool heard : {false, true}) {
      tp::detail::budget_watch watch(start);
      for (const auto later : {0ms, 1ms, 1'000'000ms})
        EXPECT_FALSE(watch.over(budgets, start + later, {.bytes = 1, .heard = heard, .long_frame = 1, .owing = owing})) << owing << heard;
    }
}

}  // namespace
