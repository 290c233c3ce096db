// One-shot downloads over real sockets: connect, pull, close.
#include "network.hpp"
#include "support/clocks.hpp"

#include <tensorpull/consumers/any_schema/digest.hpp>

namespace tcp_download_test {

using namespace test;

using net = raw_net<mlp, tp::tcp>;

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
  using here = raw_net<stack_of_layers, tp::tcp, Limits>;
  using there = raw_net<other_layers, tp::tcp, Limits>;
  owner_at_work<here, stack_of_layers> o;
  const auto mine = blank<other_layers>();
  const auto done = there::download_tensors(local(o.owner->port()), o.ref.id, *mine, {.per_request_timeout = 20s});
  ASSERT_EQ(code_of(done), errc::schema_mismatch);
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
  owner_at_work<net> o;
  tp::digest to;
  ASSERT_TRUE(net::pull(local(o.owner->port()), o.ref, to));
  EXPECT_EQ(to.value(), o.ref.version);
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
    EXPECT_EQ(code_of(done), errc::bad_address) << text;
    EXPECT_EQ(code_of(net::downloader::open({.listen = text})), errc::bad_address) << text;
  }
}
TEST(TcpDownload, Nobody_listens) {
  const own_port nobody;
  const fast_clock fast(20);
  const auto mine = blank<mlp>();
  const auto done = net::download_tensors(local(nobody), tp::ref_id{1, 2}, *mine);
  ASSERT_EQ(code_of(done), errc::connection_failed);
  EXPECT_EQ(done.error().system, ECONNREFUSED);
  EXPECT_EQ(code_of(net::session::connect(local(nobody))), errc::connection_failed);
}
TEST(TcpDownload, An_address_in_use) {
  auto owner = net::downloader::open({});
  const auto second = net::downloader::open({.listen = local(owner->port())});
  ASSERT_EQ(code_of(second), errc::connection_failed);
  EXPECT_EQ(second.error().system, EADDRINUSE);
}

}  // namespace tcp_download_test
