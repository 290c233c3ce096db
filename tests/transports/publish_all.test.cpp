// Several references that are published as one transaction: all, or none and nothing has changed. And owners whose room
// is chosen when they are opened.
#include "network.hpp"

#include <tensorpull/protocol/owner/owner_room.hpp>
#include <tensorpull/transports/over/udp/udp.hpp>
#include <tensorpull/transports/peers/owner.hpp>

#include <array>
#include <memory>
#include <vector>

namespace publish_all_test {

using namespace test;

struct four_references : tp::default_limits {
  static constexpr std::size_t references = 4;
  static constexpr std::size_t recipients = 6;
};
struct any_number : four_references {
  using owner_room = tp::heap_owner_room;
};
template <class Transport, class Limits = four_references>
using net_of = tp::pipeline<Transport, tp::raw_tensors<mlp>, tp::fixed_bytes<64_KiB>, Limits>;
using net = net_of<tp::loopback>;

struct models {
  std::vector<std::unique_ptr<mlp>> all;
  std::vector<tp::transaction_image> images(std::size_t n, std::uint64_t seed) {
    std::vector<tp::transaction_image> out;
    for (std::size_t i = 0; i < n; ++i) {
      all.push_back(random_model<mlp>(seed + i));
      out.push_back({tp::raw_tensors<mlp>::source(*all.back()), {}});
    }
    return out;
  }
};
bool serves(net::downloader& owner, const tp::reference& ref) {
  const auto mine = blank<mlp>();
  return net::download_tensors(owner, ref, *mine).has_value();
}

TEST(PublishAll, A_transaction_settles_once_when_its_recipients_have_all_references) {
  int told = 0;
  auto settled = [&](const tp::settlement& s) { told += s.references == 3 && s.verdict == tp::verdict::completed; };
  const auto owner = std::make_unique<net::downloader>();
  models m;
  auto images = m.images(3, 1);
  const auto kept = std::make_shared<int>(7);
  const std::weak_ptr<int> alive = kept;
  tp::unique_any keep;
  ASSERT_NE(keep.keep(std::shared_ptr<int>(kept)), nullptr);
  ASSERT_TRUE(owner->add_images(images, {.recipients = 1, .settled = settled}, std::move(keep)));
  const tp::pull_options me{.recipient = {9}};
  for (const auto& x : images) {
    EXPECT_EQ(told, 0);
    EXPECT_NE(x.as.version, 0u);
    const auto mine = blank<mlp>();
    ASSERT_TRUE(net::download_tensors(*owner, x.as, *mine, me));
  }
  owner->deliver();
  EXPECT_EQ(told, 1);
  EXPECT_EQ(kept.use_count(), 1) << "what was kept for it is released";
  EXPECT_TRUE(owner->settled(images[0].as) && owner->settled(images[2].as));
}

TEST(PublishAll, An_error_leaves_what_was_published_as_it_was) {
  const auto owner = std::make_unique<net::downloader>();
  models m;
  const auto kept_model = random_model<mlp>(50);
  const auto old = owner->add_tensors(*kept_model, {.id = {1, 2}});
  ASSERT_TRUE(old);

  auto twice = m.images(2, 60);
  twice[0].as.id = twice[1].as.id = {1, 2};
  auto refused = owner->add_images(twice, {});
  ASSERT_EQ(code_of(refused), errc::invalid_argument);
  EXPECT_EQ(refused.error().at, 1u);
  EXPECT_TRUE(serves(*owner, *old));

  auto many = m.images(4, 70);  // one slot is taken, and three are free
  many[0].as.id = {1, 2};
  refused = owner->add_images(many, {});
  ASSERT_EQ(code_of(refused), errc::table_full);
  EXPECT_TRUE(serves(*owner, *old));
  for (std::size_t i = 1; i < 4; ++i) EXPECT_FALSE(serves(*owner, many[i].as));

  std::vector<tp::recipient_id> names;
  while (names.size() < 33) names.push_back({names.size() + 1});
  auto named = m.images(2, 80);  // 66 records, and there are 64
  named[1].as.id = {1, 2};
  refused = owner->add_images(named, {.named = names});
  EXPECT_EQ(code_of(refused), errc::table_full);
  EXPECT_TRUE(serves(*owner, *old));

  std::vector<tp::transaction_image> nothing;
  EXPECT_EQ(code_of(owner->add_images(nothing, {})), errc::invalid_argument);
  EXPECT_TRUE(serves(*owner, *old));

  auto good = m.images(3, 90);  // and what was refused has used up nothing
  good[2].as.id = {1, 2};
  ASSERT_TRUE(owner->add_images(good, {}));
  for (const auto& x : good) EXPECT_TRUE(serves(*owner, x.as));
  EXPECT_FALSE(serves(*owner, *old)) << "another version has taken its place";
}

TEST(PublishAll, Named_recipients_of_a_transaction_that_is_replaced_make_way_for_themselves) {
  int told = 0;
  auto settled = [&](const tp::settlement& s) { told += s.verdict == tp::verdict::completed; };
  const auto owner = std::make_unique<net::downloader>();
  models m;
  std::vector<tp::recipient_id> names;
  while (names.size() < 32) names.push_back({names.size() + 1});  // all 64 records
  auto first = m.images(2, 1);
  ASSERT_TRUE(owner->add_images(first, {.named = names}));
  auto second = m.images(2, 10);
  for (std::size_t i = 0; i < 2; ++i) second[i].as.id = first[i].as.id;
  ASSERT_TRUE(owner->add_images(second, {.named = names, .settled = settled}));
  for (const auto& x : second)
    for (const auto who : names) {
      const auto mine = blank<mlp>();
      EXPECT_TRUE(net::download_tensors(*owner, x.as, *mine, {.recipient = who}));
    }
  owner->deliver();
  EXPECT_EQ(told, 1);
}

TEST(PublishAll, What_was_replaced_may_be_freed_before_its_progress_is_told) {
  const auto owner = std::make_unique<net::downloader>();
  models m;
  auto old = m.images(2, 1);
  const std::uint64_t bytes = old[0].image.schema->image_bytes, tensors = old[0].image.schema->tensor_count;
  auto schema = *old[0].image.schema;
  old[0].image.schema = &schema;
  std::vector<tp::progress_event> seen;
  auto watch = [&](const tp::progress_event& e) { seen.push_back(e); };
  ASSERT_TRUE(owner->add_images(old, {.recipients = 1, .progress = watch}));
  const auto mine = blank<mlp>();
  ASSERT_TRUE(net::download_tensors(*owner, old[0].as, *mine, {.recipient = {9}}));
  std::decay_t<decltype(owner->machine())>::peer link;  // another one has taken every byte, and is not told of yet
  tp::frame asks;
  asks.kind = tp::frame_kind::describe;
  asks.ref = old[0].as.id;
  asks.recipient = {10};
  tp::pending_reply r;
  ASSERT_TRUE(owner->machine().handle(link, asks, r));
  asks.kind = tp::frame_kind::pull;
  asks.length = tp::all_in_one_chunk;
  ASSERT_TRUE(owner->machine().handle(link, asks, r));
  ASSERT_NE(owner->machine().pin(r), nullptr);
  owner->machine().unpin(r, bytes);
  auto next = m.images(1, 10);
  next[0].as.id = old[0].as.id;
  const std::size_t before = seen.size();
  ASSERT_TRUE(owner->add_images(next, {}));
  schema.image_bytes = schema.tensor_count = 0;  // as if its memory were used for something else
  owner->tick();
  ASSERT_GT(seen.size(), before);
  for (const auto& e : seen) {
    EXPECT_EQ(e.bytes_total, bytes);
    EXPECT_EQ(e.bytes_done, bytes);
    EXPECT_EQ(e.tensors_total, tensors);
    EXPECT_EQ(e.tensors_done, tensors);
  }
}

TEST(PublishAll, One_that_is_replaced_from_within_its_own_reading_is_busy_and_stays) {
  const auto owner = std::make_unique<net::downloader>();
  models m;
  const auto model = random_model<mlp>(5);
  const auto old = owner->add_tensors(*model, {.id = {1, 2}});
  ASSERT_TRUE(old);
  tp::pending_reply about{};
  about.ref = old->id;
  // a pin as a transport holds it while it sends
  typename net::downloader::owner_type::peer from{};
  tp::frame ask{};
  ask.kind = tp::frame_kind::describe;
  ask.id = 1, ask.ref = old->id, ask.recipient = {3};
  ASSERT_TRUE(owner->machine().handle(from, ask, about));
  ASSERT_NE(owner->machine().pin(about), nullptr);
  auto images = m.images(2, 20);
  images[1].as.id = old->id;
  const auto refused = owner->add_images(images, {});
  ASSERT_EQ(code_of(refused), errc::busy);
  EXPECT_EQ(refused.error().at, 1u);
  owner->machine().unpin(about, 0);
  EXPECT_TRUE(serves(*owner, *old));
  EXPECT_TRUE(owner->add_images(images, {}));
}

TEST(PublishAll, Withdrawing_from_within_the_reading_of_another_image_of_the_transaction_returns) {
  int told = 0;
  auto settled = [&](const tp::settlement& s) { told += s.verdict == tp::verdict::completed; };
  const auto owner = std::make_unique<net::downloader>();
  models m;
  auto images = m.images(2, 1);
  ASSERT_TRUE(owner->add_images(images, {.recipients = 1, .settled = settled}));
  typename net::downloader::owner_type::peer from{};
  tp::pending_reply about[2] = {};
  for (int i = 0; i < 2; ++i) {
    tp::frame ask{};
    ask.kind = tp::frame_kind::describe;
    ask.ref = images[static_cast<std::size_t>(i)].as.id, ask.recipient = {3};
    ASSERT_TRUE(owner->machine().handle(from, ask, about[i]));
    if (i == 0) {
      ASSERT_NE(owner->machine().pin(about[0]), nullptr);  // as a transport holds it while it sends
    }
    ask.kind = tp::frame_kind::pull, ask.length = 1u << 31;
    ASSERT_TRUE(owner->machine().handle(from, ask, about[i]));
    owner->machine().served_whole(about[i]);
    ask.kind = tp::frame_kind::confirm, ask.nonce = about[i].nonce;
    ask.digest = images[static_cast<std::size_t>(i)].as.version, ask.flag = true;
    tp::pending_reply answer{};
    ASSERT_TRUE(owner->machine().handle(from, ask, answer));
    ASSERT_EQ(answer.status, tp::status::ok);
  }
  EXPECT_TRUE(owner->withdraw(images[1].as)) << "all have it: it has settled, and the first image is still read";
  EXPECT_EQ(told, 0);
  owner->machine().unpin(about[0], 0);
  owner->deliver();
  EXPECT_EQ(told, 1);
}

TEST(OwnerRoom, Has_as_many_references_as_were_asked_for_and_the_limits_otherwise) {
  using publisher = tp::publisher<net_of<tp::loopback, any_number>::parts, tp::no_lock, 6>;
  const auto model = random_model<mlp>(1);
  const auto count = [&](publisher& p) {
    std::size_t n = 0;
    for (;; ++n) {
      const auto added = p.add_tensors(*model);
      if (!added) {
        EXPECT_EQ(code_of(added), errc::table_full);
        EXPECT_EQ(added.error().at, n);
        return n;
      }
    }
  };
  publisher usual, more({1000, 3000}), fewer({2, 0});
  ASSERT_TRUE(usual.has_room() && more.has_room() && fewer.has_room());
  EXPECT_EQ(count(usual), 4u);
  EXPECT_EQ(count(more), 1000u);
  EXPECT_EQ(count(fewer), 2u);
}

TEST(OwnerRoom, What_there_is_no_memory_for_is_refused_when_the_owner_is_opened) {
  using publisher = tp::publisher<net_of<tp::loopback, any_number>::parts, tp::no_lock, 6>;
  for (const std::size_t many : {std::size_t{1} << 40, std::size_t{1} << 62, ~std::size_t{0}}) {
    EXPECT_FALSE(publisher({many, 0}).has_room());
    EXPECT_FALSE(publisher({0, many}).has_room());
    const auto model = random_model<mlp>(1);
    publisher none({many, 0});
    EXPECT_FALSE(none.add_tensors(*model)) << "nothing can be published, and nothing crashes";
    using tcp_owner = net_of<tp::tcp, any_number>::downloader;
    const auto refused = tcp_owner::open({.host = {.room = {many, 0}}});
    EXPECT_EQ(code_of(refused), errc::out_of_memory);
    using udp_owner = tp::pipeline<tp::udp, tp::raw_tensors<mlp>, tp::fit_datagram, any_number>::downloader;
    const auto too = udp_owner::open({.room = {0, many}});
    EXPECT_EQ(code_of(too), errc::out_of_memory);
  }
  using fixed = net_of<tp::tcp>::downloader;
  EXPECT_FALSE(fixed::open({.host = {.room = {5, 0}}})) << "this room is what the limits say";
  EXPECT_TRUE(fixed::open({.host = {.room = {4, 6}}}));
}

TEST(OwnerRoom, The_fixed_room_is_as_large_as_its_tables) {
  using publisher = tp::publisher<net::parts>;
  struct tables {
    tp::owner_storage<4, 64> memory;
    std::array<std::pair<tp::transaction_id, tp::unique_any>, 8> kept;
  };
  EXPECT_LE(sizeof(publisher), sizeof(tables) + sizeof(publisher::owner_type) + 64);
}

}  // namespace publish_all_test
