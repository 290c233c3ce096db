// Chunks that follow from the link, and from how fast the recipient is, over UDP.
#include "transports/udp_network.hpp"

namespace udp_chunks_test {

using namespace test;
using tp::fit_datagram;

static_assert(std::is_same_v<tp::pipeline<tp::raw_tensors<mlp>, fit_datagram, tp::udp>::chunking, fit>);
using adaptive_net =
    tp::pipeline<tp::raw_tensors<mlp>, tp::adaptive_bytes<64, 1112>, troubled_udp, tp::chunk_and_image_digest>;

TEST(UdpChunks, Adaptive_chunks_arrive_though_datagrams_are_lost) {
  troubled_udp::faults = {.lost = 50, .seed = 7};
  const auto source = random_model<mlp>(1);
  auto mine = blank<mlp>();
  auto owner = adaptive_net::downloader::open();
  ASSERT_TRUE(owner);
  const auto ref = owner->add_tensors(*source, {.recipients = 1});
  ASSERT_TRUE(ref);
  serving run(*owner);
  const auto done = adaptive_net::download_tensors(local(owner->port()), *ref, *mine);
  ASSERT_TRUE(succeeded(done));
  EXPECT_TRUE(same(*source, *mine));
  EXPECT_LT(done->chunks, sizeof(mlp) / 64) << "they have become longer";
  troubled_udp::faults = {};
}

}  // namespace udp_chunks_test
