// Through an HTTP proxy: a real one, and ones that say anything.
#include "proxies.hpp"
#include "support/child_process.hpp"
#include "support/own_folder.hpp"

#include <tensorpull/core/describe.hpp>
#include <tensorpull/satellites/http/proxy/proxied_address.hpp>

#include <cstdlib>
#include <fstream>

namespace proxy_test {

using namespace test;
using net = tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<64_KiB>, tp::tcp>;

struct owning {
  std::unique_ptr<mlp> source = random_model<mlp>(1);
  tp::result<net::downloader> owner = net::downloader::open();
  tp::reference ref = *owner->add_tensors(*source);
  serving thread{*owner};

  tp::result<tp::receipt> pull(std::string_view proxy, std::string_view user = {},
                               std::string_view password = {}) const {
    const std::string where = local(owner->port());
    const auto mine = blank<mlp>();
    const auto done = net::download_tensors(tp::proxied_address{where, {proxy, user, password}}, ref, *mine,
                                            {.per_request_timeout = 10s, .retry = {.retries = 0}});
    EXPECT_EQ(same(*mine, *source), done.has_value());
    return done;
  }
};

TEST(Proxy, A_pull_and_a_session_go_through_it_however_its_answer_is_cut) {
  const owning o;
  const std::string yes = "HTTP/1.1 200 Connection established\r\nProxy-Agent: fake\r\nX: \t\xe4\r\n\r\n";
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, ~std::size_t{0}}) {
    fake_proxy p(yes, o.owner->port(), piece);
    const auto done = o.pull(local(p.port()), "Aladdin", "open sesame");
    EXPECT_TRUE(done) << describe(done.error());
    const std::string to = local(o.owner->port()), request = p.request();
    EXPECT_TRUE(request.starts_with("CONNECT " + to + " HTTP/1.1\r\nHost: " + to + "\r\n")) << request;
    EXPECT_NE(request.find("\r\nProxy-Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n"), request.npos);
  }
  fake_proxy p("HTTP/1.0 204 \r\n\r\n", o.owner->port());
  const std::string to = local(o.owner->port()), proxy = local(p.port());
  auto device = net::session::connect(tp::proxied_address{to, {.address = proxy}});
  ASSERT_TRUE(device) << describe(device.error());
  const auto mine = blank<mlp>();
  EXPECT_TRUE(device->download_tensors(o.ref, *mine));
  EXPECT_TRUE(same(*mine, *o.source));
  EXPECT_TRUE(o.pull({}));  // none is named: there is none on the way
}

TEST(Proxy, Whatever_else_it_answers_is_an_error_with_its_name) {
  const owning o;
  const auto end_of = [&](std::string answer, std::size_t piece = ~std::size_t{0}) {
    fake_proxy p(std::move(answer), 0, piece);
    const auto done = o.pull(local(p.port()), "user", "hunter2");
    EXPECT_FALSE(done);
    EXPECT_EQ(std::string_view(describe(done.error())).find("hunter2"), std::string_view::npos);
    EXPECT_NE(done.error().name.view().find(local(p.port())), std::string_view::npos);
    return done.error();
  };
  const auto denied = end_of("HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\r\nno");
  EXPECT_EQ(denied, tp::errc::proxy_refused);
  EXPECT_TRUE(denied.name.view().starts_with("407 from 127.0.0.1:"));
  EXPECT_EQ(end_of("HTTP/1.1 403 Forbidden\r\n\r\n"), tp::errc::proxy_refused);
  EXPECT_EQ(end_of("HTTP/1.1 301 Moved\r\nLocation: http://elsewhere/\r\n\r\n"), tp::errc::proxy_refused);
  EXPECT_EQ(end_of("HTTP/1.1 502 Bad Gateway\r\n\r\n"), tp::errc::connection_failed);  // worth another try
  for (const std::string bad : {"HTTP/1.1 20 OK\r\n\r\n", "HTTP/2 200\r\n\r\n", "SSH-2.0-OpenSSH\r\n\r\n", "\r\n\r\n"})
    EXPECT_EQ(end_of(bad), tp::errc::proxy_refused) << bad;
  EXPECT_EQ(end_of("HTTP/1.1 200 OK\r\nA: b\r\n"), tp::errc::connection_failed);  // it ends in the middle
}

