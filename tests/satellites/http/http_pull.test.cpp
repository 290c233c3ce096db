// Pulls from HTTP servers that do what they should, and from some that do less.
#include "http_server.hpp"
#include "proxies.hpp"

#include <tensorpull/consumers/any_schema/safetensors_file.hpp>
#include <tensorpull/core/describe.hpp>
#include <tensorpull/satellites/http/recipient/http_pull.hpp>

#include <dlfcn.h>
#include <netdb.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <set>

namespace http_pull_test {

using namespace test;
using tp::errc;
template <class Model, class Chunks = tp::fixed_bytes<64_KiB>>
using over = tp::pipeline<tp::raw_tensors<Model>, Chunks, tp::http>;
using net = over<mlp>;

std::string sha256_of(std::string_view bytes) {
  tp::sha256_hash h;
  h.update(std::as_bytes(std::span(bytes)));
  std::string out = "sha256:";
  for (const std::byte b : h.value())
    (out += "0123456789abcdef"[static_cast<unsigned>(b) >> 4]) += "0123456789abcdef"[static_cast<unsigned>(b) & 15];
  return out;
}
std::string repr_digest_of(std::string_view bytes) {
  tp::sha256_hash h;
  h.update(std::as_bytes(std::span(bytes)));
  const auto v = h.value();
  return "Repr-Digest: sha-256=:" + tp::detail::to_base64({reinterpret_cast<const char*>(v.data()), v.size()}) +
         ":\r\n";
}
std::string hex_of(std::uint64_t value) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(value));
  return text.data();
}
std::atomic<int> names_asked{0};
/// A name that is known when it has been asked for twice.
extern "C" int getaddrinfo(const char* host, const char* port, const addrinfo* hints, addrinfo** found) {
  static const auto real = reinterpret_cast<decltype(&::getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  if (host != nullptr && std::string_view(host) == "store.later") {
    if (names_asked++ < 2) return EAI_NONAME;
    host = "127.0.0.1";
  }
  return real(host, port, hints, found);
}

struct HttpPull : testing::Test {
  std::unique_ptr<mlp> source = random_model<mlp>(7);
  std::string file = file_of<tp::raw_tensors<mlp>>(*source);
  std::string digest = sha256_of(file);
  std::unique_ptr<mlp> mine = blank<mlp>();
  tp::pull_options options{.per_request_timeout = 10s, .retry = {.retries = 3, .first_delay = 1ms}};
  http_server server{file};  // the last: its threads use what is above

  tp::result<tp::receipt> pull(tp::http_address to, const tp::reference& ref = {}) {
    const std::string url = to.url.empty() ? server.url() : std::string(to.url);
    to.url = url;
    mine = blank<mlp>();
    const auto done = net::download_tensors(to, ref, *mine, options);
    if (done) {
      EXPECT_TRUE(same(*mine, *source));
    }
    return done;
  }
  tp::result<tp::receipt> pull() { return pull({.digest = digest}); }
};

TEST_F(HttpPull, Several_ranges_are_in_flight_on_several_connections_and_the_digest_is_that_of_the_caller) {
  const auto done = pull({.digest = digest, .connections = 4});
  ASSERT_TRUE(done) << describe(done.error());
  EXPECT_EQ(done->outcome, tp::outcome::completed);
  EXPECT_EQ(done->bytes, file.size());
  EXPECT_EQ(done->digest, xxh3_of(file));
  EXPECT_FALSE(done->believed);
  EXPECT_FALSE(done->confirmed);
  EXPECT_EQ(done->unconfirmed_because, errc::unsupported_request);
  EXPECT_GT(server.connections(), 1u);
  EXPECT_LE(server.connections(), 4u);
  const auto asked = server.asked();
  EXPECT_EQ(asked.size(), 1 + (file.size() + 65535) / 65536 - 1);  // the first answer has the first chunk
  for (const auto& a : asked) {
    EXPECT_EQ(a.method, "GET");
    EXPECT_EQ(a.field("accept-encoding"), "identity");
    EXPECT_EQ(a.field("if-range"), "") << "the digest counts more than a tag";
    EXPECT_EQ(a.field("authorization"), "");
  }
}

TEST_F(HttpPull, A_digest_that_the_server_states_makes_it_complete_and_none_at_all_is_not_verifiable) {
  auto done = pull({});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error(), errc::not_verifiable);
  EXPECT_EQ(done.error().at, 0u);
  EXPECT_TRUE(same(*mine, *blank<mlp>()));
  options.unverified = true;
  done = pull({});
  ASSERT_TRUE(done);
  EXPECT_EQ(done->outcome, tp::outcome::completed_unverified);
  EXPECT_TRUE(done->believed);
  options.unverified = false;
  server.fields = repr_digest_of(file);
  done = pull({});
  ASSERT_TRUE(done) << describe(done.error());
  EXPECT_EQ(done->outcome, tp::outcome::completed);
  EXPECT_TRUE(done->believed) << "the server says what it has, and which digest that has";
  server.fields = repr_digest_of("something else");
  done = pull({});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error(), errc::digest_mismatch);
  EXPECT_TRUE(pull());  // the caller's rules
  server.fields.clear();
  const auto known = pull({}, tp::reference{{}, xxh3_of(file), 0});
  EXPECT_EQ(known->outcome, tp::outcome::completed);
  EXPECT_FALSE(known->believed);
  EXPECT_EQ(pull({}, tp::reference{{}, xxh3_of(file) + 1, 0}).error(), errc::digest_mismatch);
  char text[32];
  std::snprintf(text, sizeof text, "xxh3:%016lx", xxh3_of(file));
  const auto stated = pull({.digest = text});
  EXPECT_EQ(stated->outcome, tp::outcome::completed);
  EXPECT_FALSE(stated->believed);
  EXPECT_EQ(pull({.digest = "sha256:12"}).error(), errc::invalid_argument);
  EXPECT_EQ(pull({.digest = sha256_of("x")}).error(), errc::digest_mismatch);
}

