// Whose word counts in a pull over HTTP, who is told what, and which oddities of servers are none.
#include "http_server.hpp"

#include <tensorpull/consumers/any_schema/safetensors_file.hpp>
#include <tensorpull/core/describe.hpp>
#include <tensorpull/satellites/http/recipient/http_pull.hpp>

#include <filesystem>
#include <fstream>
#include <initializer_list>

namespace http_trust_test {

using namespace test;
using tp::errc;
using net = tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<64_KiB>, tp::http>;

struct HttpTrust : testing::Test {
  std::unique_ptr<mlp> source = random_model<mlp>(23);
  std::string file = file_of<tp::raw_tensors<mlp>>(*source),
              other = file_of<tp::raw_tensors<mlp>>(*random_model<mlp>(24));
  std::string digest = "xxh3:" + hex(xxh3_of(file));
  own_folder folder;
  std::string path = folder / "model.safetensors";
  http_server server{file};
  tp::pull_options options{.per_request_timeout = 10s, .retry = {.retries = 2, .first_delay = 1ms}};

  tp::result<tp::receipt> pull(tp::http_address to = {}) {
    const std::string url = server.url("/v1/model/latest");
    to.url = url;
    std::filesystem::remove(path);
    auto there = tp::safetensors_file::create(path);
    EXPECT_TRUE(there);
    return net::pull(to, {}, *there, options);
  }
  void expect_arrived(const tp::http_address& to) {
    const auto done = pull(to);
    ASSERT_TRUE(done) << describe(done.error());
    EXPECT_EQ(done->outcome, tp::outcome::completed);
    std::ifstream in(path, std::ios::binary);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), file);
  }
  /// Bytes of `content`, as a request asks for them: behind this line and these fields.
  static bool part(const http_asked& a, raw_peer& peer, const std::string& content, std::string_view line,
                   std::string_view fields, std::uint64_t most = ~std::uint64_t{0}, std::string_view unit = "bytes") {
    std::uint64_t first = 0, last = content.size() - 1;
    (void)a.range(first, last);
    last = std::min<std::uint64_t>(last, content.size() - 1);
    std::string out = std::string(line) + "\r\n" + std::string(fields) + "Content-Range: " + std::string(unit) + " " +
                      std::to_string(first) + "-" + std::to_string(last) + "/" + std::to_string(content.size()) +
                      "\r\nContent-Length: " + std::to_string(last - first + 1) + "\r\n\r\n" +
                      content.substr(first, std::min(last - first + 1, most));
    const bool said = peer.say(out);
    if (most < last - first + 1) close_now(peer);
    return said || true;
  }
  static bool whole(raw_peer& peer, const std::string& content, std::string_view line, std::string_view fields,
                    std::uint64_t most = ~std::uint64_t{0}) {
    peer.say(std::string(line) + "\r\n" + std::string(fields) + "Content-Length: " + std::to_string(content.size()) +
             "\r\n\r\n" + content.substr(0, std::min<std::uint64_t>(content.size(), most)));
    if (most < content.size()) close_now(peer);
    return true;
  }
  static constexpr std::string_view partial = "HTTP/1.1 206 Partial Content", ok = "HTTP/1.1 200 OK";
};

