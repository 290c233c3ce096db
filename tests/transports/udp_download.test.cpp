// Whole transfers over UDP: both families, lengths of datagrams, many recipients on one socket, what differs, what
// ends.
#include "support/clocks.hpp"
#include "udp_network.hpp"

#include <atomic>

namespace udp_download_test {

using namespace test;

template <class Net, class Model>
void expect_transfer(const char* host) {
  auto owner = Net::downloader::open({.listen = std::string(host) + ":0"});
  if (!owner) GTEST_SKIP() << "this machine has no such addresses";
  const auto source = random_model<Model>(2), mine = blank<Model>();
  const auto ref = owner->add_tensors(*source, {.recipients = 1});
  ASSERT_TRUE(ref);
  tp::result<tp::receipt> done = tp::failure(errc::timed_out);
  joined_thread recipient(
      [&] { done = Net::download_tensors(std::string(host) + ":" + std::to_string(owner->port()), *ref, *mine); });
  EXPECT_TRUE(owner->run(tp::until_settled(*ref), within(ample_time)));
  serving rest(*owner);  // the confirmation's answer may be asked for again
  recipient.join();
  ASSERT_TRUE(confirmed(done));
  EXPECT_TRUE(same(*mine, *source));
  rest.stop();
  EXPECT_EQ(owner->status_of(*ref)->completed, 1u);
}

TEST(UdpDownload, Over_ipv6) { expect_transfer<udp_net, mlp>("[::1]"); }
TEST(UdpDownload, Less_than_a_chunk) {
  expect_transfer<tp::pipeline<tp::raw_tensors<tiny>, fit, tp::udp>, tiny>("127.0.0.1");
}
TEST(UdpDownload, Twelve_mebibytes) {
  expect_transfer<tp::pipeline<tp::raw_tensors<large>, fit, tp::udp>, large>("127.0.0.1");
}
TEST(UdpDownload, Datagrams_of_512_bytes) {
  expect_transfer<tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<424>, tp::basic_udp<512>>, mlp>("127.0.0.1");
}
TEST(UdpDownload, Datagrams_of_8972_bytes) {
  expect_transfer<tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<8880>, tp::basic_udp<8972>>, mlp>("127.0.0.1");
}
TEST(UdpDownload, The_longest_datagrams) {
  expect_transfer<tp::pipeline<tp::raw_tensors<large>, tp::fixed_bytes<65'416>, tp::basic_udp<65'507>>, large>(
      "127.0.0.1");
}
TEST(UdpDownload, Chunks_shorter_than_a_datagram_share_one) {
  expect_transfer<tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<200>, tp::udp>, mlp>("127.0.0.1");
}
TEST(UdpDownload, Chunks_with_digests_of_their_own) {
  expect_transfer<tp::pipeline<tp::raw_tensors<mlp>, fit, tp::udp, tp::chunk_and_image_digest>, mlp>("127.0.0.1");
}

TEST(UdpDownload, Many_recipients_on_one_socket) {
  auto owner = udp_net::downloader::open();
  const auto source = random_model<mlp>(3);
  constexpr std::uint32_t recipients = 24;
  const auto ref = *owner->add_tensors(*source, {.recipients = recipients});
  const auto files = descriptors();
  std::atomic<std::uint32_t> right{0};
  joined_threads all(recipients, [&](std::size_t) {
    const auto mine = blank<mlp>();
    const auto done = udp_net::download_tensors(local(owner->port()), ref, *mine);
    right += done && done->outcome == tp::outcome::completed && same(*mine, *source);
  });
  serving server(*owner);
  all.join();
  server.stop();
  EXPECT_EQ(right, recipients);
  EXPECT_EQ(owner->status_of(ref)->completed, recipients);
  EXPECT_TRUE(owner->settled(ref));
  EXPECT_EQ(descriptors(), files) << "one socket for all";
}

TEST(UdpDownload, An_owner_sends_no_faster_than_it_is_told) {
  const auto source = random_model<mlp>(3);
  for (const auto& limits :
       {tp::send_limits{.owner_bytes_per_second = 400'000}, tp::send_limits{.recipient_bytes_per_second = 200'000}}) {
    auto owner = udp_net::downloader::open({.limits = limits});
    const auto ref = *owner->add_tensors(*source);
    serving server(*owner);
    const fast_clock fast(5);
    const auto start = steady_clock::now();
    std::atomic<int> right{0};
    on_threads(2, [&](std::size_t) {
      const auto mine = blank<mlp>();
      right += udp_net::download_tensors(local(owner->port()), ref, *mine).has_value() && same(*mine, *source);
    });
    EXPECT_EQ(right, 2);
    EXPECT_GT(steady_clock::now() - start, 1s) << "400 KB to each of two, 400 KB in any second";
  }
}

TEST(UdpDownload, Malformed_addresses_are_refused) {
  const auto mine = blank<mlp>();
  EXPECT_EQ(code_of(udp_net::download_tensors("nowhere", tp::ref_id{1, 1}, *mine)), errc::bad_address);
  EXPECT_EQ(code_of(udp_net::downloader::open({.listen = "nowhere"})), errc::bad_address);
  auto owner = udp_net::downloader::open();
  EXPECT_EQ(code_of(udp_net::downloader::open({.listen = local(owner->port())})), errc::connection_failed);
}

}  // namespace udp_download_test