TEST_F(HttpPull, A_policy_that_checks_nothing_needs_no_digest) {
  using unchecked = tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<64_KiB>, tp::http, tp::unverified>;
  const auto done = unchecked::download_tensors(server.url(), tp::ref_id{}, *mine, options);
  ASSERT_TRUE(done);
  EXPECT_EQ(done->outcome, tp::outcome::completed_unverified);
  EXPECT_TRUE(same(*mine, *source));
}

TEST_F(HttpPull, A_policy_that_checks_nothing_takes_no_other_version_from_an_owner_of_this_library) {
  using unchecked = tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<64_KiB>, tp::http, tp::unverified>;
  const std::string url = server.url();
  const auto pulls = [&](const tp::reference& ref, std::uint64_t version, std::string_view stated) {
    options.version = version;
    mine = blank<mlp>();
    const auto done = unchecked::download_tensors(tp::http_address{.url = url, .digest = stated}, ref, *mine, options);
    options.version = 0;
    EXPECT_EQ(same(*mine, *source), done.has_value());
    if (done) {
      EXPECT_EQ(done->outcome == tp::outcome::completed, stated.starts_with("sha256"));  // which is always computed
    }
    return done ? errc{} : done.error().code;
  };
  const std::uint64_t has = xxh3_of(file);
  const std::string right = "xxh3:" + hex_of(has), wrong = "xxh3:" + hex_of(has + 1);
  for (const bool states : {true, false}) {  // another server's file is known by nothing that could be compared
    server.fields = states ? "Repr-Digest: " + xxh3_value(has) + "\r\n" : "";
    const errc other = states ? errc::stale_version : errc{};
    EXPECT_EQ(pulls({}, 0, ""), errc{});
    EXPECT_EQ(pulls({{}, has, 0}, 0, ""), errc{});
    EXPECT_EQ(pulls({{}, has + 1, 0}, 0, ""), other);
    EXPECT_EQ(pulls({{}, has + 1, 0}, has, ""), errc{});
    EXPECT_EQ(pulls({{}, has, 0}, has + 1, ""), other);
    EXPECT_EQ(pulls({{}, has + 1, 0}, 0, right), errc{}) << "the address counts more";
    EXPECT_EQ(pulls({{}, has, 0}, 0, wrong), other);
  }
  EXPECT_EQ(pulls({{}, has + 1, 0}, 0, digest), errc{}) << "and so it does with another digest";
}

TEST_F(HttpPull, A_server_that_sends_no_ranges_sends_the_whole_or_is_refused_above_a_limit) {
  server.ranges = false;
  auto done = pull();
  ASSERT_TRUE(done) << describe(done.error());
  EXPECT_EQ(server.asked().size(), 1u);
  done = pull({.digest = digest, .most_whole_bytes = file.size() - 1});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error(), errc::unsupported_request);
  server.chunked = true;
  EXPECT_TRUE(pull());
  server.chunked = false;
  server.persists = false;
  EXPECT_TRUE(pull());
  server.instead = [this](const http_asked&, raw_peer& peer) {  // an answer that ends where the connection does
    peer.say("HTTP/1.0 200 OK\r\nETag: \"v1\"\r\n\r\n" + file);
    close_now(peer);
    return true;
  };
  done = pull();
  ASSERT_TRUE(done) << describe(done.error());
}

