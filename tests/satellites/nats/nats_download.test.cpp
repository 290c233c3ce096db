#include "nats_network.hpp"

#include <algorithm>
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

// Chunks are cut to what the server allows.
TEST_F(NatsDownload, A_server_that_allows_64_KiB) {
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

}  // namespace nats_download_test
