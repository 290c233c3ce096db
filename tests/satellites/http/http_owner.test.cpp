// What an owner answers over HTTP: the protocol, by a client that says exactly what it is told.
#include "http_client.hpp"

namespace http_owner_test {

using namespace test;
using net = tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<64_KiB>, tp::http_only<tp::tcp>>;
using plain = tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<64_KiB>, tp::tcp>;

/// An owner with one model, on a thread of its own.
struct HttpOwner : testing::Test {
  HttpOwner() : owner(net::downloader::open()), source(random_model<mlp>(1)), image(image_of(*source)) {}
  void publish(const tp::publish_options& options = {}) {
    ref = *owner->add_tensors(*source, options);
    thread.emplace(*owner);
  }
  http_client connect() const { return http_client(owner->port()); }
  std::string get(std::string_view path, std::string_view fields = {}) const {
    return http_client::request("GET", path, ref, fields);
  }
  static std::string post(std::string_view path, const tp::reference& r, std::string_view body,
                          std::string_view fields = {}) {
    return http_client::request("POST", path, r,
                                "Content-Length: " + std::to_string(body.size()) + "\r\n" + std::string(fields)) +
           std::string(body);
  }
  http_answer confirm(http_client& c, std::string_view body, std::string_view fields = {}) const {
    c.say(post(path_of(ref) + "/confirm", ref, body, fields));
    return c.hear();
  }
  tp::result<net::downloader> owner;
  const std::unique_ptr<mlp> source;
  const std::string image;
  tp::reference ref;
  std::optional<serving> thread;
};

TEST_F(HttpOwner, Gives_the_whole_image_with_what_caches_and_checks_need) {
  publish();
  auto c = connect();
  const auto a = c.ask("GET", ref);
  EXPECT_EQ(a.status, 200);
  EXPECT_TRUE(a.body == image);
  EXPECT_EQ(a.at("ETag"), "\"" + hex(ref.version) + "\"");
  EXPECT_EQ(a.at("Accept-Ranges"), "bytes");
  EXPECT_EQ(a.at("Cache-Control"), "public, max-age=31536000, immutable");
  EXPECT_EQ(a.at("Vary"), "Authorization");
  EXPECT_EQ(a.at("Content-Type"), "application/octet-stream");
  const auto digest = tp::detail::parse_xxh3(a.at("Repr-Digest").substr(5));
  ASSERT_TRUE(digest) << a.at("Repr-Digest");
  EXPECT_EQ(*digest, ref.version);
  EXPECT_EQ(a.at("Date").substr(a.at("Date").size() - 4), " GMT");
}

TEST_F(HttpOwner, HEAD_says_the_same_without_a_body_and_makes_nobody_a_recipient) {
  publish();
  auto c = connect();
  const auto h = c.ask("HEAD", ref, "Range: bytes=0-1\r\n");  // a range is defined for GET alone
  EXPECT_EQ(h.status, 200);
  EXPECT_EQ(h.at("Content-Length"), std::to_string(image.size()));
  EXPECT_EQ(c.ask("GET", ref, "If-None-Match: \"" + hex(ref.version) + "\"\r\n").status, 304);
  EXPECT_EQ(c.ask("GET", ref, "Range: bytes=99999999-\r\n").status, 416);
  thread->stop();
  EXPECT_EQ(owner->status_of(ref)->acquired, 0u);
}

TEST_F(HttpOwner, Each_tensor_is_a_file_by_its_name_and_the_header_lists_them) {
  publish();
  auto c = connect();
  const auto header = 8 + tp::load_le64(std::as_bytes(std::span(image)).data());
  const std::string files = path_of(ref) + "/files", text = image.substr(8, header - 8);
  c.say(get(files));
  const auto listed = c.hear();
  EXPECT_EQ(listed.status, 200);
  EXPECT_EQ(listed.body, text);
  EXPECT_EQ(listed.at("Content-Type"), "application/json");
  EXPECT_EQ(listed.at("Repr-Digest"), "");
  c.say(http_client::request("HEAD", files, ref));
  EXPECT_EQ(c.hear(true).at("Content-Length"), std::to_string(text.size()));
  const tp::image_schema& schema = *tp::raw_tensors<mlp>::source(*source).schema;
  for (const tp::tensor_entry& t : schema.entries()) {
    const std::string name(t.name), bytes = image.substr(header + t.begin, t.size_bytes());
    c.say(get(files + "/" + name));
    const auto whole = c.hear();
    EXPECT_EQ(whole.status, 200) << name;
    EXPECT_TRUE(whole.body == bytes) << name;
    c.say(get(files + "/" + name, "Range: bytes=-7\r\n"));
    const auto part = c.hear();
    EXPECT_EQ(part.status, 206);
    EXPECT_TRUE(part.body == bytes.substr(bytes.size() - 7)) << name;
    EXPECT_EQ(part.at("Content-Range"), "bytes " + std::to_string(bytes.size() - 7) + "-" +
                                            std::to_string(bytes.size() - 1) + "/" + std::to_string(bytes.size()));
    c.say(get(files + "/" + name, "Range: bytes=" + std::to_string(bytes.size()) + "-\r\n"));
    EXPECT_EQ(c.hear().status, 416) << "what lies behind it is another's";
  }
  for (const std::string& none : {std::string("/"), std::string("/none"), std::string("/w1/"),
                                  "/" + std::string(256, 'a'), "/" + std::string(1000, 'a')}) {
    c.say(get(files + none));
    EXPECT_EQ(c.hear().status, 404) << none;
  }
  tp::reference other = ref;
  other.id.low ^= 1;
  c.say(http_client::request("GET", files + "/w1", other));
  EXPECT_EQ(c.hear().status, 404);
  c.say("GET " + files + "/w1 HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(c.hear().status, 401);
}

TEST_F(HttpOwner, A_file_that_was_fetched_is_a_part_of_the_image_and_no_more) {
  publish({.recipients = 1});
  auto c = connect();
  const std::string name(tp::raw_tensors<mlp>::source(*source).schema->tensors[0].name);
  c.say(get(path_of(ref) + "/files/" + name, "Tensorpull-Recipient: site-1\r\n"));
  EXPECT_EQ(c.hear().status, 200);
  EXPECT_EQ(confirm(c, "", "Tensorpull-Recipient: site-1\r\n").status, 409);
}

TEST_F(HttpOwner, Ranges_are_those_of_RFC_9110) {
  publish();
  auto c = connect();
  const std::size_t n = image.size();
  const auto total = std::to_string(n);
  struct wanted {
    std::string range;
    int status;
    std::size_t from, count;
  };
  const wanted all[]{
      {"bytes=0-0", 206, 0, 1},
      {"bytes=0-", 206, 0, n},
      {"bytes=8-15", 206, 8, 8},
      {"BYTES = 8-15", 206, 8, 8},
      {"bytes=-5", 206, n - 5, 5},
      {"bytes=-99999999999999999999999", 206, 0, n},
      {"bytes=5-99999999999999999999999", 206, 5, n - 5},
      {"bytes=" + std::to_string(n - 1) + "-", 206, n - 1, 1},
      {"bytes=" + total + "-", 416, 0, 0},
      {"bytes=-0", 416, 0, 0},
      {"bytes=9-8", 416, 0, 0},
      {"bytes=", 416, 0, 0},
      {"bytes=a-b", 416, 0, 0},
      {"bytes=1-2-3", 416, 0, 0},
      {"bytes=--1", 416, 0, 0},
      {"bytes 1-2", 416, 0, 0},
      {"bytes=99999999999999999999999-", 416, 0, 0},
      {"tensors=0-1", 200, 0, n},  // a unit that is not known
      {"bytes=0-1,4-5", 200, 0, n},
      {"bytes=0-1, 4-5 ,,9-", 200, 0, n},  // several: the whole, once
      {"bytes=0-5,4-9", 416, 0, 0},
      {"bytes=4-5,0-1", 416, 0, 0},
      {"bytes=0-,0-,0-", 416, 0, 0},
      {"bytes=-5,-6", 416, 0, 0},
      {"bytes=0-0,2-2,4-4,6-6,8-8,10-10,12-12,14-14,16-16,18-18,20-20,22-22,24-24,26-26,28-28,30-30,32-32", 416, 0, 0}};
  for (const auto& w : all) {
    const auto a = c.ask("GET", ref, "Range: " + w.range + "\r\n");
    EXPECT_EQ(a.status, w.status) << w.range;
    EXPECT_TRUE(a.body == image.substr(w.from, w.count)) << w.range;
    std::string of;
    if (w.status == 206)
      of = "bytes " + std::to_string(w.from) + "-" + std::to_string(w.from + w.count - 1) + "/" + total;
    if (w.status == 416) of = "bytes */" + total;
    EXPECT_EQ(a.at("Content-Range"), of) << w.range;
  }
}

TEST_F(HttpOwner, Conditions_are_those_of_RFC_9110) {
  publish();
  auto c = connect();
  const std::string ours = "\"" + hex(ref.version) + "\"", other = "\"" + hex(ref.version + 1) + "\"";
  const std::pair<std::string, int> all[]{{"If-Range: " + ours + "\r\nRange: bytes=0-1\r\n", 206},
                                          {"If-Range: " + other + "\r\nRange: bytes=0-1\r\n", 200},
                                          {"If-Range: W/" + ours + "\r\nRange: bytes=0-1\r\n", 200},
                                          {"If-Range: Mon, 01 Jan 2024 00:00:00 GMT\r\nRange: bytes=0-1\r\n", 200},
                                          {"If-Range: " + other + "\r\nRange: bytes=9-1\r\n", 200},
                                          {"If-None-Match: " + ours + "\r\n", 304},
                                          {"If-None-Match: W/" + ours + "\r\n", 304},
                                          {"If-None-Match: \"a,b\", " + other + " , " + ours + "\r\n", 304},
                                          {"If-None-Match: *\r\n", 304},
                                          {"If-None-Match: " + other + "\r\n", 200},
                                          {"If-Match: " + ours + "\r\n", 200},
                                          {"If-Match: *\r\n", 200},
                                          {"If-Match: W/" + ours + "\r\n", 412},
                                          {"If-Match: " + other + "\r\n", 412}};
  for (const auto& [fields, status] : all) EXPECT_EQ(c.ask("GET", ref, fields).status, status) << fields;
}

TEST_F(HttpOwner, A_key_opens_and_nothing_else_does) {
  publish();
  auto c = connect();
  const std::string path = path_of(ref), host = " HTTP/1.1\r\nHost: a\r\n";
  tp::reference other = ref;
  other.id.low ^= 1;
  c.say("GET " + path + host + "\r\n");
  const auto none = c.hear();
  EXPECT_EQ(none.status, 401);
  EXPECT_EQ(none.at("WWW-Authenticate").substr(0, 6), "Bearer");
  EXPECT_EQ(none.at("Cache-Control"), "no-store");
  const auto wrong = c.ask("GET", other);
  EXPECT_EQ(wrong.status, 404);
  c.say("GET " + path + host + "Authorization: Basic " + key_of(ref) + "\r\n\r\n");
  EXPECT_EQ(c.hear().status, 401);
  c.say("GET " + path + host + "Authorization: bEARER  " + key_of(ref).substr(1) + "\r\n\r\n");
  const auto malformed = c.hear();
  EXPECT_EQ(malformed.status, 404);
  EXPECT_EQ(malformed.body, wrong.body);  // a key that could be one and is not tells nothing more
  c.say("GET " + path + host + "Authorization: Bearer " + key_of(ref) + hex(ref.version) + "\r\n\r\n");
  EXPECT_EQ(c.hear().status, 200) << "a reference as it is passed on";
  for (const std::string& version : {std::string("latest"), hex(ref.version), hex(ref.version + 1)})
    for (const bool right : {true, false}) {
      c.say("GET /v1/model/" + version + host + "Authorization: Bearer " + key_of(ref) +
            hex(ref.version + (right ? 0 : 1)) + "\r\n\r\n");
      EXPECT_EQ(c.hear().status, right && version != hex(ref.version + 1) ? 200 : 404) << version << right;
    }
  c.say(get("/v1/model/" + hex(ref.version + 1)));
  EXPECT_EQ(c.hear().status, 404);
  c.say(get("/v1/model/latest"));
  const auto latest = c.hear();
  EXPECT_EQ(latest.status, 200);
  EXPECT_EQ(latest.at("Cache-Control"), "no-cache");
  c.say("GET " + path + "?utm_source=a%20b+c;d,e&t=12:30&key=" + key_of(ref) + host + "\r\n");
  const auto in_url = c.hear();
  EXPECT_TRUE(in_url.body == image);
  EXPECT_EQ(in_url.at("Cache-Control"), "no-store");
  c.say(http_client::request("GET", path + "?key=" + key_of(ref), ref));  // two keys
  EXPECT_EQ(c.hear().status, 400);
  EXPECT_TRUE(c.hear_end());
}

TEST_F(HttpOwner, A_confirmation_with_the_digest_settles_as_any_other) {
  publish({.recipients = 1});
  auto c = connect();
  EXPECT_EQ(confirm(c, "digest=" + hex(ref.version)).status, 409);  // nothing was sent yet
  EXPECT_TRUE(c.ask("GET", ref).body == image);
  const auto done = confirm(c, "digest=" + hex(ref.version));
  EXPECT_EQ(done.status, 200);
  EXPECT_EQ(done.body, "completed\n");
  thread->stop();
  EXPECT_TRUE(owner->settled(ref));
  EXPECT_EQ(owner->settlement_of(ref)->verdict, tp::verdict::completed);
}

TEST_F(HttpOwner,
       Who_says_no_digest_has_to_have_been_sent_every_byte_and_ranges_may_come_in_any_order_over_several_connections) {
  publish({.recipients = 1});
  const std::string name = "Tensorpull-Recipient: site-1\r\n";
  const auto who = tp::recipient_named("site-1");
  const std::size_t half = image.size() / 2;
  const std::string digest = "digest=" + hex(ref.version);
  auto a = connect(), b = connect();
  EXPECT_EQ(a.ask("GET", ref, name + "Range: bytes=" + std::to_string(half) + "-\r\n").status, 206);
  EXPECT_EQ(owner->recipient_of(ref, who)->state, tp::recipient_state::acquired);  // although the last byte was sent
  EXPECT_EQ(confirm(a, "", name).status, 409);
  EXPECT_EQ(b.ask("GET", ref, name + "Range: bytes=0-" + std::to_string(half - 2) + "\r\n").status, 206);
  EXPECT_EQ(confirm(b, "", name).status, 409);  // one byte is missing
  EXPECT_EQ(b.ask("GET", ref, name + "Range: bytes=10-" + std::to_string(half) + "\r\n").status, 206);
  EXPECT_EQ(confirm(b, digest, "Tensorpull-Recipient: site-2\r\n").status, 409);
  const auto done = confirm(
      b, "", name + "Repr-Digest: sha-256=:AAAA:, xxh3=" + [&] {
        auto h = connect().ask("HEAD", ref).at("Repr-Digest");
        return h.substr(5);
      }() + "\r\n");
  EXPECT_EQ(done.body, "completed\n");
  EXPECT_EQ(confirm(a, digest, name).body, "completed\n");  // a repeated one gets the same answer
  thread->stop();
  EXPECT_EQ(owner->settlement_of(ref)->verdict, tp::verdict::completed);
}

TEST_F(HttpOwner,
       Who_has_a_name_and_the_digest_needs_the_last_byte_alone_since_an_owner_before_may_have_sent_the_rest) {
  publish({.recipients = 1});
  const std::string name = "Tensorpull-Recipient: site-1\r\n", digest = "digest=" + hex(ref.version),
                    last = "Range: bytes=" + std::to_string(image.size() / 2) + "-\r\n",
                    before = "Range: bytes=0-" + std::to_string(image.size() - 2) + "\r\n";
  auto c = connect();
  EXPECT_EQ(confirm(c, digest, name).status, 409);  // nothing was sent to it
  EXPECT_EQ(c.ask("GET", ref, name + before).status, 206);
  EXPECT_EQ(confirm(c, digest, name).status, 409);  // the last byte was not
  auto nameless = connect();
  EXPECT_EQ(nameless.ask("GET", ref, last).status, 206);
  EXPECT_EQ(confirm(nameless, digest).status, 409);  // an owner before this one cannot have known it
  const std::string other = "Tensorpull-Recipient: site-2\r\n";
  EXPECT_EQ(c.ask("GET", ref, other + last).status, 206);
  EXPECT_EQ(confirm(c, "", other).status, 409);
  EXPECT_EQ(confirm(c, "digest=0000000000000001", other).status, 409);
  EXPECT_EQ(owner->recipient_of(ref, tp::recipient_named("site-2"))->state, tp::recipient_state::acquired);
  EXPECT_EQ(confirm(c, digest, other).body, "completed\n");
  EXPECT_EQ(confirm(c, digest, other).body, "completed\n");  // a repeated one gets the same answer
  thread->stop();
  EXPECT_EQ(owner->settlement_of(ref)->verdict, tp::verdict::completed);
}

TEST_F(HttpOwner, Who_cancels_and_goes_on_under_its_name_needs_no_digest_if_the_rest_makes_it_every_byte) {
  publish({.recipients = 2});
  const std::string name = "Tensorpull-Recipient: site-1\r\n", half = std::to_string(image.size() / 2);
  auto c = connect();
  EXPECT_EQ(c.ask("GET", ref, name + "Range: bytes=0-" + half + "\r\n").status, 206);
  c.say(post(path_of(ref) + "/cancel", ref, "", name));
  EXPECT_EQ(c.hear().status, 200);
  EXPECT_EQ(c.ask("GET", ref, name + "Range: bytes=" + half + "-\r\n").status, 206);
  EXPECT_EQ(confirm(c, "", name).body, "completed_unverified\n");
}

TEST_F(HttpOwner, Another_digest_is_a_failure_and_none_is_not_verified) {
  publish({.recipients = 3});
  auto c = connect();
  const std::string a = "Tensorpull-Recipient: a\r\n", b = "Tensorpull-Recipient: b\r\n",
                    d = "Tensorpull-Recipient: d\r\n";
  for (const auto& who : {a, b, d}) EXPECT_EQ(c.ask("GET", ref, who).status, 200);
  EXPECT_EQ(confirm(c, "digest=0000000000000001", a).body, "digest_mismatch\n");
  EXPECT_EQ(confirm(c, "", b).body, "completed_unverified\n");
  EXPECT_EQ(confirm(c, "digest=12", d).status, 400);
  // it says two things
  EXPECT_EQ(confirm(c, "digest=0000000000000001", d + "Repr-Digest: xxh3=:AAAAAAAAAAI=:\r\n").status, 400);
  c.say(post(path_of(ref) + "/cancel", ref, "", d));
  EXPECT_EQ(c.hear().status, 200);
  thread->stop();
  const auto s = *owner->settlement_of(ref);
  EXPECT_EQ(s.verdict, tp::verdict::failed);
  EXPECT_EQ(s.counts.failed, 1u);
  EXPECT_EQ(s.counts.completed_unverified, 1u);
  EXPECT_EQ(s.counts.cancelled, 1u);
}

TEST_F(HttpOwner, A_door_of_its_own_is_over_the_same_references_and_speaks_nothing_else) {
  auto native = plain::downloader::open();
  ASSERT_TRUE(native);
  auto door = tp::open_http_door(*native, std::string_view("127.0.0.1:0"));
  ASSERT_TRUE(door);
  const auto r = *native->add_tensors(*source, {.recipients = 2});
  serving both(*native);
  const auto mine = blank<mlp>();
  ASSERT_TRUE(plain::download_tensors(local(native->port()), r, *mine));
  http_client c(door->port());
  EXPECT_TRUE(c.ask("GET", r).body == image);
  c.say(post(path_of(r) + "/confirm", r, "digest=" + hex(r.version)));
  EXPECT_EQ(c.hear().status, 200);
  http_client wrong(native->port());  // the port of frames answers no requests
  wrong.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_TRUE(wrong.peer().hear(100).empty());
  const auto refused = plain::download_tensors(local(door->port()), r, *mine);
  EXPECT_FALSE(refused);
  EXPECT_EQ(door->counts().answers(200), 2u);
  both.stop();
  EXPECT_EQ(native->settlement_of(r)->verdict, tp::verdict::completed);
}

TEST_F(HttpOwner, Connections_are_kept_and_requests_may_wait_in_line) {
  publish();
  auto c = connect();
  const std::string one = get(path_of(ref), "Range: bytes=0-9\r\n"), two = get(path_of(ref), "Range: bytes=10-19\r\n"),
                    last = get(path_of(ref), "Connection: close\r\nRange: bytes=20-29\r\n");
  c.say(one + two + "\r\n" + one + last);
  EXPECT_EQ(c.hear().body, image.substr(0, 10));
  EXPECT_EQ(c.hear().body, image.substr(10, 10));
  EXPECT_EQ(c.hear().body, image.substr(0, 10));
  const auto a = c.hear();
  EXPECT_EQ(a.body, image.substr(20, 10));
  EXPECT_EQ(a.at("Connection"), "close");
  EXPECT_TRUE(c.hear_end());
  auto old = connect();
  old.say("GET " + path_of(ref) + " HTTP/1.0\r\nAuthorization: Bearer " + key_of(ref) + "\r\n\r\n");
  EXPECT_TRUE(old.hear().body == image);
  EXPECT_TRUE(old.hear_end());
}

TEST_F(HttpOwner, Who_waits_for_100_is_told_to_go_on) {
  publish();
  auto c = connect();
  c.ask("GET", ref);
  c.say(http_client::request("POST", path_of(ref) + "/confirm", ref, "Content-Length: 23\r\nExpect: 100-continue\r\n"));
  const std::string go = "HTTP/1.1 100 Continue\r\n\r\n";
  const auto heard = c.peer().hear(go.size());
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(heard.data()), heard.size()), go);
  c.say("digest=" + hex(ref.version) + get(path_of(ref), "Range: bytes=0-1\r\n"));
  EXPECT_EQ(c.hear().body, "completed\n");
  EXPECT_EQ(c.hear().body, image.substr(0, 2));
}