TEST_F(HttpPull, Pieces_and_closed_connections_are_understood_with_ranges_too) {
  server.chunked = true;
  auto done = pull();
  ASSERT_TRUE(done) << describe(done.error());
  server.chunked = false;
  server.persists = false;
  done = pull();
  ASSERT_TRUE(done) << describe(done.error());
}

TEST_F(HttpPull, Without_a_validator_and_a_digest_one_request_takes_the_whole_and_nothing_is_gone_on_with) {
  server.etag.clear();
  options.unverified = true;
  for (const std::uint32_t connections : {0u, 4u}) {
    const auto whole = pull({.connections = connections});
    ASSERT_TRUE(whole) << describe(whole.error());
    EXPECT_EQ(whole->outcome, tp::outcome::completed_unverified);
    EXPECT_EQ(server.asked().size(), connections == 0 ? 2u : 4u);
    EXPECT_EQ(server.asked().back().field("range"), "");
  }
  server.etag = "W/\"weak\"";
  http_server other(file);
  other.etag = "W/\"weak\"";
  other.close_after = 200'000;
  const std::string url = other.url();
  const auto done = pull({.url = url, .connections = 4});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error(), errc::connection_lost);
  EXPECT_GT(done.error().at, 0u);
  EXPECT_TRUE(pull());  // a digest finds a mixture: ranges may be asked for
}

TEST_F(HttpPull, What_is_lost_in_between_is_gone_on_with_under_if_range) {
  server.close_after = 250'000;
  server.fields = repr_digest_of(file);
  const auto done = pull({});
  ASSERT_TRUE(done) << describe(done.error());
  std::uint64_t bytes = 0;
  for (const auto& a : server.asked()) {
    std::uint64_t first = 0, last = 0;
    ASSERT_TRUE(a.range(first, last));
    bytes += last - first + 1;
    EXPECT_EQ(a.field("if-range"), a.number > 0 ? "\"v1\"" : "");
  }
  EXPECT_LT(bytes, file.size() + 6 * 65536);

  http_server whole(file);
  whole.ranges = false;
  whole.close_after = 250'000;
  const std::string url = whole.url();
  const auto again = pull({.url = url, .digest = digest});
  ASSERT_TRUE(again) << describe(again.error());
  EXPECT_EQ(whole.asked().size(), 2u);
}

TEST_F(HttpPull, A_server_that_is_not_there_is_tried_again_and_one_that_dies_is_an_error) {
  const own_port nobody;
  const std::string url = "http://" + local(nobody) + "/x";
  auto done = pull({.url = url, .digest = digest});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error(), errc::connection_failed);
  server.instead = [calls = 0](const http_asked&, raw_peer& peer) mutable {
    if (++calls > 2) return false;
    close_now(peer);
    return true;
  };
  done = pull();
  EXPECT_TRUE(done);
}

TEST_F(HttpPull, A_file_that_is_replaced_in_between_is_stale_and_found_by_the_digest_that_the_caller_states) {
  const auto other = random_model<mlp>(8);
  const std::string replaced = file_of<tp::raw_tensors<mlp>>(*other);
  options.unverified = true;
  for (const bool states : {false, true})
    for (const std::string tag : {"\"v2\"", "\"v1\""}) {
      if (!states && tag == server.etag) continue;  // nothing shows it, and nobody has said that anything should
      http_server cache(file);
      const answering of_cache(cache, [&](const http_asked& a, raw_peer&) {
        if (a.number == 1) {
          const std::lock_guard lock(cache.changing);
          cache.content = replaced, cache.etag = tag;
        }
        return false;
      });
      const std::string url = cache.url();
      const auto done = pull({.url = url, .digest = states ? digest : "", .connections = 4});
      ASSERT_FALSE(done);
      EXPECT_EQ(done.error(), states ? errc::digest_mismatch : errc::stale_version) << tag;
    }
}

