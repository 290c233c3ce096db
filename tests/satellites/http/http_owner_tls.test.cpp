// HTTPS with the library's TLS, beside an owner of frames and alone; the certificate names the client.
#include "http_client.hpp"
#include "transports/certificates.hpp"

#include <tensorpull/transports/over/tls/tls.hpp>

namespace http_owner_tls_test {

using namespace test;
using net = tp::pipeline<tp::raw_tensors<large>, tp::fixed_bytes<64_KiB>, tp::http_only<tp::tls>>;
using plain = tp::pipeline<tp::raw_tensors<large>, tp::fixed_bytes<64_KiB>, tp::tls>;

/// Says a request over TLS and gives what is answered until `most` bytes came behind the head, or the other side
/// closed.
std::string asked(const tp::tls_address& where, const std::string& request, std::size_t most) {
  auto s = where.connect(10s);
  EXPECT_TRUE(s) << to_string(s.error().code);
  if (!s) return {};
  const std::array<std::span<const std::byte>, 1> out{std::as_bytes(std::span(request))};
  EXPECT_EQ(s->write_some(out).bytes, request.size());
  std::string text;
  std::vector<std::byte> room(65536);
  const std::array<std::span<std::byte>, 1> in{std::span(room)};
  for (const auto end = std::chrono::steady_clock::now() + 20s; std::chrono::steady_clock::now() < end;) {
    const auto io = s->read_some(in);
    text.append(reinterpret_cast<const char*>(room.data()), io.bytes);
    const std::size_t head = text.find("\r\n\r\n");
    if (tp::is_end(io.status) || (head != text.npos && text.size() >= head + 4 + most)) break;
    if (io.bytes == 0) s->wait(true, false, 20ms);
  }
  return text;
}

TEST(HttpOwnerTls, The_image_comes_whole_beside_an_owner_of_frames) {
  const pki p;
  const auto source = random_model<large>(1);
  const std::string image = image_of(*source);
  const auto server = context_of(&p.server, p.authority), client = context_of(nullptr, p.authority);
  auto owner = plain::downloader::open(tp::tls_address{"127.0.0.1:0", server});
  ASSERT_TRUE(owner);
  auto door = tp::open_http_door<tp::tls>(*owner, tp::tls_address{"127.0.0.1:0", server});
  ASSERT_TRUE(door);
  const auto ref = *owner->add_tensors(*source);
  serving thread(*owner);
  const auto mine = blank<large>();
  const std::string where = local(owner->port()), beside = local(door->port());
  EXPECT_TRUE(plain::download_tensors(tp::tls_address{where, client}, ref, *mine));
  EXPECT_TRUE(same(*mine, *source));
  const std::string request = http_client::request("GET", path_of(ref), ref);
  const std::string text = asked(tp::tls_address{beside, client}, request, image.size());
  ASSERT_EQ(text.substr(0, 17), "HTTP/1.1 200 OK\r\n");
  EXPECT_TRUE(text.substr(text.find("\r\n\r\n") + 4) == image);
  const std::string refused = asked(tp::tls_address{beside, client}, "GET / HTTP/1.1\nHost: a\n\n", 100);
  EXPECT_EQ(refused.substr(0, 26), "HTTP/1.1 400 Bad Request\r\n");
}

TEST(HttpOwnerTls, Who_may_is_decided_by_the_certificate_as_for_frames) {
  const pki p;
  const auto source = random_model<large>(1);
  const auto may = [](const tp::access_request& r) {
    return r.peer.kind == tp::identity_kind::certificate && r.recipient == tp::recipient_named(r.peer.name);
  };
  auto owner = net::downloader::open(
      tp::tls_address{"127.0.0.1:0", context_of(&p.server, p.authority, {.clients_have_certificates = true})},
      {.authorise = may});
  ASSERT_TRUE(owner);
  const auto ref = *owner->add_tensors(*source);
  serving thread(*owner);
  const std::string where = local(owner->port());
  const identity site({.common_name = "site-7"}, &p.authority);
  const auto head = [&](const char* name) {
    return asked(tp::tls_address{where, context_of(&site, p.authority)},
                 http_client::request("HEAD", path_of(ref), ref, "Tensorpull-Recipient: " + std::string(name) + "\r\n"),
                 0)
        .substr(9, 3);
  };
  EXPECT_EQ(head("site-7"), "200");
  EXPECT_EQ(head("site-8"), "404");
  const auto post = [&](const identity& who, const char* what, const std::string& body) {
    const std::string request = http_client::request("POST", path_of(ref) + what, ref,
                                                     "Tensorpull-Recipient: site-7\r\nContent-Length: " +
                                                         std::to_string(body.size()) + "\r\n") +
                                body;
    return asked(tp::tls_address{where, context_of(&who, p.authority)}, request, 0).substr(9, 3);
  };
  const std::string digest = "digest=" + hex(ref.version),
                    whole = http_client::request("GET", path_of(ref), ref, "Tensorpull-Recipient: site-7\r\n");
  EXPECT_GT(asked(tp::tls_address{where, context_of(&site, p.authority)}, whole, sizeof(large)).size(), sizeof(large));
  const identity stranger({.common_name = "site-8"}, &p.authority);
  EXPECT_EQ(post(stranger, "/cancel", ""), "404");  // nobody ends another's transfer
  EXPECT_EQ(post(stranger, "/confirm", digest), "404");
  EXPECT_EQ(post(site, "/confirm", digest), "200");
}

/// One connection over TLS that says exactly what it is told.
class secret_client {
 public:
  explicit secret_client(const tp::tls_address& where) : stream_(*where.connect(10s)) {}