TEST_F(HttpOwner, Metrics_are_off_unless_asked_for_and_name_no_reference) {
  publish();
  auto c = connect();
  const std::string page = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
  c.say(page);
  EXPECT_EQ(c.hear().status, 404);
  thread->stop();
  owner->shared().options.metrics = true;
  thread.emplace(*owner);
  c.ask("GET", ref);
  confirm(c, "digest=" + hex(ref.version));
  c.say(page);
  const auto m = c.hear();
  EXPECT_EQ(m.status, 200);
  for (const std::string& line :
       {std::string("tensorpull_references 1"), std::string("tensorpull_recipients{state=\"completed\"} 1"),
        "tensorpull_http_sent_bytes_total " + std::to_string(image.size()),
        "tensorpull_sent_bytes_total " + std::to_string(image.size()), std::string("tensorpull_http_connections 1"),
        std::string("tensorpull_transfers_total{outcome=\"completed\"} 1"),
        std::string("tensorpull_http_responses_total{code=\"404\"} 1")})
    EXPECT_NE(m.body.find("\n" + line + "\n"), m.body.npos) << line;
  EXPECT_EQ(m.body.find(key_of(ref)), m.body.npos);
}

TEST_F(HttpOwner, Health_needs_no_key_and_says_nothing_of_what_is_published) {
  thread.emplace(*owner);  // nothing is published yet
  auto c = connect();
  const std::string ask = " /healthz HTTP/1.1\r\nHost: a\r\n\r\n";
  c.say("GET" + ask);
  const auto before = c.hear();
  EXPECT_EQ(before.status, 200);
  EXPECT_EQ(before.body, "ok\n");
  EXPECT_EQ(before.at("Cache-Control"), "no-store");
  thread->stop();
  publish();
  auto later = connect();
  later.say("GET" + ask);
  EXPECT_EQ(later.hear().body, "ok\n");
  later.say("HEAD" + ask);
  EXPECT_EQ(later.hear(true).status, 200);
  later.say("POST /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(later.hear().status, 405);
  thread->stop();
  EXPECT_EQ(owner->status_of(ref)->acquired, 0u);
}

TEST_F(HttpOwner, Who_may_not_have_it_hears_the_same_as_of_what_nobody_knows_and_no_cache_may_share_it) {
  const auto may = [](const tp::access_request& r) { return r.recipient == tp::recipient_named("friend"); };
  auto asking = net::downloader::open({.host = {.authorise = may}});
  ASSERT_TRUE(asking);
  const auto r = *asking->add_tensors(*source);
  serving running(*asking);
  http_client c(asking->port());
  tp::reference unknown = r;
  unknown.id.high ^= 1;
  const auto refused = c.ask("GET", r, "Tensorpull-Recipient: stranger\r\n"),
             nobody = c.ask("GET", unknown, "Tensorpull-Recipient: friend\r\n");
  EXPECT_EQ(refused.status, 404);
  EXPECT_EQ(refused.body, nobody.body);
  const auto given = c.ask("GET", r, "Tensorpull-Recipient: friend\r\n");
  EXPECT_TRUE(given.body == image);
  EXPECT_EQ(given.at("Cache-Control"), "private, max-age=31536000, immutable");
}

TEST_F(HttpOwner, What_is_withdrawn_is_gone_and_a_transfer_that_had_begun_is_cut) {
  publish();
  auto c = connect();
  ASSERT_EQ(c.ask("HEAD", ref).status, 200);
  thread->stop();
  ASSERT_TRUE(owner->withdraw(ref));
  thread.emplace(*owner);
  EXPECT_EQ(c.ask("GET", ref).status, 410);
}

TEST_F(HttpOwner, One_connection_may_fetch_more_references_than_it_may_pull_at_a_time) {
  std::vector<tp::reference> refs;
  for (int i = 0; i < 12; ++i) refs.push_back(*owner->add_tensors(*source));
  thread.emplace(*owner);
  auto c = connect();
  for (const auto& r : refs) EXPECT_EQ(c.ask("GET", r).status, 200);
}

}  // namespace http_owner_test