TEST_F(HttpPull, A_cursor_goes_on_where_an_earlier_pull_stopped) {
  tp::resume_cursor cursor;
  options.cursor = &cursor;
  options.retry.retries = 0;
  server.close_after = 250'000;
  const auto first = net::download_tensors(tp::http_address{.url = server.url(), .digest = digest}, tp::ref_id{}, *mine,
                                           options);
  ASSERT_FALSE(first);
  ASSERT_TRUE(cursor);
  EXPECT_GT(cursor.offset, 0u);
  const std::uint64_t at = cursor.offset;
  const auto done = net::download_tensors(
      tp::http_address{.url = server.url(), .digest = digest, .recipient = "second"}, tp::ref_id{}, *mine, options);
  ASSERT_TRUE(done) << describe(done.error());
  EXPECT_EQ(done->outcome, tp::outcome::completed);
  EXPECT_TRUE(same(*mine, *source));
  // the server may read what the first pull asked for after that pull has ended, so the requests say whose they are
  std::size_t later = 0;
  for (const auto& asked : server.asked()) {
    if (asked.field("tensorpull-recipient") != "second" || later++ == 0) continue;  // the first one asks for the header
    std::uint64_t from = 0, last = 0;
    ASSERT_TRUE(asked.range(from, last));
    EXPECT_GE(from, at);
  }
  EXPECT_GT(later, 1u);
  // the cursor of another URL, be it only another query, is another one
  EXPECT_NE(tp::http_reference(*tp::parse_http_url(server.url("/m?a=1"))),
            tp::http_reference(*tp::parse_http_url(server.url("/m?a=2"))));
  EXPECT_EQ(tp::http_reference(*tp::parse_http_url("http://h/m")),
            tp::http_reference(*tp::parse_http_url("HTTP://H:80/m")));
}

TEST_F(HttpPull, Redirects_are_followed_and_what_proves_who_we_are_stays_with_the_origin) {
  http_server far(file);
  const answering while_here(server, [&](const http_asked& a, raw_peer& peer) {
    if (a.target == "/here")
      return peer.say("HTTP/1.1 302 Found\r\nLocation: /next?x=%2F\r\nContent-Length: 0\r\n\r\n");
    return peer.say("HTTP/1.1 307 Temporary Redirect\r\nLocation: " + far.url("/signed?X-Amz-Signature=a%2Fb+c") +
                    "\r\nContent-Length: 0\r\n\r\n");
  });
  const std::string url = server.url("/here");
  auto done = pull({.url = url, .digest = digest, .bearer = "secret", .recipient = "site-3"});
  ASSERT_TRUE(done) << describe(done.error());
  ASSERT_EQ(server.asked().size(), 2u);
  EXPECT_EQ(server.asked()[0].field("authorization"), "Bearer secret");
  EXPECT_EQ(server.asked()[0].field("tensorpull-recipient"), "site-3");
  EXPECT_EQ(server.asked()[1].target, "/next?x=%2F");
  EXPECT_EQ(server.asked()[1].field("authorization"), "Bearer secret");
  for (const auto& a : far.asked()) {
    EXPECT_EQ(a.target, "/signed?X-Amz-Signature=a%2Fb+c");
    EXPECT_EQ(a.field("authorization"), "");
    EXPECT_EQ(a.field("tensorpull-recipient"), "");
  }
  done = pull({.url = url, .digest = digest, .redirects = 1});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error(), errc::not_permitted);
  server.instead = [](const http_asked&, raw_peer& peer) {
    return peer.say("HTTP/1.1 301 Moved\r\nLocation: https://127.0.0.1/x\r\nContent-Length: 0\r\n\r\n");
  };
  EXPECT_EQ(pull().error(), errc::connection_failed);  // there is nobody
}

