// Whole transfers over TLS: an owner, a host, sessions in both roles, and the identity of the other end.
#include "certificates.hpp"
#include "network.hpp"

#include <tensorpull/transports/over/tls/tls.hpp>

namespace tls_download_test {

using namespace test;
using net = tp::pipeline<tp::raw_tensors<large>, tp::fixed_bytes<256_KiB>, tp::tls>;
using threaded = raw_net<mlp, tp::tls_on_threads>;
static_assert(tp::tls::encrypted && tp::tls::identifies == tp::identity_kind::certificate);

tp::tls_address to(std::uint16_t port, const tp::tls_context& c, std::string& text) {
  return {.address = text = local(port), .context = c};
}

TEST(TlsDownload, A_model_arrives_over_each_version_and_from_several_threads) {
  const pki p;
  const auto source = random_model<large>(1);
  const auto small = random_model<mlp>(2);
  auto owner = net::downloader::open(p.here());
  auto several = threaded::downloader::open(p.here());
  ASSERT_TRUE(owner && several);
  const auto ref = *owner->add_tensors(*source);
  const auto small_ref = *several->add_tensors(*small);
  serving thread(*owner), threads(*several, 3);
  std::string text;
  for (const auto& as : {p.calling(), of_1_2(p.calling()), p.calling({.minimum = tp::tls_version::v1_3})}) {
    const auto mine = blank<large>();
    const auto done = net::download_tensors(to(owner->port(), as, text), ref, *mine);
    ASSERT_TRUE(completed(done));
    EXPECT_TRUE(same(*mine, *source));
  }
  on_threads(4, [&](std::size_t) {
    std::string where;
    EXPECT_TRUE(arrives<threaded>(to(several->port(), p.calling(), where), small_ref, *small));
  });
}

/// Pulls from each peer that connects, and publishes to it.
struct both_ways {
  tp::reference theirs{};
  large* to = nullptr;
  std::string name, subject;
  std::vector<std::string> alternatives;
  std::optional<tp::result<tp::receipt>> outcome;
  template <class C> void connected(C&) {}
  template <class C> void message(C& c, const tp::message& m) {
    theirs = m.references[0];
    EXPECT_TRUE(c.pull(theirs, {}, tp::raw_tensors<large>::destination(*to)));
  }
  template <class C> void pulled(C&, const tp::result<tp::receipt>& r) { outcome = r; }
  template <class C> void closed(C&, const tp::error&) {}
};

TEST(TlsDownload, Both_directions_go_over_one_connection_of_a_device_that_dials_out) {
  const pki p;
  const auto global = random_model<large>(3), update = random_model<large>(4);
  const auto landed = blank<large>(), mine = blank<large>();
  tp::event_loop io;
  both_ways handler;
  handler.to = landed.get();
  net::host<both_ways, tp::land> host(io, handler);
  const auto port = host.listen(p.here({.clients_have_certificates = true}));
  ASSERT_TRUE(port);
  const auto ref = *host.published().add_tensors(*global);
  joined_thread loop([&](const std::stop_token& stop) {
    const std::stop_callback ends(stop, [&] { io.stop(); });  // also if the test has failed before its end
    io.run();
  });

  std::string text;
  auto device = net::session::connect(to(*port, context_of(&p.client, p.authority), text));
  ASSERT_TRUE(succeeded(device));
  EXPECT_EQ(device->stream().peer().name, "server");
  ASSERT_TRUE(device->download_tensors(ref, *mine));
  EXPECT_TRUE(same(*mine, *global));
  const auto up = *device->add_tensors(*update, {.recipients = 1});
  ASSERT_TRUE(device->send(1, {&up, 1}, {}));
  EXPECT_TRUE(device->serve(tp::until_settled(up), 60s));
  host.stop();
  loop.join();
  ASSERT_TRUE(handler.outcome && *handler.outcome);
  EXPECT_TRUE(same(*landed, *update));
}

TEST(TlsDownload, Two_programs_that_wait_know_each_other_and_how_they_speak) {
  const pki p;
  auto listener = p.here({.clients_have_certificates = true}).listen();
  ASSERT_TRUE(listener);
  std::string text = local(listener->port());
  joined_thread client([&] {
    auto s = tp::tls_address{text, context_of(&p.client, p.authority)}.connect(10s);
    ASSERT_TRUE(succeeded(s));
    EXPECT_EQ(s->peer().alternatives.size(), 1u);
    EXPECT_EQ(s->peer().alternatives[0], "IP:127.0.0.1");
    EXPECT_EQ(s->version(), "TLSv1.3");
    EXPECT_NE(s->cipher().find("GCM"), std::string_view::npos);
  });
  const auto s = listener->accept(10s);
  ASSERT_TRUE(succeeded(s));
  const tp::peer_identity who = s->peer();
  EXPECT_EQ(who.kind, tp::identity_kind::certificate);
  EXPECT_EQ(who.name, "site-1");
  EXPECT_EQ(who.subject, "CN=site-1,O=tests");
  ASSERT_EQ(who.alternatives.size(), 2u);
  EXPECT_EQ(who.alternatives[0], "DNS:site-1.example.org");
  EXPECT_EQ(who.alternatives[1], "email:a@example.org");
}

TEST(TlsDownload, A_host_connects_and_pulls_and_hears_why_it_cannot) {
  const pki p, others;
  const auto source = random_model<large>(5);
  const auto landed = blank<large>();
  auto owner = net::downloader::open(p.here());
  ASSERT_TRUE(owner);
  puller<large> handler{*owner->add_tensors(*source), landed.get()};
  serving thread(*owner);
  tp::event_loop io;
  net::host<puller<large>, tp::land> host(io, handler);
  std::string text;
  ASSERT_TRUE(host.connect(to(owner->port(), p.calling(), text)));
  while (!handler.end) io.run_one();
  ASSERT_TRUE(handler.outcome && *handler.outcome);
  EXPECT_TRUE(same(*landed, *source));
  handler.end = {};
  ASSERT_TRUE(host.connect(to(owner->port(), others.calling(), text)));
  while (!handler.end) io.run_one();
  EXPECT_EQ(*handler.end, errc::not_authenticated);
}

}  // namespace tls_download_test
