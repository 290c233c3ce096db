// Files of any kind from a web server: which bytes are asked for, who is believed, and who learns who asks.
#include "http_server.hpp"

#include <tensorpull/core/describe.hpp>
#include <tensorpull/satellites/http/recipient/http_fetch.hpp>

namespace http_fetch_test {

using namespace test;
using tp::errc;

struct HttpFetch : testing::Test {
  std::string file = [] {
    std::string bytes(300'000, '\0');
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 2'654'435'761u >> 13);
    return bytes;
  }();
  tp::http_fetch_options options{.timeout = 30s, .retry = {.retries = 0, .first_delay = 1ms}};
  std::string got;
  std::vector<std::string> said;  // by the server itself
  http_server elsewhere{file}, server{file};

  tp::http_fetcher fetcher() {
    url = server.url("/ignored?x=y");
    return tp::http_fetcher({.url = url, .bearer = "key"}, options);
  }
  tp::http_fetcher::look look() {
    return [this](const tp::http_statement& s) -> tp::result<void> {
      said.push_back(std::string(s.redirect ? "leads " : "has ") + std::string(s.etag) + " " +
                     (s.bytes ? std::to_string(*s.bytes) : "?") + " " + std::string(s.commit));
      return {};
    };
  }
  tp::http_fetcher::sink sink() {
    return [this](std::span<const std::byte> bytes) -> tp::result<void> {
      got.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      return {};
    };
  }
  tp::result<void> get(std::uint64_t from = 0) { return get(from, file.size()); }
  tp::result<void> get(std::uint64_t from, std::uint64_t bytes) {
    auto f = fetcher();
    return f.get("/a%20b?c=d", from, bytes, look(), sink());
  }
  static std::string redirect_to(const std::string& url, std::string_view fields = {}) {
    return "HTTP/1.1 302 Found\r\nContent-Length: 5\r\nLocation: " + url + "\r\n" + std::string(fields) + "\r\nthere";
  }

 private:
  std::string url;
};

TEST_F(HttpFetch, Bytes_come_from_any_of_them_on_and_the_connection_is_kept) {
  server.fields = "X-Repo-Commit: c0\r\n";
  auto f = fetcher();
  ASSERT_TRUE(f.get("/a%20b?c=d", 0, file.size(), look(), sink()));
  EXPECT_EQ(got, file);
  got.clear();
  ASSERT_TRUE(f.get("/a%20b?c=d", 1234, file.size(), look(), sink()));
  EXPECT_EQ(got, file.substr(1234));
  ASSERT_TRUE(f.head("/head", look()));
  const auto asked = server.asked();
  ASSERT_EQ(asked.size(), 3u);
  EXPECT_EQ(asked[0].target, "/a%20b?c=d");
  EXPECT_EQ(asked[0].field("range") + "|" + asked[1].field("range"), "|bytes=1234-");
  EXPECT_EQ(asked[0].field("authorization"), "Bearer key");
  EXPECT_EQ(asked[0].field("accept-encoding"), "identity");
  EXPECT_EQ(asked[2].method, "HEAD");
  EXPECT_EQ(said, (std::vector<std::string>(3, "has v1 300000 c0")));
  EXPECT_EQ(server.connections(), 1u);
}

TEST_F(HttpFetch, A_lost_connection_goes_on_behind_the_last_byte) {
  options.retry.retries = 2;
  server.close_after = 100'000;
  ASSERT_TRUE(get(10));
  EXPECT_EQ(got, file.substr(10));
  const auto asked = server.asked();
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_EQ(asked[1].field("range"), "bytes=100010-");
}

TEST_F(HttpFetch, What_a_server_without_ranges_sends_again_is_passed_over) {
  options.retry.retries = 2;
  server.ranges = false;
  server.close_after = 100'000;
  ASSERT_TRUE(get(10));
  EXPECT_EQ(got, file.substr(10));
}

TEST_F(HttpFetch, A_server_that_never_comes_further_is_given_up) {
  options.retry.retries = 3;
  server.ranges = false;
  std::atomic<int> tries = 0;
  const answering cut(server, [&](const http_asked&, raw_peer& peer) {
    ++tries;
    peer.say("HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n" + file.substr(0, 200'000));
    close_now(peer);
    return true;
  });
  const auto done = get();
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, errc::connection_lost);
  EXPECT_EQ(got, file.substr(0, 200'000));
  EXPECT_EQ(tries, 4) << "the first one came further, and three more did not";
}

TEST_F(HttpFetch, Another_length_is_refused_before_a_byte) {
  for (const std::uint64_t wanted : {file.size() - 1, file.size() + 1, std::size_t{0}}) {
    const auto done = get(0, wanted);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, errc::wrong_payload);
    EXPECT_EQ(got, "");
  }
  const auto behind = get(file.size() + 1);
  ASSERT_FALSE(behind);
  EXPECT_EQ(behind.error().code, errc::out_of_range);
  server.chunked = true;  // then the length shows when they have come
  const auto longer = get(0, file.size() - 1);
  ASSERT_FALSE(longer);
  EXPECT_EQ(longer.error().code, errc::wrong_payload);
  got.clear();
  const auto shorter = get(0, file.size() + 1);
  ASSERT_FALSE(shorter);
  EXPECT_EQ(shorter.error().code, errc::connection_lost);
  got.clear();
  ASSERT_TRUE(get());
  EXPECT_EQ(got, file);
}

TEST_F(HttpFetch, Only_the_server_itself_is_believed_and_told_who_asks) {
  elsewhere.fields = "X-Repo-Commit: lie\r\nX-Linked-Etag: \"lie\"\r\nX-Linked-Size: 1\r\n";
  const answering leads(server, [&](const http_asked& a, raw_peer& peer) {
    if (a.target == "/a%20b?c=d")
      peer.say(redirect_to("/inside", "X-Repo-Commit: c0\r\nX-Linked-Size: 18446744073709551616\r\n"));
    else
      peer.say(redirect_to(elsewhere.url("/signed?s=a%2Fb"),
                           "X-Repo-Commit: c1\r\nX-Linked-Etag: \"e\"\r\nX-Linked-Size: 300000\r\n"));
    return true;
  });
  ASSERT_TRUE(get(5));
  EXPECT_EQ(got, file.substr(5));
  EXPECT_EQ(said, (std::vector<std::string>{"leads  18446744073709551615 c0", "leads e 300000 c1"}));
  for (const auto& a : server.asked()) EXPECT_EQ(a.field("authorization"), "Bearer key");
  EXPECT_EQ(server.connections(), 1u) << "the text of a redirect is read to its end";
  const auto asked = elsewhere.asked();
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].field("authorization"), "");
  EXPECT_EQ(asked[0].target, "/signed?s=a%2Fb");
  EXPECT_EQ(asked[0].field("range"), "bytes=5-");
}

TEST_F(HttpFetch, What_the_caller_refuses_is_not_fetched) {
  auto f = fetcher();
  const auto done = f.get(
      "/", 0, file.size(), [](const tp::http_statement&) { return tp::failure(errc::stale_version); }, sink());
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, errc::stale_version);
  EXPECT_EQ(got, "");
  int calls = 0;
  const auto full = f.get("/", 0, file.size(), {}, [&](std::span<const std::byte>) -> tp::result<void> {
    ++calls;
    return tp::failure(errc::disk_full);
  });
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, errc::disk_full);
  EXPECT_EQ(calls, 1);
}

