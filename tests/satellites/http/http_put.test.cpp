// Uploads of images with PUT: consent and its lack, redirects, refusals in the middle, servers that are busy or fail
// once.
#include "http_server.hpp"

#include <tensorpull/core/describe.hpp>
#include <tensorpull/integrity/range_digest.hpp>
#include <tensorpull/satellites/http/recipient/http_put.hpp>

namespace http_put_test {

using namespace test;
using tp::errc;

struct HttpPut : testing::Test {
  std::unique_ptr<mlp> model = random_model<mlp>(21);
  std::string file = file_of<tp::raw_tensors<mlp>>(*model);
  tp::http_put_options options{.timeout = 30s, .consent = 30s, .retry = {.retries = 0, .first_delay = 1ms}};
  std::mutex mutex;
  std::string kept;
  http_server server{"x"};  // the last: its threads use what is above

  HttpPut() {
    server.instead = [this](const http_asked& a, raw_peer& peer) { return keep(a, peer); };
  }
  /// What a good server does.
  bool keep(const http_asked& a, raw_peer& peer) {
    if (!a.field("expect").empty()) peer.say("HTTP/1.1 100 Continue\r\n\r\n");
    const std::string body = body_of(a, peer);
    const std::lock_guard lock(mutex);
    kept = body;
    return answer(peer, "201 Created");
  }
  static std::string body_of(const http_asked& a, raw_peer& peer) {
    std::string body = a.body;
    for (const std::byte b : peer.hear(std::stoul(a.field("content-length")) - body.size()))
      body += static_cast<char>(b);
    return body;
  }
  static bool answer(raw_peer& peer, std::string_view status, std::string_view fields = {}) {
    peer.say("HTTP/1.1 " + std::string(status) + "\r\nContent-Length: 0\r\n" + std::string(fields) + "\r\n");
    return true;
  }
  tp::result<tp::http_put_receipt> put(tp::http_address to = {}) {
    const std::string url = server.url("/bucket/m?X-Amz-Signature=a%2Fb");
    to.url = url;
    return tp::http_put(to, tp::raw_tensors<mlp>::source(*model), options);
  }
  bool was_kept() {
    const std::lock_guard lock(mutex);
    return kept == file;
  }
};

TEST_F(HttpPut, The_body_follows_the_consent) {
  const auto done = put({.bearer = "key"});
  ASSERT_TRUE(done) << describe(done.error());
  EXPECT_EQ(done->status, 201u);
  EXPECT_EQ(done->bytes, file.size());
  EXPECT_TRUE(was_kept());
  const auto a = server.asked().front();
  EXPECT_EQ(a.method, "PUT");
  EXPECT_EQ(a.target, "/bucket/m?X-Amz-Signature=a%2Fb");
  EXPECT_EQ(a.field("authorization"), "Bearer key");
  EXPECT_EQ(a.field("content-length"), std::to_string(file.size()));
}

TEST_F(HttpPut, A_server_that_knows_no_consent_is_sent_the_body_all_the_same) {
  options.consent = 1ms;  // it says nothing before the body has come
  server.instead = [this](const http_asked& a, raw_peer& peer) {
    const std::string body = body_of(a, peer);
    const std::lock_guard lock(mutex);
    kept = body;
    return answer(peer, "200 OK");
  };
  auto done = put();
  ASSERT_TRUE(done) << describe(done.error());
  EXPECT_TRUE(was_kept());
  // one that refuses the expectation is asked without it, once
  kept.clear();
  options.consent = 30s;
  server.instead = [this](const http_asked& a, raw_peer& peer) {
    return a.field("expect").empty() ? keep(a, peer) : answer(peer, "417 Expectation Failed");
  };
  const std::size_t before = server.asked().size();
  done = put();
  ASSERT_TRUE(done) << describe(done.error());
  EXPECT_TRUE(was_kept());
  EXPECT_EQ(server.asked().size(), before + 2);
  server.instead = [](const http_asked&, raw_peer& peer) {
    return answer(peer, "417 Expectation Failed", "Connection: close\r\n");
  };
  done = put();
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error(), errc::bad_request) << describe(done.error());
  EXPECT_EQ(server.asked().size(), before + 4);
}

