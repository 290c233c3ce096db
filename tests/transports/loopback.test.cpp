// Owner and recipient in one process.
#include "network.hpp"

#include <functional>

namespace {

using namespace test;

template <class Integrity, class Chunking>
void expect_download(Chunking cut = {}) {
  using net = tp::pipeline<tp::loopback, tp::raw_tensors<mlp>, Chunking, Integrity>;
  const auto owner = std::make_unique<typename net::downloader>();
  const auto source = random_model<mlp>(1), mine = blank<mlp>();
  const auto ref = owner->add_tensors(*source, {.recipients = 1});
  ASSERT_TRUE(ref);
  const auto done = net::download_tensors(*owner, *ref, *mine, {}, cut);
  ASSERT_TRUE(done) << to_string(done.error().code);
  EXPECT_TRUE(same(*source, *mine));
  EXPECT_EQ(done->outcome == tp::outcome::completed, Integrity::whole);
  EXPECT_TRUE(owner->settled(*ref));
}
template <class Chunking>
void expect_downloads(Chunking cut = {}) {
  expect_download<tp::image_digest>(cut);
  expect_download<tp::chunk_digest>(cut);
  expect_download<tp::chunk_and_image_digest>(cut);
  expect_download<tp::unverified>(cut);
}
TEST(Loopback, EveryIntegrityPolicyWithEveryChunking) {
  expect_downloads(tp::fixed_bytes<8>{});
  expect_downloads(tp::fixed_bytes<1000>{});
  expect_downloads(tp::fixed_bytes<2_MiB>{});
  expect_downloads(tp::bytes_up_to<1_MiB>{777});
  expect_downloads(tp::per_tensor<4096>{});
  expect_downloads(tp::per_tensor<2_MiB>{});
  expect_downloads(tp::whole{});
}

using net = tp::pipeline<tp::loopback, tp::raw_tensors<mlp>, tp::fixed_bytes<64_KiB>>;

TEST(Loopback, WithdrawnAndUnknownReferences) {
  const auto owner = std::make_unique<net::downloader>();
  const auto source = random_model<mlp>(1), mine = blank<mlp>();
  const auto ref = owner->add_tensors(*source);
  ASSERT_TRUE(owner->withdraw(*ref));
  EXPECT_EQ(net::download_tensors(*owner, *ref, *mine).error(), tp::errc::withdrawn);
  EXPECT_EQ(net::download_tensors(*owner, tp::ref_id{1, 1}, *mine).error(), tp::errc::unknown_reference);
  EXPECT_TRUE(same(*mine, *blank<mlp>()));
}
/// Acts in the middle.
struct meddler : tp::land {
  std::function<void()> act;
  meddler(mlp& m, std::function<void()> f) : tp::land(tp::raw_tensors<mlp>::destination(m)), act(std::move(f)) {}
  tp::result<void> chunk(std::uint64_t offset, std::uint64_t) noexcept {
    if (offset == 3 * 64_KiB) act();
    return {};
  }
};
TEST(Loopback, C1_AChangedSourceIsADigestMismatch) {
  const auto owner = std::make_unique<net::downloader>();
  const auto source = random_model<mlp>(1), mine = blank<mlp>();
  const auto ref = *owner->add_tensors(*source, {.recipients = 1});
  source->step ^= 1;
  const auto done = net::download_tensors(*owner, ref, *mine);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error(), tp::errc::digest_mismatch);
  EXPECT_EQ(owner->status_of(ref)->completed, 0u);
}
TEST(Loopback, AbortIsHeard) {
  const auto owner = std::make_unique<net::downloader>();
  const auto source = random_model<mlp>(1), mine = blank<mlp>();
  const auto ref = *owner->add_tensors(*source, {.recipients = 1});
  std::stop_source stop;
  meddler to(*mine, [&] { stop.request_stop(); });
  EXPECT_EQ(net::pull(*owner, ref, to, {.stop = stop.get_token()}).error(), tp::errc::cancelled);
  EXPECT_EQ(owner->status_of(ref)->cancelled, 1u) << "the owner hears of it";
  EXPECT_TRUE(owner->settled(ref));
}
TEST(Loopback, TheTableOfReferencesHasAnEnd) {
  const auto owner = std::make_unique<net::downloader>();
  const auto source = random_model<mlp>(1);
  for (std::size_t i = 0; i < tp::default_limits::references; ++i) ASSERT_TRUE(owner->add_tensors(*source));
  EXPECT_EQ(owner->add_tensors(*source).error(), tp::errc::table_full);
}

}  // namespace
