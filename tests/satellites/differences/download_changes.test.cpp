// A model that is brought up to date over TCP, by a difference or as a whole; what the owner counts.
#include "support/allocation_counter.hpp"
#include "transports/network.hpp"

#include <tensorpull/satellites/differences/deflate/deflate.hpp>
#include <tensorpull/satellites/differences/download_changes.hpp>
#include <tensorpull/satellites/differences/kept_differences.hpp>

#include <vector>

namespace download_changes_test {

using namespace test;
using net = raw_net<large, tp::tcp>;

struct versions {
  std::unique_ptr<large> old = random_model<large>(1), now = std::make_unique<large>(*old);
  tp::deflate_coder coder;
  std::optional<tp::model_difference> difference;
  tp::result<net::downloader> owner = net::downloader::open({});
  tp::reference whole, changes;

  versions() {
    auto* const bytes = reinterpret_cast<std::byte*>(&now->w);
    for (std::size_t i = 0; i < sizeof now->w; i += 4 * 3) bytes[i] ^= std::byte{1};
    auto made = tp::model_difference::make(tp::raw_tensors<large>::source(*old), tp::raw_tensors<large>::source(*now),
                                           coder);
    EXPECT_TRUE(made);
    difference.emplace(std::move(*made));
    whole = *owner->add_tensors(*now, {.recipients = 1});
    changes = *owner->add_image(difference->image(), {.beside = whole.id});
  }
};

TEST(DownloadChanges, A_model_becomes_the_new_version_by_a_part_of_its_bytes_and_the_owner_counts_it_once) {
  versions v;
  std::optional<serving> server(std::in_place, *v.owner);
  std::uint64_t came = 0;
  const auto done = tp::download_changes<net>(local(v.owner->port()), v.whole, v.changes, *v.old, v.coder,
                                              {.version = v.whole.version}, &came);
  ASSERT_TRUE(succeeded(done));
  EXPECT_TRUE(same(*v.old, *v.now));
  EXPECT_EQ(done->outcome, tp::outcome::completed);
  EXPECT_TRUE(done->confirmed);
  EXPECT_FALSE(done->believed);
  EXPECT_EQ(done->version, v.whole.version);
  EXPECT_GT(came, 0u);
  EXPECT_LT(came, sizeof(large) / 8);
  server.reset();
  EXPECT_TRUE(v.owner->settled(v.whole));
  EXPECT_EQ(v.owner->status_of(v.whole)->completed, 1u);
  EXPECT_LT(v.owner->status_of(v.whole)->bytes_sent, 2000u) << "nothing of it is sent again";
  EXPECT_EQ(v.owner->settlement_of(v.whole)->counts.acquired, 1u) << "one recipient, of both";
}

TEST(DownloadChanges, A_difference_is_found_by_the_version_that_a_recipient_has) {
  for (const bool other : {false, true}) {
    versions v;
    const auto from = tp::image_version<tp::xxh3_64>(tp::raw_tensors<large>::source(*v.old));
    ASSERT_TRUE(from);
    ASSERT_TRUE(v.owner->add_image(v.difference->image(), tp::difference_options(v.whole, *from)));
    auto mine = std::make_unique<large>(*v.old);
    if (other) reinterpret_cast<std::byte*>(mine.get())[9] ^= std::byte{1};
    std::uint64_t came = 0;
    {
      serving server(*v.owner);
      const auto done = tp::download_changes<net>(local(v.owner->port()), v.whole, *mine, v.coder, {}, &came);
      ASSERT_TRUE(succeeded(done));
      EXPECT_FALSE(done->believed);
    }
    EXPECT_TRUE(same(*mine, *v.now));
    EXPECT_EQ(came > 0, !other);
  }
}
TEST(DownloadChanges, The_ID_of_a_difference_is_another_for_each_ID_and_version_and_tells_neither) {
  const tp::reference whole{{1, 2}, 3, 0};
  const tp::ref_id id = tp::difference_id(whole, 4);
  EXPECT_EQ(tp::difference_options(whole, 4).id, id);
  EXPECT_EQ(tp::difference_options(whole, 4).beside, whole.id);
  EXPECT_EQ(tp::difference_id({{1, 2}, 3, 99}, 4), id) << "the fingerprint is no part of it";
  for (const tp::reference& other : {tp::reference{{2, 2}, 3, 0}, {{1, 3}, 3, 0}, {{1, 2}, 4, 0}})
    EXPECT_NE(tp::difference_id(other, 4), id);
  EXPECT_NE(tp::difference_id(whole, 3), id);
  // the first half of SHA-256 of "tpdifference", four zeros, and 1, 2, 3, 4 as words of 8 bytes
  EXPECT_EQ(std::string_view(tp::to_digits(id).data(), 32), "bb8a60ada0a9ee23c2038f4fa5925427");
}

TEST(DownloadChanges, Without_the_old_version_or_the_difference_all_is_pulled) {
  for (const int what : {0, 1, 2, 3}) {
    SCOPED_TRACE(what);
    versions v;
    if (what == 0) reinterpret_cast<std::byte*>(v.old.get())[5] ^= std::byte{1};
    if (what == 1) (void)v.owner->withdraw(v.changes);
    if (what == 2) v.changes = v.whole;
    if (what == 3) v.changes = {};
    std::optional<serving> server(std::in_place, *v.owner);
    std::uint64_t came = 7;
    const auto done = tp::download_changes<net>(local(v.owner->port()), v.whole, v.changes, *v.old, v.coder, {}, &came);
    ASSERT_TRUE(succeeded(done));
    EXPECT_TRUE(same(*v.old, *v.now));
    EXPECT_EQ(came, 0u);
    server.reset();
    EXPECT_TRUE(v.owner->settled(v.whole));
    EXPECT_EQ(v.owner->status_of(v.whole)->completed, 1u);
  }
}

TEST(DownloadChanges, An_open_connection_brings_differences_and_wholes_one_after_the_other) {
  versions v;
  const auto whole = *v.owner->add_tensors(*v.now);
  const auto from = tp::image_version<tp::xxh3_64>(tp::raw_tensors<large>::source(*v.old));
  ASSERT_TRUE(v.owner->add_image(v.difference->image(), tp::difference_options(whole, *from)));
  const serving server(*v.owner);
  auto session = net::session::connect(local(v.owner->port()));
  ASSERT_TRUE(session);
  for (const bool other : {false, true, false})
    for (const bool named : {false, true}) {
      SCOPED_TRACE(other);
      SCOPED_TRACE(named);
      auto mine = std::make_unique<large>(*v.old);
      if (other) reinterpret_cast<std::byte*>(mine.get())[9] ^= std::byte{1};
      std::uint64_t came = 7;
      const auto done = named ? tp::download_changes<net>(*session, whole, v.changes, *mine, v.coder, {}, &came)
                              : tp::download_changes<net>(*session, whole, *mine, v.coder, {}, &came);
      ASSERT_TRUE(confirmed(done));
      EXPECT_TRUE(same(*mine, *v.now));
      EXPECT_EQ(came > 0, !other);
    }
}

TEST(DownloadChanges, A_difference_to_another_version_than_the_whole_costs_a_pull_of_all) {
  versions v;
  const auto other = random_model<large>(2);
  const auto whole = *v.owner->add_tensors(*other, {.recipients = 1});
  std::optional<serving> server(std::in_place, *v.owner);
  const auto done = tp::download_changes<net>(local(v.owner->port()), whole, v.changes, *v.old, v.coder);
  ASSERT_TRUE(succeeded(done));
  EXPECT_TRUE(same(*v.old, *other));
  server.reset();
  EXPECT_EQ(v.owner->status_of(whole)->completed, 1u);
  EXPECT_EQ(v.owner->status_of(whole)->failed, 0u);
}

TEST(DownloadChanges, Holds_a_chunk_of_the_pipeline) {
  versions v;
  const serving server(*v.owner);
  const allocation_watch watch;
  const auto done = tp::download_changes<net>(local(v.owner->port()), v.whole, v.changes, *v.old, v.coder);
  ASSERT_TRUE(succeeded(done));
  EXPECT_LT(watch.largest(), 512u * 1024) << "64 KiB, and blocks";
  const tp::image_schema& schema = *tp::raw_tensors<large>::source(*v.old).schema;
  using whole_net = tp::pipeline<tp::raw_tensors<large>, tp::whole, tp::tcp>;
  EXPECT_EQ(tp::detail::held_chunk<whole_net>(schema), tp::default_chunk_bytes);
  const tiny one{};
  const tp::image_schema& shorter = *tp::raw_tensors<tiny>::source(one).schema;
  EXPECT_EQ(tp::detail::held_chunk<net>(shorter), shorter.image_bytes);
}

using dense_net = raw_net<dense, tp::tcp>;

/// Versions of a model, each with another few of its elements, and the differences from one to the next.
struct rounds {
  std::vector<std::unique_ptr<dense>> all;
  tp::deflate_coder coder;

