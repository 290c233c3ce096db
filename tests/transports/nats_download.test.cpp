#include "transports/nats_network.hpp"

#include <algorithm>
#include <vector>

using namespace test;
using namespace tensorpull;

namespace {

using nats_download = nats_test;

TEST_F(nats_download, one_recipient_gets_exactly_what_was_published) {
  const nats_process server;
  auto owner = nats_owner_at<mlp>(server);
  const auto model = random_model<mlp>(1);
  const auto ref = owner.add_tensors(*model, {.recipients = 1});
  ASSERT_TRUE(ref);
  serving on(owner);
  auto mine = blank<mlp>();
  const auto done = nats_net<mlp>::download_tensors(server.url(), *ref, *mine);
  ASSERT_TRUE(done) << to_string(done.error().code) << done.error().at;
  EXPECT_EQ(done->outcome, outcome::completed);
  EXPECT_TRUE(done->confirmed);
  EXPECT_TRUE(same(*mine, *model));
  on.stop();
  EXPECT_EQ(owner.settlement_of(*ref)->verdict, verdict::completed);
  EXPECT_EQ(owner.counts().malformed, 0u);
}

TEST_F(nats_download, several_recipients_at_a_time) {
  const nats_process server;
  auto owner = nats_owner_at<large>(server);
  const auto model = random_model<large>(2);
  const auto ref = owner.add_tensors(*model, {.recipients = 6});
  ASSERT_TRUE(ref);
  std::atomic<int> equal{0};
  {
    std::vector<std::jthread> all;
    for (int i = 0; i < 6; ++i)
      all.emplace_back([&] {
        auto mine = blank<large>();
        const auto done = nats_net<large>::download_tensors(server.url(), *ref, *mine);
        equal += done && done->outcome == outcome::completed && same(*mine, *model);
      });
    EXPECT_TRUE(owner.run(until_settled(*ref)));
  }
  EXPECT_EQ(equal, 6);
  EXPECT_EQ(owner.settlement_of(*ref)->verdict, verdict::completed);
}

TEST_F(nats_download, another_schema_or_reference_is_refused) {
  const nats_process server;
  auto owner = nats_owner_at<mlp>(server);
  const auto model = random_model<mlp>(3);
  const auto ref = owner.add_tensors(*model);
  ASSERT_TRUE(ref);
  serving on(owner);
  tiny other;
  auto whole = blank<mlp>();
  const auto refused = nats_net<tiny>::download_tensors(server.url(), *ref, other);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, errc::schema_mismatch);
  EXPECT_EQ(refused.error().at, 0u);
  const auto unknown = nats_net<mlp>::download_tensors(server.url(), ref_id{7, 7}, *whole, {.retry = {.retries = 0}});
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, errc::connection_failed);
  EXPECT_EQ(unknown.error().name.view(), "the server knows no owner of the reference");  // and not that there is no
                                                                                         // server
}

TEST_F(nats_download, a_program_says_who_may_have_what) {
  const nats_process server;
  const std::string url = server.url();
  bool identified = false;
  const auto may = [&](const access_request& asked) {
    identified |= asked.peer.kind != identity_kind::none;
    return asked.recipient == recipient_id{7};
  };
  auto owner = nats_net<mlp>::downloader::open({.server = {.url = url}, .serving = {.authorise = may}});
  ASSERT_TRUE(owner);
  const auto model = random_model<mlp>(4);
  const auto ref = owner->add_tensors(*model, {.recipients = 1});
  ASSERT_TRUE(ref);
  serving on(*owner);
  auto mine = blank<mlp>();
  EXPECT_EQ(nats_net<mlp>::download_tensors(url, *ref, *mine, {.recipient = {8}}).error().code,
            errc::unknown_reference);
  EXPECT_TRUE(nats_net<mlp>::download_tensors(url, *ref, *mine, {.recipient = {7}}));
  EXPECT_FALSE(identified) << "a NATS server does not say who has sent a message";
}

// Chunks are cut to what the server allows.
TEST_F(nats_download, a_server_that_allows_64_KiB) {
  const nats_process server("max_payload: 65536");
  using wide = pipeline<raw_tensors<large>, fixed_bytes<512_KiB>, tensorpull::nats>;
  const std::string url = server.url();
  auto owner = wide::downloader::open({.server = {.url = url}});
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

}  // namespace