  bool say(std::string_view text) {
    for (const auto end = std::chrono::steady_clock::now() + 20s;
         !text.empty() && std::chrono::steady_clock::now() < end;) {
      const std::array<std::span<const std::byte>, 1> out{std::as_bytes(std::span(text))};
      const auto io = stream_.write_some(out);
      if (tp::is_end(io.status)) return false;
      text.remove_prefix(io.bytes);
      if (io.bytes == 0) stream_.wait(false, true, 20ms);
    }
    return text.empty();
  }
  /// Until `done`, or the other side closed.
  template <class Done>
  const std::string& hear(Done done) {
    std::vector<std::byte> room(65536);
    const std::array<std::span<std::byte>, 1> in{std::span(room)};
    for (const auto end = std::chrono::steady_clock::now() + 20s;
         !ended_ && !done(heard_) && std::chrono::steady_clock::now() < end;) {
      const auto io = stream_.read_some(in);
      heard_.append(reinterpret_cast<const char*>(room.data()), io.bytes);
      ended_ = tp::is_end(io.status);
      if (io.bytes == 0 && !ended_) stream_.wait(true, false, 20ms);
    }
    return heard_;
  }
  /// Whether the other side closed, within the test's patience.
  bool hear_end() {
    hear([](const std::string&) { return false; });
    return ended_;
  }
  const std::string& heard() const { return heard_; }

 private:
  decltype(tp::tls_address{}.connect(10s))::value_type stream_;
  std::string heard_;
  bool ended_ = false;
};
std::size_t count_of(const std::string& text, std::string_view what) {
  std::size_t n = 0;
  for (std::size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++n;
  return n;
}

struct HttpOwnerTlsAttack : testing::Test {
  explicit HttpOwnerTlsAttack(const tp::host_options& options = {})
      : owner(net::downloader::open(tp::tls_address{"127.0.0.1:0", server}, options)),
        ref(*owner->add_tensors(*source)), thread(*owner) {}
  tp::tls_address address() const { return {where, client}; }
  const pki p;
  const std::unique_ptr<large> source = random_model<large>(1);
  const tp::tls_context server = context_of(&p.server, p.authority), client = context_of(nullptr, p.authority);
  tp::result<net::downloader> owner;
  const tp::reference ref;
  serving thread;
  const std::string where = local(owner->port());
};

TEST_F(HttpOwnerTlsAttack, Smuggled_requests_end_the_connection_and_nothing_behind_them_is_answered) {
  const std::string get = http_client::request("GET", path_of(ref), ref, "Range: bytes=0-0\r\n"),
                    post = "POST " + path_of(ref) + "/confirm HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " +
                           key_of(ref) + "\r\n";
  for (const std::string& said : {post + "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                                  post + "Content-Length: 0\r\nContent-Length: 5\r\n\r\n",
                                  get.substr(0, get.size() - 2) + "X: a\nY: b\r\n\r\n"}) {
    secret_client c(address());
    c.say(said + get);
    EXPECT_TRUE(c.hear_end());
    EXPECT_EQ(c.heard().substr(0, 12), "HTTP/1.1 400") << said;
    EXPECT_EQ(count_of(c.heard(), "HTTP/1.1 "), 1u) << said;
  }
}

TEST_F(HttpOwnerTlsAttack, More_requests_in_one_record_than_the_window_of_one_are_all_answered) {
  secret_client c(address());
  std::string requests;
  for (int i = 0; i < 100; ++i) requests += http_client::request("GET", path_of(ref), ref, "Range: bytes=0-0\r\n");
  ASSERT_GT(requests.size(), 8192u);
  for (std::size_t round = 1; round <= 5; ++round) {
    ASSERT_TRUE(c.say(requests));
    c.hear([&](const std::string& text) { return count_of(text, "HTTP/1.1 206") == 100 * round; });
    ASSERT_EQ(count_of(c.heard(), "HTTP/1.1 206"), 100 * round);
  }
}

struct HttpOwnerTlsSlow : HttpOwnerTlsAttack {
  HttpOwnerTlsSlow() : HttpOwnerTlsAttack({.budgets = {.accept = 60s, .idle = 60s, .frame = 400ms}}) {}
};
TEST_F(HttpOwnerTlsSlow, Who_says_a_head_or_a_body_a_byte_at_a_time_loses_the_connection) {
  const std::string head = http_client::request("GET", path_of(ref), ref, "X: " + std::string(1500, 'a') + "\r\n");
  secret_client slow(address()), good(address());
  std::size_t said = 0;
  while (said < head.size() && slow.say(head.substr(said, 1))) ++said, be_slow(5ms);
  EXPECT_LT(said, head.size());
  good.say(http_client::request("HEAD", path_of(ref), ref));
  EXPECT_NE(good.hear([](const std::string& text) { return text.find("\r\n\r\n") != text.npos; }).find("200 OK"),
            std::string::npos);
  // a body that does not come
  good.say(http_client::request("POST", path_of(ref) + "/confirm", ref, "Content-Length: 23\r\n") + "dig");
  EXPECT_TRUE(good.hear_end());
}

}  // namespace http_owner_tls_test