  explicit rounds(std::size_t count) {
    all.push_back(random_model<dense>(1));
    while (all.size() < count) {
      all.push_back(std::make_unique<dense>(*all.back()));
      auto* const bytes = reinterpret_cast<std::byte*>(&all.back()->w);
      for (std::size_t i = all.size(); i < sizeof all[0]->w; i += 401) bytes[i] ^= std::byte{1};
    }
  }
  tp::source_view source(std::size_t i) const { return tp::raw_tensors<dense>::source(*all[i]); }
  std::uint64_t version(std::size_t i) const { return *tp::image_version<tp::xxh3_64>(source(i)); }
  tp::model_difference between(std::size_t from, std::size_t to) {
    return std::move(*tp::model_difference::make(source(from), source(to), coder));
  }
};

TEST(DownloadChanges, A_recipient_that_missed_rounds_pulls_the_differences_that_the_owner_keeps) {
  rounds r(5);
  auto owner = dense_net::downloader::open({});
  ASSERT_TRUE(owner);
  tp::kept_differences<tp::model_difference> kept(3);
  tp::reference whole;
  for (std::size_t i = 1; i < r.all.size(); ++i) {
    kept.withdraw(*owner);
    if (whole.id) (void)owner->withdraw(whole);
    kept.keep(r.between(i - 1, i), r.version(i - 1));
    whole = *owner->add_tensors(*r.all[i], {.recipients = 4});
    ASSERT_TRUE(kept.publish(*owner, whole));
    EXPECT_EQ(kept.size(), std::min<std::size_t>(i, 3));
  }
  std::optional<serving> server(std::in_place, *owner);
  std::optional<tp::result<dense_net::session>> session(dense_net::session::connect(local(owner->port())));
  ASSERT_TRUE(*session);
  std::uint64_t last = 0;
  for (std::size_t has = 4; has-- != 0;) {
    SCOPED_TRACE(has);
    auto mine = std::make_unique<dense>(*r.all[has]);
    std::uint64_t came = 7;
    const auto done = has == 2
                          ? tp::download_changes<dense_net>(**session, whole, *mine, r.coder, {}, &came)
                          : tp::download_changes<dense_net>(local(owner->port()), whole, *mine, r.coder, {}, &came);
    ASSERT_TRUE(confirmed(done));
    EXPECT_TRUE(same(*mine, *r.all[4]));
    EXPECT_FALSE(done->believed);
    if (has == 0) {
      EXPECT_EQ(came, 0u) << "four rounds ago: all is pulled";
    } else {
      EXPECT_GT(came, last) << "those of one round more";
      EXPECT_LT(came, sizeof(dense) / 8);
      last = came;
    }
  }
  EXPECT_EQ(last, kept.bytes());
  session.reset();
  server.reset();
  EXPECT_TRUE(owner->settled(whole));
  EXPECT_EQ(owner->settlement_of(whole)->counts.completed, 4u) << "each counts once";
  EXPECT_EQ(owner->settlement_of(whole)->counts.acquired, 4u);
}

struct two_places : tp::default_limits {
  static constexpr std::size_t references = 2;
};

TEST(DownloadChanges, An_owner_keeps_one_difference_by_default_and_no_more_bytes_or_places_than_it_says) {
  rounds r(4);
  const auto bytes = r.between(0, 1).image().schema->image_bytes;
  const auto kept_of = [&](tp::kept_differences<tp::model_difference> kept) {
    for (std::size_t i = 1; i < r.all.size(); ++i) kept.keep(r.between(i - 1, i), r.version(i - 1));
    EXPECT_LE(kept.bytes(), kept.size() * bytes * 2);
    return kept.size();
  };
  using kept = tp::kept_differences<tp::model_difference>;
  EXPECT_EQ(kept_of(kept()), 1u);
  EXPECT_EQ(kept_of(kept(0)), 1u);
  EXPECT_EQ(kept_of(kept(2)), 2u);
  EXPECT_EQ(kept_of(kept(9)), 3u);
  EXPECT_EQ(kept_of(kept(9, 0)), 1u) << "beside the last one nothing";
  EXPECT_EQ(kept_of(kept(9, bytes + bytes / 2)), 2u);

  // what is published stays until it is withdrawn
  auto other = dense_net::downloader::open({});
  kept two(2);
  for (std::size_t i = 1; i < r.all.size(); ++i) {
    two.keep(r.between(i - 1, i), r.version(i - 1));
    const auto one = *other->add_tensors(*r.all[i]);
    ASSERT_TRUE(two.publish(*other, one));
    EXPECT_EQ(two.size(), i);
  }
  two.withdraw(*other);
  EXPECT_EQ(two.size(), 2u);
  two.clear(*other);
  EXPECT_EQ(two.size(), 0u);

  using small_net = raw_net<dense, tp::tcp, two_places>;
  kept all(3);
  for (std::size_t i = 1; i < r.all.size(); ++i) all.keep(r.between(i - 1, i), r.version(i - 1));
  auto owner = small_net::downloader::open({});
  const auto whole = *owner->add_tensors(*r.all[3]);
  ASSERT_TRUE(all.publish(*owner, whole)) << "the older ones are left out";
  const serving server(*owner);
  for (const std::size_t has : {2u, 1u}) {
    auto mine = std::make_unique<dense>(*r.all[has]);
    std::uint64_t came = 7;
    const auto done = tp::download_changes<dense_net>(local(owner->port()), whole, *mine, r.coder, {}, &came);
    ASSERT_TRUE(confirmed(done));
    EXPECT_TRUE(same(*mine, *r.all[3]));
    EXPECT_EQ(came != 0, has == 2);
  }
}

TEST(DownloadChanges, Differences_that_lead_round_in_a_circle_end_with_a_pull_of_all) {
  rounds r(3);
  auto owner = dense_net::downloader::open({});
  const auto whole = *owner->add_tensors(*r.all[2], {.recipients = 1});
  const tp::model_difference there = r.between(0, 1), back = r.between(1, 0);
  ASSERT_TRUE(owner->add_image(there.image(), tp::difference_options(whole, r.version(0))));
  ASSERT_TRUE(owner->add_image(back.image(), tp::difference_options(whole, r.version(1))));
  std::optional<serving> server(std::in_place, *owner);
  auto mine = std::make_unique<dense>(*r.all[0]);
  std::uint64_t came = 0;
  const auto done = tp::download_changes<dense_net>(local(owner->port()), whole, *mine, r.coder, {}, &came);
  ASSERT_TRUE(confirmed(done));
  EXPECT_TRUE(same(*mine, *r.all[2]));
  EXPECT_EQ(came, 8 * (there.image().schema->image_bytes + back.image().schema->image_bytes));
  server.reset();
  EXPECT_EQ(owner->settlement_of(whole)->counts.completed, 1u);
}

/// A third of `large`.
struct third {
  float w[1][1024][1024];
};

}  // namespace download_changes_test
BOOST_HANA_ADAPT_STRUCT(download_changes_test::third, w);
namespace download_changes_test {

TEST(DownloadChanges, A_slice_is_refused_as_what_is_wanted_and_as_what_it_is_a_difference_from) {
  versions v;
  const serving server(*v.owner);
  const std::string at = local(v.owner->port());
  const tp::tensor_slice rows[] = {{"w", 0, 1}};
  const auto old = std::make_unique<large>(*v.old);
  for (const auto& done : {tp::download_changes<net>(at, v.whole, *v.old, {.slices = rows}),
                           tp::download_changes<net>(at, v.whole, v.changes, *v.old, v.coder, {.slices = rows})}) {
    EXPECT_EQ(code_of(done), errc::invalid_argument);
    EXPECT_EQ(done ? "" : std::string(done.error().name.view()), "w");
  }
  EXPECT_TRUE(same(*v.old, *old));

  using thirds = raw_net<third, tp::tcp>;
  const auto mine = blank<third>();
  std::memcpy(mine->w, v.old->w, sizeof mine->w);
  const auto before = std::make_unique<third>(*mine);
  for (const auto& done : {tp::download_changes<thirds>(at, v.whole, *mine),
                           tp::download_changes<thirds>(at, v.whole, v.changes, *mine, v.coder)}) {
    EXPECT_EQ(code_of(done), errc::schema_mismatch);
    EXPECT_EQ(done ? "" : std::string(done.error().name.view()), "w");
  }
  EXPECT_TRUE(same(*mine, *before));
}

TEST(DownloadChanges, What_ends_a_pull_ends_this_one) {
  versions v;
  const serving server(*v.owner);
  std::stop_source stop;
  stop.request_stop();
  const auto done = tp::download_changes<net>(local(v.owner->port()), v.whole, v.changes, *v.old, v.coder,
                                              {.stop = stop.get_token()});
  EXPECT_EQ(code_of(done), errc::cancelled);
}

}  // namespace download_changes_test
