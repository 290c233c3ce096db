// An owner whose answers web pages of another origin may read: what a browser asks before, what it is told, and that
// nothing is told unless the option is set.
#include "http_client.hpp"

namespace http_owner_browser_test {

using namespace test;
using net = tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<64_KiB>, tp::http_only<tp::tcp>>;

constexpr std::string_view page = "Origin: https://app.example\r\n";

struct HttpOwnerBrowser : testing::Test {
  HttpOwnerBrowser()
      : owner(net::downloader::open()), source(random_model<mlp>(1)), image(image_of(*source)),
        ref(*owner->add_tensors(*source)) {}
  /// From here on it answers.
  void allow(std::string_view origin) {
    if (!origin.empty()) owner->shared().options.allow_origin = *tp::http_origin::parse(origin);
    thread.emplace(*owner);
  }
  std::string preflight(std::string_view path) const {
    return "OPTIONS " + std::string(path) + " HTTP/1.1\r\nHost: a\r\n" + std::string(page) +
           "Access-Control-Request-Method: GET\r\nAccess-Control-Request-Headers: authorization,range\r\n\r\n";
  }
  tp::result<net::downloader> owner;
  const std::unique_ptr<mlp> source;
  const std::string image;
  const tp::reference ref;
  std::optional<serving> thread;
};

constexpr bool reads(std::string_view text) { return tp::http_origin::parse(text).has_value(); }
static_assert(reads("*") && reads("https://app.example") && reads("http://127.0.0.1:8000") &&
              reads("http://[::1]:8000") && reads("http://localhost") && reads("chrome-extension://abcdef"));
static_assert(!reads("") && !reads("null") && !reads("app.example") && !reads("https://") &&
              !reads("https://app.example/") && !reads("https://App.example") && !reads("HTTPS://app.example"));
static_assert(!reads("https://a b") && !reads("https://a,https://b") && !reads("https://*.example") &&
              !reads("https://a\r\nX: y") && !reads("https://a@b") && !reads("://a") && !reads("* "));
static_assert(!reads("http://a:80") && !reads("https://a:443") && reads("https://a:80") && !reads("http://a:") &&
              !reads("http://a:0") && !reads("http://a:65536") && !reads("http://a:080") && !reads("http://a:1:2"));
static_assert(!reads("http://[::1") && !reads("http://[]") && !reads("http://[::1]x") && !reads("http://::1") &&
              !reads("http://[g::1]"));
static_assert(tp::http_origin::any().text() == "*" && !tp::http_origin() && tp::http_origin().text().empty());

TEST_F(HttpOwnerBrowser, Without_the_option_a_browser_is_told_nothing_and_refuses_the_page) {
  allow({});
  http_client c(owner->port());
  const auto a = c.ask("GET", ref, page);
  EXPECT_EQ(a.status, 200);
  for (const auto& [name, value] : a.fields) EXPECT_NE(name.substr(0, 15), "Access-Control-") << value;
  c.say(preflight(path_of(ref)));
  const auto refused = c.hear();
  EXPECT_EQ(refused.status, 405);
  EXPECT_EQ(refused.at("Access-Control-Allow-Origin"), "");
  EXPECT_TRUE(c.hear_end());
}

TEST_F(HttpOwnerBrowser, One_origin_is_named_in_each_answer_and_never_the_one_that_asks) {
  allow("https://app.example");
  http_client c(owner->port());
  tp::reference unknown = ref;
  unknown.id.low ^= 1;
  for (const std::string& asks : {std::string(page), std::string("Origin: https://evil.example\r\n"),
                                  std::string("Origin: null\r\n"), std::string()}) {
    const auto whole = c.ask("GET", ref, asks), part = c.ask("GET", ref, asks + "Range: bytes=8-15\r\n"),
               same = c.ask("GET", ref, asks + "If-None-Match: \"" + hex(ref.version) + "\"\r\n");
    EXPECT_TRUE(whole.body == image);
    EXPECT_EQ(part.body, image.substr(8, 8));
    EXPECT_EQ(same.status, 304);
    for (const auto& a : {whole, part, same, c.ask("HEAD", ref, asks), c.ask("GET", unknown, asks)}) {
      EXPECT_EQ(a.at("Access-Control-Allow-Origin"), "https://app.example") << a.status;
      const std::string exposed = ", " + a.at("Access-Control-Expose-Headers") + ",";
      for (const char* name : {"Accept-Ranges", "Content-Range", "ETag", "Repr-Digest", "Retry-After"})
        EXPECT_NE(exposed.find(", " + std::string(name) + ","), exposed.npos) << name;
      EXPECT_EQ(a.at("Access-Control-Allow-Credentials"), "");
    }
    EXPECT_EQ(whole.at("Vary"), "Authorization")
        << "the answer does not depend on who asks, so a cache may give it to all";
  }
}

TEST_F(HttpOwnerBrowser, A_preflight_is_answered_without_a_key_and_says_nothing_about_what_is_published) {
  allow("*");
  http_client c(owner->port());
  std::map<std::string, std::string> first;
  for (const std::string& path : {path_of(ref), path_of(ref) + "/confirm", path_of(ref) + "/cancel",
                                  std::string("/v1/a/0123456789abcdef"), std::string("/nothing")}) {
    c.say(preflight(path));
    auto a = c.hear();
    EXPECT_EQ(a.status, 204) << path;
    EXPECT_EQ(a.at("Content-Length"), "");  // RFC 9110, 8.6
    EXPECT_EQ(a.at("Access-Control-Allow-Origin"), "*");
    EXPECT_EQ(a.at("Access-Control-Allow-Methods"), "GET, HEAD, POST");
    const std::string allowed = ", " + a.at("Access-Control-Allow-Headers") + ",";
    for (const char* name : {"Authorization", "Range", "If-Range", "If-Match", "If-None-Match", "Repr-Digest",
                             "Tensorpull-Recipient", "Content-Type"})
      EXPECT_NE(allowed.find(", " + std::string(name) + ","), allowed.npos) << name;
    EXPECT_EQ(a.at("Access-Control-Max-Age"), "7200");
    a.fields.erase("Date");
    if (first.empty()) first = a.fields;
    EXPECT_EQ(a.fields, first) << path;
  }
  EXPECT_TRUE(c.ask("GET", ref, page).body == image);  // over the same connection
  EXPECT_EQ(owner->shared().counts.answers(204), 5u);
  c.say("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(c.hear().status, 400);
}

TEST_F(HttpOwnerBrowser, A_preflight_with_a_body_or_two_lengths_is_refused_as_any_request) {
  allow("*");
  for (const char* fields :
       {"Content-Length: 5\r\n\r\nGET /", "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Content-Length: 0\r\nContent-Length: 0\r\n\r\n"}) {
    http_client c(owner->port());
    c.say("OPTIONS /v1 HTTP/1.1\r\nHost: a\r\n" + std::string(fields));
    EXPECT_EQ(c.hear().status, 400) << fields;
    EXPECT_TRUE(c.hear_end());
  }
}

TEST_F(HttpOwnerBrowser, No_page_reads_the_metrics) {
  owner->shared().options.metrics = true;
  allow("*");
  http_client c(owner->port());
  c.say("GET /metrics HTTP/1.1\r\nHost: a\r\n" + std::string(page) + "\r\n");
  const auto a = c.hear();
  EXPECT_EQ(a.status, 200);
  EXPECT_EQ(a.at("Access-Control-Allow-Origin"), "");
  c.say(preflight("/metrics"));
  EXPECT_EQ(c.hear().at("Access-Control-Allow-Origin"), "");
}

TEST_F(HttpOwnerBrowser, The_longest_origin_fits_into_the_longest_head) {
  const std::string origin = "https://" + std::string(tp::http_origin::most_bytes - 14, 'a') + ":65535";
  EXPECT_FALSE(reads(origin + "0"));
  allow(origin);
  http_client c(owner->port());
  c.say("GET " + path_of(ref) + " HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + key_of(ref) +
        "\r\nRange: bytes=0-9\r\nConnection: close\r\n\r\n");
  const auto a = c.hear();
  EXPECT_EQ(a.at("Access-Control-Allow-Origin"), origin);
  EXPECT_EQ(a.body, image.substr(0, 10));
  EXPECT_EQ(a.at("Repr-Digest").substr(0, 5), "xxh3=");
  http_client asks(owner->port());
  asks.say(preflight(path_of(ref)));
  EXPECT_EQ(asks.hear().at("Access-Control-Max-Age"), "7200");
}

TEST_F(HttpOwnerBrowser, Who_only_asks_before_and_reads_metrics_has_shown_nothing) {
  owner = net::downloader::open({.host = {.budgets = {.accept = 3s}}});
  const auto shown = *owner->add_tensors(*source);
  owner->shared().options.metrics = true;
  allow("*");
  http_client asks(owner->port()), measures(owner->port()), has_the_key(owner->port());
  EXPECT_EQ(has_the_key.ask("HEAD", shown).status, 200);
  const auto end = std::chrono::steady_clock::now() + 30s;
  bool one = true, other = true;
  while ((one || other) && std::chrono::steady_clock::now() < end) {
    if (one) one = asks.say(preflight("/")) && asks.hear().status == 204;
    if (other) other = measures.say("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n") && measures.hear().status == 200;
    look_again_soon();
  }
  EXPECT_FALSE(one);
  EXPECT_FALSE(other);
  EXPECT_EQ(has_the_key.ask("HEAD", shown).status, 200);
}

}  // namespace http_owner_browser_test