TEST(Proxy, The_environment_does_not_lead_past_it) {
  const owning o;
  for (const char* const name : {"no_proxy", "NO_PROXY"}) {
    ::setenv(name, "*", 1);
    fake_proxy p("HTTP/1.1 403 Forbidden\r\n\r\n");
    const auto done = o.pull(local(p.port()));
    ::unsetenv(name);
    ASSERT_FALSE(done) << name;
    EXPECT_EQ(done.error(), tp::errc::proxy_refused);
  }
}

TEST(Proxy, One_that_says_nothing_costs_the_time_and_a_stop_is_heard) {
  auto silent = tp::tcp_listener::open("127.0.0.1:0");
  ASSERT_TRUE(silent);
  const std::string proxy = local(silent->port());
  const tp::proxied_address to{"server.example.org:8002", {.address = proxy}};
  EXPECT_EQ(to.connect(100ms).error(), tp::errc::timed_out);
  std::stop_source stop;
  joined_thread later([&] { be_slow(50ms), stop.request_stop(); });
  EXPECT_EQ(to.connect(60s, stop.get_token()).error(), tp::errc::cancelled);
}

TEST(Proxy, Nothing_in_an_address_or_a_password_can_add_a_line) {
  const auto refused = [](std::string_view target, tp::http_proxy p) {
    return tp::proxied_address{target, p}.connect(10s).error();
  };
  for (const std::string_view bad :
       {"a\r\nX: y:1", "a b:1", ":1", "a", "a\n:1", "a/b:1", "a?b:1", "a#b:1", "user@a:1", "[::1\r\n]:1"})
    EXPECT_EQ(refused(bad, {"p:1"}), tp::errc::bad_address) << bad;
  EXPECT_EQ(refused("a:1", {"p:1", "us:er", "x"}), tp::errc::invalid_argument);
  EXPECT_EQ(refused("a:1", {"p:1", "user", "x\r\n"}), tp::errc::invalid_argument);
  EXPECT_EQ(refused("a:1", {"p\r\n:1"}), tp::errc::bad_address);
  for (const std::string_view more : {"token@127.0.0.1:1", "127.0.0.1/token:1", "127.0.0.1?token:1"}) {
    const auto why = refused("a:1", {more});
    EXPECT_EQ(why, tp::errc::bad_address) << more;
    if (more.starts_with("token")) {
      EXPECT_EQ(why.name.view(), "127.0.0.1:1") << "an error has no user";
    }
  }
}

/// tinyproxy on a port of its own. It is killed with this object: SIGTERM it does not hear if it comes between its look
/// at what it has been told and its wait for the next connection, about one time in fifty.
class tinyproxy {
 public:
  explicit tinyproxy(std::uint16_t to) : config_(written(to)), child_(words_) {
    EXPECT_TRUE(eventually("tinyproxy listens, or is not installed", [&] {
      there_ = tp::tcp_connect(local(port_), std::chrono::steady_clock::now() + 1s).has_value();
      return there_ || child_.ended();
    }));
  }
  bool there() const { return there_; }
  std::uint16_t port() const { return port_; }

 private:
  std::string written(std::uint16_t to) const {
    std::ofstream(folder_ / "config") << "Port " << port_ << "\nListen 127.0.0.1\nTimeout 60\n"
                                      << "BasicAuth site secret\nConnectPort " << to << "\nLogLevel Critical\n";
    return folder_ / "config";
  }
  own_folder folder_;
  own_port port_;
  std::string config_;
  const char* words_[5]{"tinyproxy", "-d", "-c", config_.c_str(), nullptr};
  child_process child_;
  bool there_ = false;
};

TEST(Proxy, Tinyproxy_lets_through_who_has_its_password) {
  const owning o;
  const tinyproxy proxy(o.owner->port());
  if (!proxy.there()) GTEST_SKIP() << "tinyproxy is not here";
  const auto done = o.pull(local(proxy.port()), "site", "secret");
  EXPECT_TRUE(done) << describe(done.error());
  const auto denied = o.pull(local(proxy.port()), "site", "wrong");
  ASSERT_FALSE(denied);
  EXPECT_EQ(denied.error(), tp::errc::proxy_refused) << describe(denied.error());
}

}  // namespace proxy_test
