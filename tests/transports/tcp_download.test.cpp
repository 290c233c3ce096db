// One-shot downloads over real sockets: connect, pull, close.
#include "network.hpp"

#include <tensorpull/consumers/any_schema/digest.hpp>

namespace tcp_download_test {

using namespace test;

template <class Chunking, class Integrity>
void expect_download(Chunking cut, tp::outcome outcome, std::uint64_t chunks) {
  using net = tp::pipeline<tp::raw_tensors<mlp>, Chunking, Integrity, tp::tcp>;
  const auto source = random_model<mlp>(1);
  const auto mine = blank<mlp>();
  auto owner = net::downloader::open({});
  ASSERT_TRUE(owner);
  const auto ref = owner->add_tensors(*source, {.recipients = 1});
  ASSERT_TRUE(ref);
  serving server(*owner);
  const auto done = net::download_tensors(local(owner->port()), *ref, *mine, {.per_request_timeout = 60s}, cut);
  ASSERT_TRUE(done) << to_string(done.error().code);
  server.stop();
  EXPECT_TRUE(same(*source, *mine));
  EXPECT_EQ(done->outcome, outcome);
  EXPECT_EQ(done->chunks, chunks);
  EXPECT_EQ(done->bytes, tp::raw_tensors<mlp>::schema().image_bytes);
  EXPECT_EQ(done->version, ref->version);
  const auto status = owner->status_of(*ref);
  ASSERT_TRUE(status);
  EXPECT_EQ(status->acquired, 1u);
  EXPECT_EQ(status->completed, outcome == tp::outcome::completed ? 1u : 0u);
  EXPECT_EQ(status->final(), 1u);
  EXPECT_EQ(status->bytes_sent, done->bytes);
  EXPECT_TRUE(owner->settled(*ref));
}

constexpr std::uint64_t image_bytes = tp::raw_tensors<mlp>::schema().image_bytes;
constexpr std::uint64_t chunks_of(std::uint64_t n) { return (image_bytes + n - 1) / n; }

TEST(TcpDownload, Every_integrity_policy) {
  expect_download<tp::fixed_bytes<64_KiB>, tp::image_digest>({}, tp::outcome::completed, chunks_of(64_KiB));
  expect_download<tp::fixed_bytes<64_KiB>, tp::chunk_and_image_digest>({}, tp::outcome::completed, chunks_of(64_KiB));
  expect_download<tp::fixed_bytes<64_KiB>, tp::chunk_digest>({}, tp::outcome::completed_unverified, chunks_of(64_KiB));
  expect_download<tp::fixed_bytes<64_KiB>, tp::unverified>({}, tp::outcome::completed_unverified, chunks_of(64_KiB));
}
TEST(TcpDownload, Every_chunking) {
  expect_download<tp::whole, tp::image_digest>({}, tp::outcome::completed, 1);
  expect_download<tp::per_tensor<2_MiB>, tp::image_digest>({}, tp::outcome::completed, 5);
  expect_download<tp::bytes_up_to<1_MiB>, tp::image_digest>({999}, tp::outcome::completed, chunks_of(999));
  expect_download<tp::fixed_bytes<1000>, tp::image_digest>({}, tp::outcome::completed, chunks_of(1000));
}

using net = tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<64_KiB>, tp::tcp>;

struct stack_of_layers {
  tiny layers[60];
};
struct other_layers {
  tiny layers[59];
  std::int32_t last;
};
}  // namespace tcp_download_test
BOOST_HANA_ADAPT_STRUCT(tcp_download_test::stack_of_layers, layers);
BOOST_HANA_ADAPT_STRUCT(tcp_download_test::other_layers, layers, last);
namespace tcp_download_test {
/// For programs that send no messages.
struct no_messages : tp::default_limits {
  static constexpr std::size_t application_body_bytes = 0, application_references = 0;
};
template <class Limits>
void expect_that_a_difference_far_down_is_named() {
  using here = tp::pipeline<tp::raw_tensors<stack_of_layers>, tp::fixed_bytes<64_KiB>, tp::tcp, Limits>;
  using there = tp::pipeline<tp::raw_tensors<other_layers>, tp::fixed_bytes<64_KiB>, tp::tcp, Limits>;
  const auto source = random_model<stack_of_layers>(1);
  auto owner = here::downloader::open({});
  const auto ref = owner->add_tensors(*source);
  serving server(*owner);
  const auto mine = blank<other_layers>();
  const auto done = there::download_tensors(local(owner->port()), ref->id, *mine, {.per_request_timeout = 20s});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error(), tp::errc::schema_mismatch);
  EXPECT_FALSE(done.error().name.empty());
  EXPECT_TRUE(same(*mine, *blank<other_layers>()));
}
TEST(TcpDownload, A_difference_far_down_the_schema_is_named) {
  expect_that_a_difference_far_down_is_named<tp::default_limits>();
}
TEST(TcpDownload, A_difference_far_down_is_named_although_no_message_may_be_as_long_as_a_page_of_a_schema) {
  expect_that_a_difference_far_down_is_named<no_messages>();
}
TEST(TcpDownload, Into_any_consumer) {
  const auto source = random_model<mlp>(1);
  auto owner = net::downloader::open({});
  const auto ref = owner->add_tensors(*source);
  serving server(*owner);
  tp::digest to;
  ASSERT_TRUE(net::pull(local(owner->port()), *ref, to));
  EXPECT_EQ(to.value(), ref->version);
}
TEST(TcpDownload, A_kept_model_is_released_when_it_is_settled) {
  using small_net = tp::pipeline<tp::raw_tensors<tiny>, tp::whole, tp::tcp>;
  auto owner = small_net::downloader::open({});
  std::shared_ptr<const tiny> kept = random_model<tiny>(1);
  const std::weak_ptr<const tiny> watched = kept;
  const auto ref = owner->add_tensors(std::move(kept), {.recipients = 1});
  const auto moved = owner->add_tensors(tiny{}, {.recipients = 1});
  ASSERT_TRUE(ref && moved);
  serving server(*owner);
  tiny mine;
  ASSERT_TRUE(small_net::download_tensors(local(owner->port()), *ref, mine));
  EXPECT_TRUE(eventually("the model is released", [&] { return watched.expired(); }));
}
TEST(TcpDownload, Malformed_addresses_are_refused) {
  for (const char* text : {"", "localhost", "127.0.0.1:x", "127.0.0.1:70000", "[::1", "no such host:1"}) {
    const auto mine = blank<mlp>();
    const auto done = net::download_tensors(text, tp::ref_id{1, 2}, *mine);
    ASSERT_FALSE(done) << text;
    EXPECT_EQ(done.error(), tp::errc::bad_address) << text;
    EXPECT_EQ(net::downloader::open({.listen = text}).error(), tp::errc::bad_address) << text;
  }
}
TEST(TcpDownload, Nobody_listens) {
  const own_port nobody;
  const auto mine = blank<mlp>();
  const auto done = net::download_tensors(local(nobody), tp::ref_id{1, 2}, *mine);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error(), tp::errc::connection_failed);
  EXPECT_EQ(done.error().system, ECONNREFUSED);
  EXPECT_EQ(net::session::connect(local(nobody)).error(), tp::errc::connection_failed);
}
TEST(TcpDownload, An_address_in_use) {
  auto owner = net::downloader::open({});
  const auto second = net::downloader::open({.listen = local(owner->port())});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error(), tp::errc::connection_failed);
  EXPECT_EQ(second.error().system, EADDRINUSE);
}

}  // namespace tcp_download_test