TEST_F(HttpPull, A_host_whose_name_is_known_later_is_waited_for_and_TLS_that_it_does_not_speak_is_final) {
  const std::string there = server.url(), later = "http://store.later" + there.substr(there.rfind(':'));
  const auto done = pull({.url = later, .digest = digest});
  EXPECT_TRUE(done) << describe(done.error());
  EXPECT_EQ(names_asked, 3);
  names_asked = -100;
  const auto never = pull({.url = later, .digest = digest});
  ASSERT_EQ(code_of(never), errc::unknown_host);
  EXPECT_EQ(names_asked, -96);
  std::atomic<int> came{0};
  each_connection web([&](raw_peer& peer, std::size_t, const std::stop_token&) {
    ++came;
    if (peer.stream().wait(true, false, ample_time).read)
      (void)peer.say("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
  });
  const std::string secure = "https://" + local(web.port()) + "/m";
  const auto plain = pull({.url = secure, .digest = digest});
  ASSERT_EQ(code_of(plain), errc::handshake_failed);
  EXPECT_EQ(plain.error().name.view(), "wrong version number");
  EXPECT_EQ(came, 1);
}

/// Leads from every path but "/signed" to a signed URL there, which is good for some answers with bytes. After those
/// the store says `refusal`.
struct signing_store {
  http_server& server;
  std::string refusal = "403 Forbidden";
  int uses = 3;
  std::mutex mutex{};
  int signature = 0, left = 0;
  answering while_here{server, [this](const http_asked& a, raw_peer& peer) {
                         const std::lock_guard lock(mutex);
                         if (!a.target.starts_with("/signed")) {
                           left = uses;
                           return peer.say("HTTP/1.1 302 Found\r\nLocation: /signed?sig=" +
                                           std::to_string(++signature) + "\r\nContent-Length: 0\r\n\r\n");
                         }
                         if (a.target == "/signed?sig=" + std::to_string(signature) && left-- > 0) return false;
                         return peer.say("HTTP/1.1 " + refusal + "\r\nContent-Length: 0\r\n\r\n");
                       }};
};

TEST_F(HttpPull, A_signed_url_that_runs_out_is_had_again_from_the_origin) {
  for (const std::string refusal :
       {"403 Forbidden", "400 Bad Request", "401 Unauthorized", "404 Not Found", "410 Gone"})
    for (const std::uint32_t connections : {1u, 4u}) {
      const signing_store store{server, refusal};
      options.retry.retries = 0;
      const std::string url = server.url("/model");
      const auto done = pull({.url = url, .digest = digest, .connections = connections});
      ASSERT_TRUE(done) << refusal << " " << describe(done.error());
      EXPECT_EQ(done->outcome, tp::outcome::completed);
      EXPECT_GT(store.signature, 2);
    }
}

TEST_F(HttpPull, A_signed_url_that_runs_out_before_the_whole_can_be_sent_again_is_had_again_from_the_origin) {
  server.ranges = false;
  server.close_after = 250'000;
  const signing_store store{server, "403 Forbidden", 1};
  const std::string url = server.url("/model");
  const auto done = pull({.url = url, .digest = digest});
  ASSERT_TRUE(done) << describe(done.error());
  EXPECT_EQ(store.signature, 2);
}

TEST_F(HttpPull, A_place_that_refuses_under_every_signature_ends_the_pull) {
  server.instead = [](const http_asked& a, raw_peer& peer) {
    std::uint64_t first = 0, last = 0;
    if (!a.target.starts_with("/signed"))
      return peer.say("HTTP/1.1 302 Found\r\nLocation: /signed?sig=1\r\nContent-Length: 0\r\n\r\n");
    if (a.range(first, last) && first == 0) return false;
    return peer.say("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
  };
  const std::string url = server.url("/model");
  const auto done = pull({.url = url, .digest = digest, .connections = 4, .redirects = 3});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error(), errc::not_permitted) << describe(done.error());
  const auto asked = server.asked();
  EXPECT_EQ(std::count_if(asked.begin(), asked.end(), [](const http_asked& a) { return a.target == "/model"; }), 2);
}

TEST_F(HttpPull, An_origin_that_leads_to_another_file_meanwhile_is_stale) {
  http_server other(file_of<tp::raw_tensors<mlp>>(*random_model<mlp>(8)));
  other.etag = "\"v2\"";
  std::atomic<int> led{0};
  const answering while_here(server, [&](const http_asked& a, raw_peer& peer) {
    if (a.target == "/model")
      return peer.say("HTTP/1.1 302 Found\r\nLocation: " + (led++ == 0 ? "/signed" : other.url()) +
                      "\r\nContent-Length: 0\r\n\r\n");
    std::uint64_t first = 0, last = 0;
    if (a.range(first, last) && first < 200'000) return false;
    return peer.say("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
  });
  const std::string url = server.url("/model");
  options.unverified = true;
  EXPECT_EQ(pull({.url = url, .connections = 4}).error(), errc::stale_version);
  EXPECT_EQ(pull({.url = url, .digest = digest, .connections = 4}).error(), errc::digest_mismatch);
}

TEST_F(HttpPull, A_cursor_goes_on_under_a_url_that_was_signed_anew_if_the_digest_says_that_it_is_the_same_file) {
  tp::resume_cursor cursor;
  options.cursor = &cursor;
  options.retry.retries = 0;
  const auto part = [&](std::uint64_t after, const std::string& of, const std::string& path) {
    http_server once(file);
    once.close_after = after;
    const std::string url = once.url(path);
    const auto how = net::download_tensors(tp::http_address{.url = url, .digest = of}, tp::ref_id{}, *mine, options);
    std::uint64_t first = 0, last = 0, least = file.size();
    for (const auto& asked : once.asked())  // after the one for the header
      if (asked.number != 0 && asked.range(first, last)) least = std::min(least, first);
    return std::pair(how, least);
  };
  const std::string xxh3 = "xxh3:" + hex_of(xxh3_of(file));
  for (const std::string& of : {digest, xxh3}) {
    cursor = {};
    mine = blank<mlp>();
    EXPECT_FALSE(part(250'000, of, "/m?sig=1").first);
    ASSERT_TRUE(cursor);
    const std::uint64_t at = cursor.offset;
    EXPECT_GT(at, 64u * 1024);
    const auto [done, least] = part(~std::uint64_t{0}, of, "/m?sig=2");
    ASSERT_TRUE(done) << describe(done.error());
    EXPECT_GE(least, at) << "it was fetched again";
    EXPECT_LT(least, file.size()) << "the first request asked for everything";
    EXPECT_TRUE(same(*mine, *source));
  }
  // what has no digest, or another, begins anew
  cursor = {};
  EXPECT_FALSE(part(250'000, digest, "/m?sig=1").first);
  EXPECT_EQ(part(~std::uint64_t{0}, xxh3, "/m?sig=2").second, file.size()) << "the first request brings all of it";
}

TEST_F(HttpPull, Authorisation_is_sent_as_it_was_given_and_cannot_end_a_line) {
  EXPECT_TRUE(pull({.digest = digest, .user = "Aladdin", .password = "open sesame", .connections = 4}));
  EXPECT_EQ(server.asked()[0].field("authorization"), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
  EXPECT_EQ(server.asked()[1].field("authorization"), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
  EXPECT_EQ(pull({.digest = digest, .bearer = "a\r\nX: y"}).error(), errc::invalid_argument);
  EXPECT_EQ(pull({.digest = digest, .user = "a:b"}).error(), errc::invalid_argument);
  EXPECT_EQ(pull({.digest = digest, .recipient = "a\nb"}).error(), errc::invalid_argument);
  EXPECT_EQ(pull({.url = "http://u:p@h/x", .digest = digest}).error(), errc::bad_address);
}

TEST_F(HttpPull, Netrc_is_read_for_those_who_ask_for_it) {
  const own_folder home;
  std::ofstream(home / ".netrc") << "machine 127.0.0.1 login site password secret\n";
  const std::string before = std::getenv("HOME") != nullptr ? std::getenv("HOME") : "";
  ::setenv("HOME", home.path().c_str(), 1);
  EXPECT_TRUE(pull({.digest = digest}));
  EXPECT_TRUE(pull({.digest = digest, .netrc = true}));
  ::setenv("HOME", before.c_str(), 1);
  EXPECT_EQ(server.asked().front().field("authorization"), "");
  EXPECT_EQ(server.asked().back().field("authorization"), "Basic c2l0ZTpzZWNyZXQ=");
}

TEST_F(HttpPull, A_proxy_is_asked_for_the_whole_url) {
  const std::string proxy = local(server.port());
  const auto done = pull(
      {.url = "http://far.invalid/m?q=1", .digest = digest, .proxy = {.address = proxy, .user = "p", .password = "q"}});
  ASSERT_TRUE(done) << describe(done.error());
  for (const auto& a : server.asked()) {
    EXPECT_EQ(a.target, "http://far.invalid/m?q=1");
    EXPECT_EQ(a.field("host"), "far.invalid");
    EXPECT_EQ(a.field("proxy-authorization"), "Basic cDpx");
  }
}

TEST_F(HttpPull, Statuses_are_errors_with_their_number_and_the_server) {
  options.retry.retries = 0;
  const std::pair<const char*, errc> cases[]{{"401 Unauthorized", errc::not_permitted},
                                             {"403 Forbidden", errc::not_permitted},
                                             {"404 Not Found", errc::unknown_reference},
                                             {"410 Gone", errc::withdrawn},
                                             {"412 Precondition Failed", errc::stale_version},
                                             {"407 Proxy", errc::proxy_refused},
                                             {"500 Oh", errc::connection_failed},
                                             {"502 Bad", errc::connection_failed},
                                             {"204 No Content", errc::unexpected_frame},
                                             {"304 Not Modified", errc::stale_version},
                                             {"400 Bad Request", errc::bad_request},
                                             {"405 No", errc::unsupported_request},
                                             {"300 Choices", errc::unexpected_frame}};
  for (const auto& [line, code] : cases) {
    server.instead = [line = line](const http_asked&, raw_peer& peer) {
      return peer.say("HTTP/1.1 " + std::string(line) + "\r\nContent-Length: 0\r\n\r\n");
    };
    const auto done = pull();
    ASSERT_FALSE(done) << line;
    EXPECT_EQ(done.error(), code) << line;
    EXPECT_EQ(done.error().name.view(), std::string(line, 3) + " from " + local(server.port())) << line;
  }
  // also in the middle
  server.instead = [](const http_asked& a, raw_peer& peer) {
    return a.number % 3 != 0 && peer.say("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
  };
}

TEST_F(HttpPull, A_busy_server_is_asked_again_after_as_long_as_it_wants) {
  server.instead = [](const http_asked& a, raw_peer& peer) {
    if (a.number == 0)
      return peer.say("HTTP/1.1 503 Service Unavailable\r\nRetry-After: 0\r\nContent-Length: 4\r\n\r\nbusy");
    if (a.number == 3) return peer.say("HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n");
    return false;
  };
  const auto done = pull();
  ASSERT_TRUE(done) << describe(done.error());
  options.per_request_timeout = 1s;
  server.instead = [](const http_asked&, raw_peer& peer) {
    return peer.say("HTTP/1.1 503 Service Unavailable\r\nRetry-After: 3600\r\nContent-Length: 0\r\n\r\n");
  };
  EXPECT_EQ(pull().error(), errc::busy);
}

TEST_F(HttpPull, An_owner_of_this_library_is_told_and_its_refusal_undoes_nothing) {
  const std::string field = xxh3_value(xxh3_of(file));
  server.fields = "Repr-Digest: " + field + "\r\n";
  int status = 204;
  const answering while_here(server, [&](const http_asked& a, raw_peer& peer) {
    return a.method == "POST" && peer.say("HTTP/1.1 " + std::to_string(status) + " X\r\nContent-Length: 0\r\n\r\n");
  });
  const std::string url = server.url("/v1/model/latest?key=k");
  auto done = pull({.url = url, .bearer = "k"});
  ASSERT_TRUE(done) << describe(done.error());
  EXPECT_EQ(done->outcome, tp::outcome::completed);
  EXPECT_TRUE(done->confirmed);
  const auto last = server.asked().back();
  EXPECT_EQ(last.method, "POST");
  EXPECT_EQ(last.target, "/v1/model/latest/confirm?key=k");
  EXPECT_EQ(last.field("authorization"), "Bearer k");
  EXPECT_EQ(last.field("repr-digest"), field);
  for (const int other : {404, 503, 500, 409}) {
    status = other;
    options.per_request_timeout = 200ms;
    done = pull({.url = url});
    ASSERT_TRUE(done) << other;
    EXPECT_EQ(done->outcome, tp::outcome::completed);
    EXPECT_FALSE(done->confirmed);
    EXPECT_NE(done->unconfirmed_because, errc{});
  }
}

TEST_F(HttpPull, A_file_in_another_layout_has_no_fingerprint_and_lands_nowhere_but_in_a_file) {
  const std::string text = R"( {"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
  std::string other(8, '\0');
  other[0] = static_cast<char>(text.size());
  http_server strange(other + text + "abcd");
  const std::string url = strange.url();
  EXPECT_EQ(pull({.url = url, .digest = digest}).error(), errc::bad_file);  // it does not begin with a brace
  const std::string braced = R"({"a":{"dtype":"U8","shape":[4], "data_offsets":[0,4]}})";
  other[0] = static_cast<char>(braced.size());
  http_server spaced(other + braced + "abcd");
  const std::string where = spaced.url();
  EXPECT_EQ(pull({.url = where, .digest = digest}).error(), errc::schema_mismatch);
  const own_folder folder;
  const std::string path = folder / "model";
  {
    auto to = tp::safetensors_file::create(path);
    ASSERT_TRUE(to);
    const auto done = net::pull(tp::http_address{.url = where, .digest = sha256_of(spaced.content)}, {}, *to, options);
    ASSERT_TRUE(done) << describe(done.error());
    EXPECT_EQ(done->outcome, tp::outcome::completed);
  }
  std::ifstream in(path, std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), spaced.content);
}

TEST_F(HttpPull, A_model_of_another_schema_is_refused_before_a_byte_lands) {
  const auto wrong = blank<tiny>();
  const auto done = over<tiny>::download_tensors(server.url(), tp::ref_id{}, *wrong, {.unverified = true});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error(), errc::schema_mismatch);
  EXPECT_EQ(done.error().at, 0u);
}

TEST_F(HttpPull, Tensors_by_name_and_slices_are_refused_before_anything_is_asked) {
  const std::string_view names[] = {"step"};
  const tp::tensor_slice rows[] = {{"step", 0, 1}};
  tp::pull_options by_name = options, by_part = options, sliced = options;
  by_name.tensors = names, by_part.part = true, sliced.slices = rows;
  for (const auto& how : {by_name, by_part, sliced}) {
    const auto done = net::download_tensors(server.url(), tp::ref_id{}, *mine, how);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error(), errc::unsupported_request);
    EXPECT_EQ(done.error().name.view(), "tensors by name");
  }
  EXPECT_TRUE(server.asked().empty());
}

TEST_F(HttpPull, A_stop_is_heard_wherever_it_waits) {
  server.instead = [](const http_asked& a, raw_peer&) { return a.number > 0; };  // nothing more is said
  std::stop_source stop;
  options.stop = stop.get_token();
  joined_thread later([&] {
    eventually("two ranges are asked for", [&] { return server.asked().size() >= 2; });
    stop.request_stop();
  });
  const auto done = pull({.digest = digest, .connections = 4});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error(), errc::cancelled);
}

TEST_F(HttpPull, A_server_that_allows_two_connections_is_asked_over_two) {
  options.retry.retries = 0;
  for (const bool answers : {true, false}) {
    std::mutex mutex;
    std::set<std::size_t> allowed;
    http_server two(file);
    two.ended = [&](std::size_t connection) {
      const std::lock_guard lock(mutex);
      allowed.erase(connection);
    };
    const answering while_here(two, [&, answers](const http_asked& a, raw_peer& peer) {
      for (const auto soon = within(500ms); !soon.stop_requested(); look_again_soon()) {
        const std::lock_guard lock(mutex);  // what is turned away is wanted first by then
        if (allowed.size() < 2) allowed.insert(a.connection);
        if (allowed.contains(a.connection)) return false;
      }
      if (answers) return peer.say("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n");
      close_now(peer);
      return true;
    });
    const std::string url = two.url();
    const auto done = pull({.url = url, .digest = digest, .connections = 4});
    ASSERT_TRUE(done) << answers << " " << describe(done.error());
    EXPECT_LE(two.connections(), 8u);
  }
}

TEST_F(HttpPull, A_server_that_closes_connections_between_requests_costs_no_retry) {
  options.retry.retries = 0;
  server.instead = [this](const http_asked& a, raw_peer& peer) {
    server.serve_file(a, peer);
    if (a.number % 5 == 4) close_now(peer);
    return true;
  };
  const auto done = pull({.digest = digest, .connections = 4});
  ASSERT_TRUE(done) << describe(done.error());
}

TEST_F(HttpPull, A_file_that_is_replaced_is_stale_though_the_server_ignores_if_range) {
  options.unverified = true;
  const std::string replaced = file_of<tp::raw_tensors<mlp>>(*random_model<mlp>(8));
  const std::pair<std::string, std::string> cases[]{
      {"ETag: \"v1\"\r\n", "ETag: W/\"v1\"\r\n"},
      {"Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n", "Last-Modified: Sun, 06 Nov 1994 09:00:00 GMT\r\n"}};
  for (const auto& [first, later] : cases) {
    http_server careless(file);
    const answering while_here(careless, [&, first = first, later = later](const http_asked& a, raw_peer& peer) {
      std::uint64_t from = 0, to = 0;
      if (!a.range(from, to)) return false;
      const std::string& now = a.number < 2 ? file : replaced;
      to = std::min<std::uint64_t>(to, now.size() - 1);
      return peer.say(
          "HTTP/1.1 206 Partial Content\r\nDate: Sun, 06 Nov 1994 09:00:10 GMT\r\n" + (a.number < 2 ? first : later) +
          "Content-Range: bytes " + std::to_string(from) + "-" + std::to_string(to) + "/" + std::to_string(now.size()) +
          "\r\nContent-Length: " + std::to_string(to - from + 1) + "\r\n\r\n" + now.substr(from, to - from + 1));
    });
    const std::string url = careless.url();
    const auto blank_one = blank<mlp>();
    const auto done = net::download_tensors(tp::http_address{.url = url, .connections = 4}, tp::ref_id{}, *blank_one,
                                            options);
    ASSERT_FALSE(done) << first;
    EXPECT_EQ(done.error(), errc::stale_version) << describe(done.error());
  }
}

}  // namespace http_pull_test
