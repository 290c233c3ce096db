// What attackers say to an owner over HTTP: requests that two readers understand differently, floods, and bytes that
// come too slowly or are never taken. Each ends its own connection, with the right status, and nobody else's.
#include "http_client.hpp"

namespace http_owner_attack_test {

using namespace test;
using net = tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<64_KiB>, tp::http_only<tp::tcp>>;
using big_net = tp::pipeline<tp::raw_tensors<large>, tp::fixed_bytes<64_KiB>, tp::http_only<tp::tcp>>;

struct HttpOwnerAttack : testing::Test {
  HttpOwnerAttack()
      : owner(net::downloader::open()), source(random_model<mlp>(1)), ref(*owner->add_tensors(*source)),
        thread(*owner) {}
  std::string key() const { return "Authorization: Bearer " + key_of(ref) + "\r\n"; }
  std::string get() const { return "GET " + path_of(ref) + " HTTP/1.1\r\nHost: a\r\n" + key(); }
  /// Says it, and behind it a request that would be answered if the reader lost its place.
  void refuses(int status, const std::string& said) {
    http_client c(owner->port());
    c.say(said + get() + "\r\n");
    const auto a = c.hear();
    EXPECT_EQ(a.status, status) << said;
    EXPECT_TRUE(c.hear_end()) << said;  // nothing else is answered
    EXPECT_EQ(c.hear().status, 0) << said;
  }
  tp::result<net::downloader> owner;
  const std::unique_ptr<mlp> source;
  const tp::reference ref;
  serving thread;
};

TEST_F(HttpOwnerAttack, Smuggled_requests_are_refused_and_end_the_connection) {
  const std::string post = "POST " + path_of(ref) + "/confirm HTTP/1.1\r\nHost: a\r\n" + key();
  refuses(400, post + "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
  refuses(400, post + "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n");
  refuses(411, post + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
  refuses(411, post + "Transfer-Encoding: xchunked\r\n\r\n");
  refuses(400, post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n");
  refuses(400, post + "Content-Length: 0\r\nContent-Length: 0\r\n\r\n");
  refuses(400, post + "Content-Length: 0, 0\r\n\r\n");
  refuses(400, post + "Content-Length: +0\r\n\r\n");
  refuses(400, post + "Content-Length: -1\r\n\r\n");
  refuses(400, post + "Content-Length: 0x0\r\n\r\n");
  refuses(400, post + "Content-Length:\r\n\r\n");
  refuses(400, post + "Content-Length : 0\r\n\r\n");
  refuses(413, post + "Content-Length: 99999999999999999999999999\r\n\r\n");
  refuses(413, post + "Content-Length: 257\r\n\r\n");
  refuses(411, post + "\r\n");
  refuses(400, get() + "Content-Length: 5\r\n\r\nhello");
  refuses(411, get() + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
}

TEST_F(HttpOwnerAttack, Lines_that_two_readers_end_differently_are_refused) {
  refuses(400, get() + "X: a\r\n b\r\n\r\n");  // folded
  refuses(400, get() + " X: a\r\n\r\n");
  refuses(400, get() + "X: a\nY: b\r\n\r\n");  // a bare LF
  refuses(400, "GET " + path_of(ref) + " HTTP/1.1\nHost: a\n" + "\n");
  refuses(400, get() + "X: a\rY: b\r\n\r\n");  // a bare CR
  refuses(400, get() + "X: a\r\r\n\r\n");
  refuses(400, get() + std::string("X: a\0b\r\n\r\n", 11));
  refuses(400, get() + "X\x01: a\r\n\r\n");
  refuses(400, get() + ": a\r\n\r\n");
  refuses(400, get() + "no colon\r\n\r\n");
  refuses(400, get() + "Host: b\r\n\r\n");
  refuses(400, "GET " + path_of(ref) + " HTTP/1.1\r\n" + key() + "\r\n");
  refuses(400, "GET " + path_of(ref) + " HTTP/1.1\r\nHost: a@b/\r\n" + key() + "\r\n");
  refuses(400, get() + key() + "\r\n");
  refuses(400, get() + "Range: bytes=0-1\r\nRange: bytes=2-3\r\n\r\n");
  refuses(417, get() + "Expect: the-unexpected\r\n\r\n");
}

TEST_F(HttpOwnerAttack, Paths_are_plain_or_refused) {
  const std::string rest = " HTTP/1.1\r\nHost: a\r\n" + key() + "\r\n", v = hex(ref.version);
  for (const std::string& path : {std::string("http://a") + path_of(ref),
                                  std::string("//a/../") + v,
                                  std::string("/v1/../metrics"),
                                  std::string("/v1/./") + v,
                                  "/v1/a%00/" + v,
                                  "/v1/a%2f/" + v,
                                  "/v1/a%2e%2e/" + v,
                                  "/v1/a/" + v + "#x",
                                  "/v1/a/" + v + "?key=%30",
                                  "/v1/a/" + v + "?key=1;2",
                                  "/v1/a/" + v + "?x=\"",
                                  "/v1/a\\b/" + v,
                                  std::string("*"),
                                  std::string("a:443"),
                                  "/v1/\xc3\xa4/" + v,
                                  std::string("/v1/a b/") + v,
                                  "/v1/a/" + v + "/files/../a",
                                  "/v1/a/" + v + "/files/%",
                                  "/v1/a/" + v + "/files/a%2",
                                  "/v1/a/" + v + "/files/a%2g",
                                  "/v1/a/" + v + "/files/a\"b",
                                  "/v1/a/" + v + "/files%2fa",
                                  "/v1/a=b/" + v + "/files/a"})
    refuses(400, "GET " + path + rest);
  refuses(400, std::string("GET /v1/a\0/", 11) + v + rest);
  refuses(400, "GET\t" + path_of(ref) + rest);
  refuses(400, "GET  " + path_of(ref) + rest);
  refuses(400, "GET " + path_of(ref) + " \r\n");
  refuses(400, "GET " + path_of(ref) + " HTTP/1.1 \r\n");
  refuses(400, "GET " + path_of(ref) + " http/1.1\r\n");
  refuses(400, " GET " + path_of(ref) + rest);
  refuses(400, "(GET " + path_of(ref) + rest);
  refuses(505, "GET " + path_of(ref) + " HTTP/2.0\r\n");
  refuses(501, "BREW " + path_of(ref) + rest);
  refuses(405, "DELETE " + path_of(ref) + rest);
  refuses(405, "CONNECT a:443" + rest);
  refuses(405, "POST " + path_of(ref) + " HTTP/1.1\r\nHost: a\r\n" + key() + "Content-Length: 0\r\n\r\n");
  http_client blank(owner->port());
  blank.say(get() + "\r\n");
  EXPECT_EQ(blank.hear().status, 200);
  blank.say("\r\n\r\n" + get() + "\r\n");  // one line is passed over, and not two
  EXPECT_EQ(blank.hear().status, 400);
  // these are well formed, and name nothing
  http_client c(owner->port());
  for (const std::string& path :
       {std::string("/"), std::string("/v1"), "/v1//" + v, "/v1/a/" + v + "/", "/v1/a/" + v + "/x",
        "/v1/a/" + v + "/confirm/x", std::string("/v1/a/0000000000000000"), "/v1/a/" + v.substr(1), "/v2/a/" + v,
        "/v1/" + std::string(65, 'a') + "/" + v, std::string("/metrics/"), std::string("/a/b/c/d/e/f")}) {
    c.say("GET " + path + rest);
    EXPECT_EQ(c.hear().status, 404) << path;
  }
}

TEST_F(HttpOwnerAttack, Floods_end_at_their_limits) {
  refuses(414, "GET /" + std::string(4000, 'a') + " HTTP/1.1\r\n");
  refuses(431, get() + "X: " + std::string(4000, 'a') + "\r\n\r\n");
  std::string many = get();
  for (int i = 0; i < 100; ++i) many += "X: a\r\n";
  refuses(431, many + "\r\n");
  std::string large = get();
  for (int i = 0; i < 20; ++i) large += "X: " + std::string(1000, 'a') + "\r\n";
  refuses(431, large + "\r\n");
  std::string ranges = get() + "Range: bytes=";
  for (int i = 0; i < 2000; ++i) ranges += "0-,";
  refuses(431, ranges + "\r\n\r\n");
  http_client endless(owner->port());  // and one that does not stop: what it sends is thrown away for half a second
  endless.say(get());
  bool taken = true;
  for (int i = 0; taken && i < 20'000; ++i) taken = endless.say(std::string(64 * 1024, 'a'));
  EXPECT_FALSE(taken);
  http_client other(owner->port());
  EXPECT_EQ(other.ask("GET", ref).status, 200);
}

TEST_F(HttpOwnerAttack, Thousands_of_requests_in_line_cost_no_more_than_the_window_of_one) {
  http_client c(owner->port());
  std::string requests;
  for (int i = 0; i < 2000; ++i) requests += get() + "Range: bytes=0-0\r\n\r\n";
  joined_thread teller([&] { c.peer().say(requests); });
  for (int i = 0; i < 2000; ++i) ASSERT_EQ(c.hear().status, 206) << i;
}

/// An owner whose budgets are short.
template <class Net, class Model>
struct impatient {
  impatient()
      : owner(Net::downloader::open(
            {.host = {.max_connections = 64,
                      .budgets = {.accept = 400ms, .stall = 600ms, .idle = 60s, .frame = 400ms}}})),
        source(random_model<Model>(1)), ref(*owner->add_tensors(*source)), thread(*owner) {}
  tp::result<typename Net::downloader> owner;
  std::unique_ptr<Model> source;
  tp::reference ref;
  serving thread;
};

TEST(HttpOwnerSlow, Who_says_a_head_a_byte_at_a_time_or_says_nothing_loses_the_connection) {
  impatient<net, mlp> o;
  http_client slow(o.owner->port()), silent(o.owner->port()), good(o.owner->port());
  EXPECT_EQ(good.ask("GET", o.ref).status, 200);
  const std::string head = http_client::request("GET", path_of(o.ref), o.ref, "X: " + std::string(1500, 'a') + "\r\n");
  std::size_t said = 0;
  while (said < head.size() && slow.say(head.substr(said, 1))) ++said, be_slow(5ms);
  EXPECT_LT(said, head.size());
  EXPECT_TRUE(silent.hear_end());
  EXPECT_EQ(good.ask("GET", o.ref).status, 200);
  // a body that does not come
  good.say(http_client::request("POST", path_of(o.ref) + "/confirm", o.ref, "Content-Length: 23\r\n") + "dig");
  EXPECT_TRUE(good.hear_end());
}

TEST(HttpOwnerSlow, Who_reads_nothing_is_ended_and_others_have_their_bytes_meanwhile) {
  impatient<big_net, large> o;
  std::vector<std::unique_ptr<http_client>> readers_of_nothing;
  for (int i = 0; i < 20; ++i) {
    readers_of_nothing.push_back(std::make_unique<http_client>(o.owner->port()));
    readers_of_nothing.back()->say(http_client::request("GET", path_of(o.ref), o.ref));
  }
  http_client good(o.owner->port());
  EXPECT_EQ(good.ask("GET", o.ref).body.size(), image_of(*o.source).size());
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (o.owner->shared().counts.open() > 1 && std::chrono::steady_clock::now() < end) good.ask("HEAD", o.ref);
  EXPECT_EQ(o.owner->shared().counts.open(), 1u);
}

TEST(HttpOwnerSlow, Connections_are_bounded_and_the_oldest_that_have_shown_nothing_make_room) {
  auto owner = net::downloader::open({.host = {.max_connections = 16}});
  const auto source = random_model<mlp>(1);
  const auto ref = *owner->add_tensors(*source);
  serving thread(*owner);
  std::vector<std::unique_ptr<http_client>> crowd;
  for (int i = 0; i < 40; ++i) crowd.push_back(std::make_unique<http_client>(owner->port()));
  http_client good(owner->port());
  EXPECT_EQ(good.ask("GET", ref).status, 200);
  thread.stop();
  EXPECT_LE(owner->connections(), 16u);
}

}  // namespace http_owner_attack_test