TEST_F(HttpPut, A_consent_that_comes_late_is_passed_over) {
  options.consent = 1ms;
  server.instead = [this](const http_asked& a, raw_peer& peer) {
    const std::string half = file.substr(0, file.size() / 2);
    std::string body;
    for (const std::byte b : peer.hear(half.size())) body += static_cast<char>(b);
    peer.say("HTTP/1.1 100 Continue\r\n\r\n");
    for (const std::byte b : peer.hear(std::stoul(a.field("content-length")) - half.size()))
      body += static_cast<char>(b);
    const std::lock_guard lock(mutex);
    kept = body;
    return answer(peer, "204 No Content");
  };
  const auto done = put();
  ASSERT_TRUE(done) << describe(done.error());
  EXPECT_EQ(done->status, 204u);
  EXPECT_TRUE(was_kept());
}

TEST_F(HttpPut, A_consent_may_be_waited_for_without_end) {
  options.consent = std::chrono::milliseconds::max();
  std::size_t early = 1;
  const answering while_here(server, [&](const http_asked& a, raw_peer& peer) {
    early = peer.hear(1, 1s).size();
    return keep(a, peer);
  });
  const auto done = put();
  ASSERT_TRUE(done) << describe(done.error());
  EXPECT_EQ(early, 0u);
  EXPECT_TRUE(was_kept());
}

TEST_F(HttpPut, A_refusal_is_the_answer_whenever_it_comes) {
  for (const bool in_the_middle : {false, true}) {
    server.instead = [in_the_middle](const http_asked&, raw_peer& peer) {
      if (in_the_middle) {
        peer.say("HTTP/1.1 100 Continue\r\n\r\n");
        (void)peer.hear(100'000);
      }
      peer.say("HTTP/1.1 403 Forbidden\r\nContent-Length: 6\r\nConnection: close\r\n\r\n<Xml/>");
      if (in_the_middle) (void)peer.hear(~std::size_t{0});
      close_now(peer);
      return true;
    };
    const auto done = put();
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error(), errc::not_permitted) << describe(done.error());
    EXPECT_EQ(done.error().name.view().substr(0, 3), "403");
  }
  // a server that answers well before the end has not kept the bytes
  server.instead = [](const http_asked&, raw_peer& peer) { return answer(peer, "200 OK"); };
  const auto done = put();
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error(), errc::unexpected_frame);
}

TEST_F(HttpPut, Redirects_that_keep_the_method_are_followed_and_others_are_not) {
  http_server far("y");
  std::string got;
  const answering there(far, [&](const http_asked& a, raw_peer& peer) {
    peer.say("HTTP/1.1 100 Continue\r\n\r\n");
    const std::string body = body_of(a, peer);
    const std::lock_guard lock(mutex);
    got = body;
    return answer(peer, "200 OK");
  });
  for (const std::string status : {"307 Temporary Redirect", "308 Permanent Redirect"}) {
    for (const bool behind_the_body : {false, true}) {
      got.clear();
      const answering while_here(server, [&](const http_asked& a, raw_peer& peer) {
        if (behind_the_body) {
          peer.say("HTTP/1.1 100 Continue\r\n\r\n");
          (void)body_of(a, peer);
        }
        return answer(peer, status, "Location: " + far.url("/there?q=%2F") + "\r\n");
      });
      const auto done = put({.bearer = "key"});
      ASSERT_TRUE(done) << status << " " << describe(done.error());
      EXPECT_EQ(got, file);
      EXPECT_EQ(far.asked().back().target, "/there?q=%2F");
      EXPECT_EQ(far.asked().back().field("authorization"), "");  // it is another origin
    }
  }
  server.instead = [](const http_asked&, raw_peer& peer) {
    return answer(peer, "307 Temporary Redirect", "Location: /round\r\n");
  };
  EXPECT_EQ(put().error(), errc::not_permitted);
  for (const std::string status : {"301 Moved Permanently", "302 Found", "303 See Other"}) {
    const std::size_t before = far.asked().size();
    const answering while_here(server, [&](const http_asked&, raw_peer& peer) {
      return answer(peer, status, "Location: " + far.url() + "\r\n");
    });
    EXPECT_EQ(put().error(), errc::unexpected_frame);
    EXPECT_EQ(far.asked().size(), before);
  }
}

