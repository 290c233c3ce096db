// TLS through an HTTP proxy: the proxy sees a name and ciphertext, and the certificate is that of the end behind it.
#include "proxies.hpp"
#include "transports/certificates.hpp"

#include <tensorpull/core/describe.hpp>
#include <tensorpull/satellites/http/proxy/proxied_address.hpp>
#include <tensorpull/transports/over/tls/tls.hpp>

namespace tls_proxy_test {

using namespace test;
using net = tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<64_KiB>, tp::tls>;
const std::string yes = "HTTP/1.1 200 OK\r\n\r\n";

TEST(TlsProxy, A_pull_goes_through_it_and_the_far_end_is_checked_and_a_host_adopts_what_is_connected) {
  const pki p, other;
  const auto source = random_model<mlp>(1);
  auto owner = net::downloader::open(tp::tls_address{"127.0.0.1:0", context_of(&p.server, p.authority)});
  ASSERT_TRUE(owner);
  const auto ref = *owner->add_tensors(*source);
  serving thread(*owner);
  const std::string where = local(owner->port());
  const auto mine = blank<mlp>();
  {
    fake_proxy proxy(yes, owner->port(), 3);
    const std::string via = local(proxy.port());
    const tp::proxy_dialer through({via, "user", "x"});
    const auto done = net::download_tensors(tp::tls_address{where, context_of(nullptr, p.authority), {}, &through}, ref,
                                            *mine);
    EXPECT_TRUE(done) << describe(done.error());
    EXPECT_TRUE(same(*mine, *source));
    EXPECT_TRUE(proxy.request().starts_with("CONNECT " + where + " "));
  }
  {
    fake_proxy proxy(yes, owner->port());
    const std::string via = local(proxy.port());
    const tp::proxy_dialer through({via});
    const auto done = net::download_tensors(tp::tls_address{where, context_of(nullptr, other.authority), {}, &through},
                                            ref, *mine);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error(), tp::errc::not_authenticated);
  }
  fake_proxy proxy(yes, owner->port(), 5);
  const std::string via = local(proxy.port());
  const tp::proxy_dialer through({via, "user", "x"});
  const tp::tls_address to{where, context_of(nullptr, p.authority), {}, &through};
  tp::event_loop io;
  const auto landed = blank<mlp>();
  puller<mlp> handler{ref, landed.get()};
  net::host<puller<mlp>, tp::land> host(io, handler);
  const auto waits = host.connect(to);  // on the event loop
  ASSERT_FALSE(waits);
  EXPECT_EQ(waits.error(), tp::errc::unsupported_request);
  auto connected = to.connect(10s);
  ASSERT_TRUE(connected) << describe(connected.error());
  ASSERT_TRUE(host.adopt(std::move(*connected)));
  while (!handler.end) io.run_one();
  EXPECT_TRUE(handler.outcome && *handler.outcome && same(*landed, *source));
}

}  // namespace tls_proxy_test
