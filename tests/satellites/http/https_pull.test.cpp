// Pulls and uploads over TLS, directly and through a proxy that is asked for connections (CONNECT): what the proxy
// sees, what it may refuse, and whose certificate is checked.
#include "http_server.hpp"
#include "transports/certificates.hpp"

#include <tensorpull/core/describe.hpp>
#include <tensorpull/satellites/http/recipient/http_pull.hpp>
#include <tensorpull/satellites/http/recipient/http_put.hpp>
#include <tensorpull/transports/over/tls/tls.hpp>

namespace https_pull_test {

using namespace test;
using tp::errc;
using net = tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<64_KiB>, tp::http>;

struct HttpsPull : testing::Test {
  const pki certificates{};
  std::unique_ptr<mlp> source = random_model<mlp>(31);
  std::string file = file_of<tp::raw_tensors<mlp>>(*source);
  std::uint64_t digest = [this] {
    tp::xxh3_64 h;
    h.update(std::as_bytes(std::span(file)));
    return h.digest();
  }();
  std::unique_ptr<mlp> mine = blank<mlp>();
  tp::pull_options options{.per_request_timeout = 60s, .retry = {.retries = 0}};
  tp::tls_context at_server = context_of(&certificates.server, certificates.authority);
  std::string trusted = certificates.authority.certificate();
  tp::tls_options trusts{.authorities = {.text = trusted}};
  std::mutex mutex;
  std::vector<std::string> requests;
  std::function<std::string(std::size_t)> says = [](std::size_t) { return "HTTP/1.1 200 OK\r\n\r\n"; };
  // threads of the following use what is above
  http_server server{file};
  /// TLS in front of the server.
  each_connection front{[this](raw_peer& peer, std::size_t, const std::stop_token& stop) {
    auto near = tp::tls_connection::server(std::move(peer.stream()), at_server);
    if (!near || !tp::detail::establish_by(*near, std::chrono::steady_clock::now() + 20s, stop)) return;
    auto far = tp::tcp_connect(local(server.port()), std::chrono::steady_clock::now() + 20s);
    if (far) pass_on(*near, *far, stop);
  }};
  /// A proxy that is asked for connections to it. It `says` something to each request, of which it is told the number.
  each_connection proxy{[this](raw_peer& near, std::size_t, const std::stop_token& stop) {
    std::string request;
    while (!request.ends_with("\r\n\r\n")) {
      const auto more = near.hear(1);
      if (more.empty()) return;
      request += static_cast<char>(more[0]);
    }
    std::string answer;
    {
      const std::lock_guard lock(mutex);
      answer = says(requests.size());
      requests.push_back(request);
    }
    if (!near.say(answer) || !answer.starts_with("HTTP/1.1 200")) return;
    auto far = tp::tcp_connect(local(front.port()), std::chrono::steady_clock::now() + 20s);
    if (far) pass_on(near.stream(), *far, stop);
  }};
  std::string url = "https://" + front.address() + "/v1/model/latest?key=hidden", via = proxy.address();

  tp::result<tp::receipt> pull(tp::http_address to, const tp::tls_options& with) {
    to.url = url, to.tls = with;
    mine = blank<mlp>();
    const auto done = net::download_tensors(to, tp::reference{{}, digest, 0}, *mine, options);
    if (done) {
      EXPECT_EQ(done->outcome, tp::outcome::completed);
      EXPECT_TRUE(same(*mine, *source));
    }
    return done;
  }
  tp::http_address proxied() const {
    return {.bearer = "secret", .proxy = {.address = via, .user = "user", .password = "word"}, .connections = 4};
  }
  /// Ranges are answered once this holds, so that further connections have their time on a slow machine, too.
  template <class Condition>
  void answer_ranges_once(Condition holds) {
    server.instead = [holds](const http_asked& a, raw_peer&) {
      if (a.number > 0) eventually("further connections are made", holds);
      return false;
    };
  }
  void let_proxy_say(std::function<std::string(std::size_t)> f) {
    const std::lock_guard lock(mutex);
    says = std::move(f);
  }
  std::vector<std::string> asked_of_proxy() {
    const std::lock_guard lock(mutex);
    return requests;
  }
};

TEST_F(HttpsPull, Several_connections_are_made_and_the_server_is_checked) {
  answer_ranges_once([this] { return server.connections() > 1; });
  const auto done = pull({.connections = 4}, trusts);
  ASSERT_TRUE(done) << describe(done.error());
  EXPECT_GT(server.connections(), 1u);
  EXPECT_LE(server.connections(), 4u);
  EXPECT_TRUE(asked_of_proxy().empty());
  const pki other;
  const std::string not_its = other.authority.certificate();
  const auto refused = pull({}, {.authorities = {.text = not_its}});
  EXPECT_EQ(refused.error(), errc::not_authenticated) << describe(refused.error());
}

TEST_F(HttpsPull, A_proxy_sees_a_name_and_its_own_password_and_nothing_else) {
  answer_ranges_once([this] { return asked_of_proxy().size() > 1; });
  const auto done = pull(proxied(), trusts);
  ASSERT_TRUE(done) << describe(done.error());
  const auto asked = asked_of_proxy();
  EXPECT_GT(asked.size(), 1u);
  const std::string where = local(front.port());
  for (const auto& request : asked) {
    EXPECT_TRUE(request.starts_with("CONNECT " + where + " HTTP/1.1\r\n")) << request;
    EXPECT_NE(request.find("Proxy-Authorization: Basic dXNlcjp3b3Jk\r\n"), request.npos) << request;
    EXPECT_EQ(request.find("secret"), request.npos);
    EXPECT_EQ(request.find("hidden"), request.npos);
  }
  for (const auto& a : server.asked()) {
    EXPECT_EQ(a.target, "/v1/model/latest?key=hidden");
    EXPECT_EQ(a.field("host"), where);
    EXPECT_EQ(a.field("authorization"), "Bearer secret");
    EXPECT_EQ(a.field("proxy-authorization"), "");
  }
}

TEST_F(HttpsPull, The_far_end_is_checked_behind_a_proxy_and_the_proxy_may_refuse) {
  const pki other;
  const std::string not_its = other.authority.certificate();
  EXPECT_EQ(pull(proxied(), {.authorities = {.text = not_its}}).error(), errc::not_authenticated);
  EXPECT_EQ(server.asked().size(), 0u);
  const std::pair<const char*, errc> cases[]{{"407 Proxy Authentication Required", errc::proxy_refused},
                                             {"403 Forbidden", errc::proxy_refused},
                                             {"503 No", errc::connection_failed}};
  for (const auto& [status, code] : cases) {
    let_proxy_say([status = status](std::size_t) { return "HTTP/1.1 " + std::string(status) + "\r\n\r\n"; });
    const auto done = pull(proxied(), trusts);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error(), code);
    EXPECT_EQ(done.error().name.view(), std::string(status, 3) + " from " + via);
  }
  const std::size_t before = asked_of_proxy().size();
  answer_ranges_once([this, before] { return asked_of_proxy().size() > before + 1; });
  let_proxy_say([before](std::size_t n) {
    return n == before ? "HTTP/1.1 200 OK\r\n\r\n" : "HTTP/1.1 403 One is enough\r\n\r\n";
  });
  const auto done = pull(proxied(), trusts);
  ASSERT_TRUE(done) << describe(done.error());
  EXPECT_EQ(server.connections(), 1u);
}