TEST_F(HttpTrust, Where_a_redirect_leads_is_told_nothing_of_the_end) {
  const std::string ours = stated(xxh3_of(file));
  http_server third(file);
  third.fields = ours;
  const std::string away = "HTTP/1.1 307 Over there\r\nLocation: " + third.url("/admin/jobs/7?do=it") +
                           "\r\nContent-Length: 0\r\n\r\n";
  options.retry.retries = 1;
  for (const bool at_once : {true, false})
    for (const bool right : {true, false}) {
      const std::size_t before = server.asked().size();
      const answering while_here(server, [&, before](const http_asked& a, raw_peer& peer) {
        if (at_once || a.number > before) return peer.say(away);
        return part(a, peer, file, partial, "ETag: \"v1\"\r\n" + ours, 200'000);
      });
      const std::string states = "xxh3:" + hex(xxh3_of(right ? file : other));
      const auto done = pull({.digest = states, .bearer = "key"});
      ASSERT_EQ(done.has_value(), right);
      if (done) {
        EXPECT_FALSE(done->confirmed);
      } else {
        EXPECT_EQ(done.error(), errc::digest_mismatch);
      }
      for (const auto& a : third.asked()) {
        EXPECT_EQ(a.method, "GET") << a.target;
        EXPECT_EQ(a.field("authorization"), "");
      }
    }
}

TEST_F(HttpTrust, A_part_is_not_gone_on_with_by_an_answer_that_does_not_say_which_file_it_is_of) {
  const std::string dated = "Date: Sun, 06 Nov 2022 08:49:37 GMT\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
  options.unverified = true;
  for (const bool ranges : {true, false})
    for (const std::string& first : {std::string("ETag: \"a\"\r\n"), dated}) {
      const std::size_t before = server.asked().size();
      const answering while_here(server, [&, before](const http_asked& a, raw_peer& peer) {
        const bool begins = a.number == before;
        const std::string& content = begins ? file : other;
        const std::string fields = begins ? first : "";
        const std::uint64_t most = begins ? 200'000 : ~std::uint64_t{0};
        return ranges ? part(a, peer, content, partial, fields, most) : whole(peer, content, ok, fields, most);
      });
      const auto done = pull();
      ASSERT_FALSE(done) << ranges << first;
      EXPECT_EQ(done.error(), errc::stale_version);
      EXPECT_FALSE(std::filesystem::exists(path));
    }
}

TEST_F(HttpTrust, Only_what_proves_equal_bytes_is_a_validator) {
  const std::string dated = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n", tag = "ETag: \"a\"\r\n";
  const std::pair<std::string, std::string> cases[]{
      {tag, "\"a\""},
      {"ETag: W/\"a\"\r\n", ""},
      {"ETag: a\r\n", ""},
      {tag + "ETag: \"b\"\r\n", ""},
      {"ETag: \"" + std::string(300, 'x') + "\"\r\n", ""},
      {dated + "Date: Sun, 06 Nov 1994 08:50:37 GMT\r\n", "Sun, 06 Nov 1994 08:49:37 GMT"},
      {dated + "Date: Sun, 06 Nov 1994 08:50:36 GMT\r\n", ""},
      {dated, ""},
  };
  options.unverified = true;
  for (const auto& [fields, validator] : cases) {
    SCOPED_TRACE(fields.substr(0, 100));
    const std::size_t before = server.asked().size();
    const answering while_here(server, [&, before, fields = fields](const http_asked& a, raw_peer& peer) {
      if (a.field("range").empty()) return whole(peer, file, ok, fields, 200'000);
      return part(a, peer, file, partial, fields, a.number == before ? 200'000 : ~std::uint64_t{0});
    });
    const auto done = pull();
    EXPECT_EQ(done.has_value(), !validator.empty());
    if (!done) {
      EXPECT_EQ(done.error(), errc::connection_lost) << describe(done.error());
    }
    const auto asked = server.asked();
    ASSERT_GT(asked.size(), before + 1);
    EXPECT_EQ(asked.back().field("if-range"), validator);
  }
}

TEST_F(HttpTrust, The_digest_that_the_caller_states_counts_more_than_what_servers_say_of_themselves) {
  const std::string sha = [&] {
    tp::sha256_hash h;
    h.update(std::as_bytes(std::span(file)));
    std::string out = "sha256:";
    for (const std::byte b : h.value()) out += hex(std::to_integer<std::uint64_t>(b)).substr(14);
    return out;
  }();
  const auto first = [](const http_asked& a, std::size_t before) {
    return a.number == before ? std::uint64_t{150'000} : ~std::uint64_t{0};
  };
  using answer = std::function<bool(const http_asked&, raw_peer&, std::size_t)>;
  const std::pair<const char*, answer> servers[]{
      {"each node of a network has a tag of its own",
       [&](const http_asked& a, raw_peer& peer, std::size_t before) {
         return part(a, peer, file, partial, "ETag: \"node" + std::to_string(a.number) + "\"\r\n", first(a, before));
       }},
      {"and heeds If-Range",
       [&](const http_asked& a, raw_peer& peer, std::size_t before) {
         const std::string tag = "ETag: \"node" + std::to_string(a.number) + "\"\r\n";
         if (a.field("if-range").empty()) return part(a, peer, file, partial, tag, first(a, before));
         return whole(peer, file, ok, tag, first(a, before));
       }},
      {"200 with a Content-Range",
       [&](const http_asked& a, raw_peer& peer, std::size_t before) {
         return part(a, peer, file, ok, "Accept-Ranges: bytes\r\nETag: \"abc\"\r\n", first(a, before));
       }},
      {"If-Range with a tag makes it forget the range",
       [&](const http_asked& a, raw_peer& peer, std::size_t before) {
         const std::string_view fields = "Accept-Ranges: bytes\r\nETag: \"abc\"\r\n";
         if (a.field("if-range").empty()) return part(a, peer, file, partial, fields, first(a, before));
         return whole(peer, file, ok, fields, first(a, before));
       }},
      {"ranges are forgotten in the middle",
       [&](const http_asked& a, raw_peer& peer, std::size_t before) {
         if (a.number == before) return part(a, peer, file, partial, "ETag: \"abc\"\r\n", 150'000);
         return whole(peer, file, ok, "ETag: \"abc\"\r\n");
       }},
      {"a proxy on the way drops the tag",
       [&](const http_asked& a, raw_peer& peer, std::size_t before) {
         return part(a, peer, file, partial, a.number == before ? "ETag: \"abc\"\r\n" : "", first(a, before));
       }},
  };
  for (const auto& [what, serves] : servers)
    for (const std::string& states : {sha, digest})
      for (const std::uint32_t connections : {0u, 4u}) {
        SCOPED_TRACE(std::string(what) + " " + states.substr(0, 4) + " " + std::to_string(connections));
        const std::size_t before = server.asked().size();
        const answering while_here(server, [&, before, serves = serves](const http_asked& a, raw_peer& peer) {
          return serves(a, peer, before);
        });
        expect_arrived({.digest = states, .connections = connections});
        for (const auto& a : server.asked()) EXPECT_EQ(a.field("if-range"), "");
      }
}

TEST_F(HttpTrust, A_server_that_is_busy_and_does_not_say_for_how_long_is_asked_ever_more_seldom) {
  options.per_request_timeout = 2s;
  options.retry.first_delay = 10ms;
  for (const std::string status : {"429 Too Many Requests", "503 Service Unavailable"})
    for (const std::uint32_t connections : {0u, 4u}) {
      const std::size_t before = server.asked().size();
      const answering while_here(server, [&](const http_asked&, raw_peer& peer) {
        return peer.say("HTTP/1.1 " + status + "\r\nContent-Length: 0\r\n\r\n");
      });
      EXPECT_EQ(pull({.digest = digest, .connections = connections}).error(), errc::busy);
      EXPECT_LT(server.asked().size() - before, 12u);
    }
}

TEST_F(HttpTrust, A_server_says_when_there_are_requests_left_again) {
  const answering while_here(server, [](const http_asked& a, raw_peer& peer) {
    return a.number == 0 &&
           peer.say("HTTP/1.1 429 Too Many Requests\r\nRateLimit: \"resolvers\";r=0;t=1\r\nContent-Length: 0\r\n\r\n");
  });
  const auto began = std::chrono::steady_clock::now();
  expect_arrived({.digest = digest});
  EXPECT_GE(std::chrono::steady_clock::now() - began, 1s);
  // one that wants more time than there is
  options.per_request_timeout = 5s;
  const answering for_long(server, [](const http_asked&, raw_peer& peer) {
    return peer.say("HTTP/1.1 429 Too Many Requests\r\nRateLimit: \"resolvers\";r=0;t=87\r\nContent-Length: 0\r\n\r\n");
  });
  EXPECT_EQ(pull({.digest = digest}).error(), errc::busy);
}

TEST_F(HttpTrust, Oddities_of_heads_that_say_nothing_about_bytes_are_none) {
  for (const std::string& fields : std::initializer_list<std::string>{
           "Content-Encoding: \r\n", "Content-Encoding: aws-chunked\r\n", "Content-Encoding: identity\r\n",
           "Content-Encoding: aws-chunked, identity\r\n", "X-Long: " + std::string(30'000, 'x') + "\r\n",
           "X-Bytes: \xc3\xa4\xff\r\n", "Transfer-Encoding: identity\r\n"}) {
    SCOPED_TRACE(fields.substr(0, 60));
    const answering while_here(
        server, [&](const http_asked& a, raw_peer& peer) { return part(a, peer, file, partial, fields); });
    expect_arrived({.digest = digest});
    expect_arrived({.digest = digest, .connections = 4});
  }
  {
    const answering while_here(server, [&](const http_asked& a, raw_peer& peer) {
      return part(a, peer, file, partial, "", ~std::uint64_t{0}, "Bytes");
    });
    expect_arrived({.digest = digest});
  }
  for (const std::string_view line : {"HTTP/1.1 206", "HTTP/1.1 206 ", "HTTP/1.0 206 P"}) {
    SCOPED_TRACE(line);
    const answering while_here(server,
                               [&](const http_asked& a, raw_peer& peer) { return part(a, peer, file, line, ""); });
    expect_arrived({.digest = digest});
  }
  // pieces, from a server that says 1.0
  const answering while_here(server, [&](const http_asked&, raw_peer& peer) {
    char length[32];
    std::snprintf(length, sizeof length, "%zx", file.size());
    peer.say("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + std::string(length) + "\r\n" + file +
             "\r\n0\r\n\r\n");
    close_now(peer);
    return true;
  });
  expect_arrived({.digest = digest});
}

}  // namespace http_trust_test
