#include "nats_network.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace nats_download_test {

using namespace test;
using namespace tensorpull;

using NatsDownload = nats_test;

TEST_F(NatsDownload, A_reference_that_nobody_owns_is_told_apart_from_a_server_that_is_gone) {
  const nats_process server;
  auto whole = blank<mlp>();
  const auto unknown = nats_net<mlp>::download_tensors(server.url(), ref_id{7, 7}, *whole,
                                                       {.believe = true, .retry = {.retries = 0}});
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, errc::connection_failed);
  EXPECT_EQ(unknown.error().name.view(), "the server knows no owner of the reference");
}

TEST_F(NatsDownload, A_user_that_may_do_no_more_than_it_has_to_pulls_and_one_that_may_not_ask_hears_it) {
  const nats_process server(R"(authorization { users = [
    {user: owner, password: o, permissions: {publish: ["_INBOX.>", "_INBOX_alice.>"], subscribe: ["tensorpull.>", "_INBOX.>"]}}
    {user: site, password: s, permissions: {publish: ["tensorpull.>"], subscribe: ["_INBOX.>"]}}
    {user: alice, password: s, permissions: {publish: ["tensorpull.>"], subscribe: ["_INBOX_alice.>"]}}
    {user: mute, password: s, permissions: {publish: ["_INBOX.>"], subscribe: ["_INBOX.>"]}} ] })");
  const std::string url = server.url("owner:o");
  auto owner = nats_net<mlp>::downloader::open({.server = {.url = url, .timeout = std::chrono::minutes(1)}});
  ASSERT_TRUE(owner) << to_string(owner.error().code);
  const auto model = random_model<mlp>(3);
  const auto ref = owner->add_tensors(*model);
  ASSERT_TRUE(ref);
  serving on(*owner);
  for (const std::string& who : {server.url("site:s"), server.url("alice:s") + "?inbox=_INBOX_alice"}) {
    auto mine = blank<mlp>();
    EXPECT_TRUE(succeeded(nats_net<mlp>::download_tensors(who, *ref, *mine))) << who;
    EXPECT_TRUE(same(*mine, *model));
  }
  auto mine = blank<mlp>();
  const auto refused = nats_net<mlp>::download_tensors(server.url("mute:s"), *ref, *mine);
  EXPECT_EQ(code_of(refused), errc::not_permitted);
  EXPECT_EQ(refused.error().name.view(), "this user may not publish to tensorpull.>");
  auto session = nats_net<mlp>::session::connect(server.url("mute:s") + "#there");
  ASSERT_TRUE(session);
  const std::byte word[]{std::byte{1}};
  EXPECT_EQ(code_of(session->send(1, {}, word, 10s)), errc::not_permitted);
}

// Chunks are cut to what the server allows.
TEST_F(NatsDownload, A_server_that_allows_64_KiB) {
  const nats_process server("max_payload: 65536");
  using wide = pipeline<raw_tensors<large>, fixed_bytes<512_KiB>, tensorpull::nats>;
  const std::string url = server.url();
  auto owner = wide::downloader::open({.server = {.url = url, .timeout = std::chrono::minutes(1)}});
  ASSERT_TRUE(owner);
  const auto model = random_model<large>(4);
  const auto ref = owner->add_tensors(*model, {.recipients = 1});
  ASSERT_TRUE(ref);
  serving on(*owner);
  auto mine = blank<large>();
  const auto done = wide::download_tensors(url, *ref, *mine);
  ASSERT_TRUE(done) << to_string(done.error().code);
  EXPECT_TRUE(same(*mine, *model));
  EXPECT_GE(done->chunks, sizeof(large) / 65536);
}

// Over NATS every request names the version, and two versions are served under the subjects of one reference.
TEST_F(NatsDownload, What_is_replaced_stays_for_those_who_have_begun_with_it) {
  constexpr ref_id shared{11, 22};
  for (const bool stays : {true, false}) {
    const nats_process server;
    const std::string url = server.url();
    auto owner = nats_owner_at<large>(server);
    const auto first = random_model<large>(5), second = random_model<large>(6);
    const auto old = owner.add_tensors(*first, {.recipients = 1, .id = shared});
    ASSERT_TRUE(old);
    std::optional<serving> on(std::in_place, owner);
    result<reference> next = failure(errc::cancelled);
    bool overtaken = false;
    auto slow = blank<large>(), quick = blank<large>();
    const auto replaced = [&](const progress_event& e) {
      if (e.bytes_done < sizeof(large) / 4 || next) return;
      on->stop();
      next = owner.add_tensors(*second, {.id = shared, .replaced_stays = stays});
      EXPECT_EQ(owner.settled(*old), !stays);
      on.emplace(owner);
      overtaken = succeeded(nats_net<large>::download_tensors(url, *next, *quick));
    };
    const auto done = nats_net<large>::download_tensors(url, *old, *slow,
                                                        {.progress = replaced, .progress_interval = 0ms});
    EXPECT_TRUE(overtaken);
    EXPECT_TRUE(same(*quick, *second));
    on->stop();
    ASSERT_TRUE(next) << to_string(next.error().code);
    EXPECT_TRUE(owner.settled(*old));
    EXPECT_EQ(owner.settlement_of(*old)->verdict, stays ? verdict::completed : verdict::withdrawn);
    if (!stays) {
      EXPECT_EQ(code_of(done), errc::stale_version);
      continue;
    }
    ASSERT_TRUE(done) << to_string(done.error().code);
    EXPECT_TRUE(done->confirmed);
    EXPECT_TRUE(same(*slow, *first));
  }
}

}  // namespace nats_download_test