TEST_F(HttpsPull, A_certificate_is_shown_to_the_origin_that_the_caller_names_and_nowhere_else) {
  at_server = context_of(&certificates.server, certificates.authority, {.clients_have_certificates = true});
  std::atomic<int> came{0}, shown{0};
  each_connection elsewhere{[&](raw_peer& peer, std::size_t, const std::stop_token& stop) {
    auto near = tp::tls_connection::server(std::move(peer.stream()), at_server);
    ++came;
    if (near && tp::detail::establish_by(*near, std::chrono::steady_clock::now() + 20s, stop)) ++shown;
  }};
  EXPECT_EQ(pull({}, trusts).error(), errc::not_authenticated) << "it wants a certificate";
  const std::string certificate = certificates.client.certificate(), key = certificates.client.key();
  trusts.certificate = {.text = certificate}, trusts.key = {.text = key};
  ASSERT_TRUE(pull({}, trusts));
  const std::string away = "https://" + local(elsewhere.port()) + "/there";
  for (const bool at_once : {true, false}) {
    const std::size_t before = server.asked().size();
    const answering while_here(server, [&, before](const http_asked& a, raw_peer& peer) {
      if (at_once || a.number > before)
        return peer.say("HTTP/1.1 307 There\r\nLocation: " + away + "\r\nContent-Length: 0\r\n\r\n");
      peer.say("HTTP/1.1 206 P\r\nETag: \"v1\"\r\nContent-Range: bytes 0-" + std::to_string(file.size() - 1) + "/" +
               std::to_string(file.size()) + "\r\n\r\n" + file.substr(0, 200'000));
      close_now(peer);
      return true;
    });
    options.retry.retries = 1;
    const auto done = pull({}, trusts);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error(), errc::not_authenticated) << describe(done.error());
  }
  EXPECT_GE(came, 2);
  EXPECT_EQ(shown, 0);
}

TEST_F(HttpsPull, A_kept_connection_that_was_closed_costs_no_retry_and_no_confirmation) {
  server.fields = stated(digest);
  server.instead = [this](const http_asked& a, raw_peer& peer) {
    if (a.method == "POST") peer.say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    else server.serve_file(a, peer);
    close_now(peer);
    return true;
  };
  for (const bool through : {false, true}) {
    const auto done = pull(through ? proxied() : tp::http_address{}, trusts);
    ASSERT_TRUE(done) << describe(done.error());
    EXPECT_TRUE(done->confirmed);
  }
}

TEST_F(HttpsPull, An_upload_goes_through_it_too) {
  std::string kept;
  const answering while_here(server, [&](const http_asked& a, raw_peer& peer) {
    peer.say("HTTP/1.1 100 Continue\r\n\r\n");
    std::string body;
    for (const std::byte b : peer.hear(std::stoul(a.field("content-length")))) body += static_cast<char>(b);
    const std::lock_guard lock(mutex);
    kept = body;
    return peer.say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  });
  tp::http_address to = proxied();
  to.url = url, to.tls = trusts;
  const auto done = tp::http_put(to, tp::raw_tensors<mlp>::source(*source),
                                 {.timeout = 60s, .consent = 30s, .retry = {.retries = 0}});
  ASSERT_TRUE(done) << describe(done.error());
  const std::lock_guard lock(mutex);
  EXPECT_EQ(kept, file);
  EXPECT_EQ(requests.size(), 1u);
}

}  // namespace https_pull_test