TEST_F(HttpPut, A_server_that_fails_or_is_busy_is_sent_the_image_again) {
  options.retry.retries = 2;
  for (const std::string bad :
       {"500 Internal Server Error", "503 Service Unavailable", "429 Too Many Requests", "lost"}) {
    kept.clear();
    std::atomic<int> calls{0};
    const answering while_here(server, [&](const http_asked& a, raw_peer& peer) {
      if (calls++ > 0) return keep(a, peer);
      peer.say("HTTP/1.1 100 Continue\r\n\r\n");
      if (bad != "lost") {
        (void)body_of(a, peer);
        return answer(peer, bad, "Retry-After: 1\r\n");
      }
      (void)peer.hear(100'000);
      peer.reset();
      return true;
    });
    const auto began = std::chrono::steady_clock::now();
    const auto done = put();
    ASSERT_TRUE(done) << bad << " " << describe(done.error());
    EXPECT_TRUE(was_kept());
    EXPECT_EQ(calls, 2);
    if (bad != "lost") {
      EXPECT_GE(std::chrono::steady_clock::now() - began, 1s) << bad;
    }
  }
  // one that wants more time than there is
  options.timeout = 5s;
  server.instead = [](const http_asked&, raw_peer& peer) {
    return answer(peer, "503 Service Unavailable", "Retry-After: 3600\r\n");
  };
  EXPECT_EQ(put().error(), errc::busy);
}

TEST_F(HttpPut, The_receipt_has_the_digest_of_what_was_sent) {
  const auto image = tp::raw_tensors<mlp>::source(*model);
  const auto version = tp::image_version<tp::xxhash_digest>(image);
  auto done = put();
  ASSERT_TRUE(done) << describe(done.error());
  EXPECT_EQ(done->digest, *version);
  options.digest = *version;
  done = put();
  ASSERT_TRUE(done) << describe(done.error());
  EXPECT_EQ(done->digest, *version);
  EXPECT_TRUE(was_kept());
  // each try has a digest of its own
  options.retry.retries = 1;
  std::atomic<int> calls{0};
  const answering while_here(server, [&](const http_asked& a, raw_peer& peer) {
    if (calls++ > 0) return keep(a, peer);
    peer.say("HTTP/1.1 100 Continue\r\n\r\n");
    (void)peer.hear(100'000);
    peer.reset();
    return true;
  });
  done = put();
  ASSERT_TRUE(done) << describe(done.error());
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(done->digest, *version);
}

TEST_F(HttpPut, An_image_that_changes_meanwhile_is_not_stored) {
  options.digest = *tp::image_version<tp::xxhash_digest>(tp::raw_tensors<mlp>::source(*model));
  for (const bool at_the_end : {false, true}) {
    std::uint8_t& value = model->mask[at_the_end ? 999 : 0];  // these are the last bytes of the file
    std::atomic<std::size_t> heard{0};
    const answering while_here(server, [&](const http_asked& a, raw_peer& peer) {
      value += 1;  // the sender waits for the consent
      peer.say("HTTP/1.1 100 Continue\r\n\r\n");
      heard = body_of(a, peer).size();
      return answer(peer, "201 Created");
    });
    const auto done = put();
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error(), errc::digest_mismatch) << describe(done.error());
    eventually("the server has heard a body", [&] { return heard > 0; });
    EXPECT_EQ(heard, file.size() - 1);
    value -= 1;
  }
}

TEST_F(HttpPut, A_stop_and_a_silent_server_end_it) {
  options.consent = 1ms;
  server.instead = [](const http_asked&, raw_peer&) { return true; };
  std::stop_source stop;
  options.stop = stop.get_token();
  joined_thread later([&] {
    eventually("something is asked for", [&] { return !server.asked().empty(); });
    stop.request_stop();
  });
  EXPECT_EQ(put().error(), errc::cancelled);
  options.stop = {};
  options.timeout = 200ms;
  EXPECT_EQ(put().error(), errc::timed_out);
}

}  // namespace http_put_test