TEST_F(HttpFetch, A_text_is_bounded_whole_and_the_servers_own) {
  options.retry.retries = 1;
  server.close_after = 100'000;
  auto f = fetcher();
  const auto text = f.text("/", file.size(), {});
  ASSERT_TRUE(text);
  EXPECT_EQ(*text, file) << "the first try's part is forgotten";
  const auto longer = f.text("/", file.size() - 1, {});
  ASSERT_FALSE(longer);
  EXPECT_EQ(longer.error().code, errc::too_large);
  server.chunked = true;
  const auto unbounded = f.text("/", file.size() - 1, {});
  ASSERT_FALSE(unbounded);
  EXPECT_EQ(unbounded.error().code, errc::too_large);
  const answering leads(server, [&](const http_asked&, raw_peer& peer) {
    peer.say(redirect_to(elsewhere.url()));
    return true;
  });
  const auto others = f.text("/", file.size(), {});
  ASSERT_FALSE(others);
  EXPECT_EQ(others.error().code, errc::not_permitted);
  ASSERT_TRUE(f.head("/", look()));
  EXPECT_EQ(said, (std::vector<std::string>{"leads  ? "})) << "the length of its own text is none of the file";
  EXPECT_EQ(elsewhere.asked().size(), 0u);
}

TEST_F(HttpFetch, Refusals_and_targets_that_are_none) {
  auto f = fetcher();
  for (const std::string_view target : {"", "x", "@host/", "//", "/a b", "/a\r\nX: y"}) {
    const auto done = f.get(target, 0, file.size(), {}, sink());
    if (target == "//") continue;  // a path
    ASSERT_FALSE(done) << target;
    EXPECT_EQ(done.error().code, errc::bad_address) << target;
  }
  for (const auto& [status, code] : {std::pair{"404 No", errc::unknown_reference},
                                     {"401 No", errc::not_permitted},
                                     {"500 No", errc::connection_failed},
                                     {"416 No", errc::stale_version}}) {
    const answering no(server, [&, text = status](const http_asked&, raw_peer& peer) {
      peer.say("HTTP/1.1 " + std::string(text) + "\r\nContent-Length: 0\r\n\r\n");
      return true;
    });
    const auto done = f.get("/", 1, file.size(), look(), sink());
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, code) << describe(done.error());
  }
  EXPECT_TRUE(said.empty());
  const answering around(server, [&](const http_asked& a, raw_peer& peer) {
    peer.say(redirect_to(a.target));
    return true;
  });
  const auto done = f.get("/", 0, file.size(), {}, sink());
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, errc::not_permitted);
}

TEST_F(HttpFetch, A_busy_server_is_left_alone_as_long_as_it_asks) {
  std::atomic<int> tries = 0;
  const answering busy(server, [&](const http_asked&, raw_peer& peer) {
    if (tries++ > 0) return false;
    peer.say("HTTP/1.1 429 Later\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n");
    return true;
  });
  const auto began = std::chrono::steady_clock::now();
  ASSERT_TRUE(get());
  EXPECT_GE(std::chrono::steady_clock::now() - began, 1s);
  EXPECT_EQ(got, file);
}

TEST_F(HttpFetch, It_ends_when_it_is_told_to) {
  std::stop_source stop;
  options.stop = stop.get_token();
  const answering silent(server, [&](const http_asked&, raw_peer& peer) {
    peer.say("HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n" + file.substr(0, 1000));
    stop.request_stop();
    peer.hear_end();
    return true;
  });
  const auto done = get();
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, errc::cancelled);
}

TEST_F(HttpFetch, A_server_that_sends_too_slowly_is_given_up) {
  options.timeout = 100ms;
  const answering silent(server, [&](const http_asked&, raw_peer& peer) {
    peer.say("HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n" + file.substr(0, 1000));
    peer.hear_end();
    return true;
  });
  const auto done = get();
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, errc::timed_out);
}

}  // namespace http_fetch_test
