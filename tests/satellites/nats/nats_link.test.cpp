#include <tensorpull/satellites/nats/nats_link.hpp>
#include <tensorpull/transports/over/tcp/tcp_listener.hpp>

#include "nats_fixture.hpp"
#include "support/sanitizers.hpp"
#include "support/threads.hpp"
#include "transports/network.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <thread>
#include <vector>

#if defined(TENSORPULL_TEST_ADDRESS_SANITIZER)
// libnats 3.4 does not free the first part of a message if the connection ends before the rest of it. The library is
// named and not its function: a library's name is known without a program that turns addresses into functions' names,
// and such a program need not be installed.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libnats\n"; }
#endif

namespace nats_link_test {

using namespace tensorpull;
using namespace std::chrono_literals;

using Nats = test::nats_test;

struct flag {
  const std::atomic<bool>* set;
  bool stop_requested() const { return *set; }
};

nats_server at(const std::string& url) { return {.url = url}; }

io_result send(nats_link& link, std::string_view text, const nats_subject& to) {
  const auto bytes = std::as_bytes(std::span(text));
  const std::span<const std::byte> halves[] = {bytes.first(bytes.size() / 2), bytes.subspan(bytes.size() / 2)};
  return link.send(halves, to);
}
/// The next datagram's text, and its sender; empty: none came in ten seconds.
std::string next(nats_link& link, nats_subject& from, std::size_t most = 64) {
  std::vector<std::byte> memory(most);
  for (int i = 0; i < 200; ++i) {
    if (const io_result io = link.receive(memory, from); io.status == io_status::ok)
      return {reinterpret_cast<const char*>(memory.data()), io.bytes};
    link.wait(true, false, 50ms);
  }
  return {};
}

TEST_F(Nats, Datagrams_go_to_an_inbox_and_back) {
  const test::nats_process server;
  const std::string url = server.url();
  auto a = nats_link::connect(at(url)), b = nats_link::connect(at(url));
  ASSERT_TRUE(a && b);
  EXPECT_EQ(a->datagram_bytes(), 1024u * 1024);
  nats_subject from;
  std::byte memory[8];
  EXPECT_EQ(a->receive(memory, from).status, io_status::would_block);
  EXPECT_EQ(send(*a, "question", b->inbox()).bytes, 8u);
  EXPECT_EQ(next(*b, from), "question");
  EXPECT_EQ(from, a->inbox());
  EXPECT_EQ(send(*b, "answer", from).status, io_status::ok);
  EXPECT_EQ(next(*a, from), "answer");
  EXPECT_EQ(from, b->inbox());
}

TEST_F(Nats, A_group_shares_what_is_sent_to_a_subject) {
  const test::nats_process server;
  const std::string url = server.url();
  const auto subject = nats_subject::any({1, 2});
  auto a = nats_link::connect(at(url), {}, 1), b = nats_link::connect(at(url), {}, 1), c = nats_link::connect(at(url));
  ASSERT_TRUE(a && b && c);
  for (nats_link* one : {&*a, &*b}) {
    ASSERT_TRUE(one->serve(subject, "owners"));
    ASSERT_TRUE(one->settle(subject, 10s, {}));
    EXPECT_EQ(one->serve(subject, "owners").error().code, errc::table_full);
  }
  for (int i = 0; i < 100; ++i) ASSERT_EQ(send(*c, "to one of you", subject).status, io_status::ok);
  ASSERT_EQ(send(*c, "end", a->inbox()).status, io_status::ok);
  ASSERT_EQ(send(*c, "end", b->inbox()).status, io_status::ok);
  int of[2] = {0, 0};
  nats_subject from;
  for (int i = 0; i < 2; ++i) {
    nats_link& one = i == 0 ? *a : *b;
    for (std::string text; (text = next(one, from)) != "";) {
      if (text == "end") {
        std::byte memory[64];
        while (one.receive(memory, from).status == io_status::ok) ++of[i];
        break;
      }
      ++of[i];
    }
  }
  EXPECT_EQ(of[0] + of[1], 100);
  EXPECT_GT(of[0], 0);
  EXPECT_GT(of[1], 0);
  a->stop_serving(subject);
  EXPECT_TRUE(a->serve(subject));
}

TEST_F(Nats, One_longer_than_the_memory_or_without_an_inbox_is_lost) {
  const test::nats_process server;
  const std::string url = server.url();
  auto a = nats_link::connect(at(url)), b = nats_link::connect(at(url));
  ASSERT_TRUE(a && b);
  natsConnection* stranger = nullptr;
  ASSERT_EQ(natsConnection_ConnectTo(&stranger, url.c_str()), NATS_OK);
  for (const char* reply : {"orders.new", "tensorpull.00000000000000010000000000000002.any", "_INBOX.short"})
    ASSERT_EQ(natsConnection_PublishRequest(stranger, b->inbox().c_str(), reply, "x", 1), NATS_OK);
  ASSERT_EQ(natsConnection_Publish(stranger, b->inbox().c_str(), "x", 1), NATS_OK);
  ASSERT_EQ(natsConnection_Flush(stranger), NATS_OK);
  natsConnection_Destroy(stranger);
  send(*a, "nine bytes and more", b->inbox());
  send(*a, "short", b->inbox());
  nats_subject from;
  EXPECT_EQ(next(*b, from, 8), "short");
  EXPECT_EQ(from, a->inbox());
}

TEST_F(Nats, Large_datagrams_arrive_whole) {
  const test::nats_process server;
  const std::string url = server.url();
  auto a = nats_link::connect(at(url)), b = nats_link::connect(at(url));
  ASSERT_TRUE(a && b);
  std::string text(a->datagram_bytes(), '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * i >> 7);
  nats_subject from;
  for (int i = 0; i < 8; ++i) {
    io_result io = send(*a, text, b->inbox());
    while (io.status == io_status::would_block) a->wait(false, true, 1s), io = send(*a, text, b->inbox());
    ASSERT_EQ(io.bytes, text.size());
    while (!b->wait(true, false, 1ms).read) a->wait(false, true, 1ms);
    ASSERT_EQ(next(*b, from, text.size()), text);
  }
  text.push_back('x');
  const io_result dropped = send(*a, text, b->inbox());
  EXPECT_EQ(dropped.status, io_status::ok);
  EXPECT_EQ(dropped.bytes, 0u);
}

TEST_F(Nats, The_server_may_be_started_again_with_a_smaller_limit) {
  test::nats_process server;
  const std::string url = server.url();
  const auto subject = nats_subject::coordinator({3, 4});
  auto a = nats_link::connect(at(url)), b = nats_link::connect(at(url), {}, 1);
  ASSERT_TRUE(a && b && b->serve(subject) && b->settle(subject, 10s, {}));
  server.kill();
  while (!a->away() || !b->away()) a->wait(true, false, 10ms), b->wait(true, false, 10ms);
  EXPECT_EQ(send(*a, "into the void", b->inbox()).bytes, 0u);
  EXPECT_TRUE(a->wait(false, true, 1s).write);
  server.start("max_payload: 65536");
  while (a->away() || b->away()) a->wait(true, false, 10ms), b->wait(true, false, 10ms);
  EXPECT_EQ(a->datagram_bytes(), 65536u);
  ASSERT_TRUE(b->settle(subject, 10s, {}));
  send(*a, "hello again", subject);
  nats_subject from;
  EXPECT_EQ(next(*b, from), "hello again");
}

// The server ends the connection of one that does not read. What was under way is lost, and it goes on over another.
TEST_F(Nats, Slow_consumers_lose_datagrams_and_go_on) {
  const test::nats_process server("max_pending: 2097152\nwrite_deadline: \"200ms\"");
  const std::string url = server.url();
  auto a = nats_link::connect(at(url)), b = nats_link::connect(at(url));
  ASSERT_TRUE(a && b);
  const std::string text(1000 * 1000, 'z');
  nats_subject from;
  std::span<const std::byte> one;
  // b does not read for longer and longer, until the server has had enough
  std::size_t sent = 0, came = 0;
  for (auto pause = 500ms; sent == came && pause < 60s; pause *= 2) {
    for (int i = 0; i < 64; ++i) a->wait(false, true, 1s), sent += send(*a, text, b->inbox()).bytes;
    test::be_slow(pause);
    for (int quiet = 0; quiet < 10;) {
      const io_result io = b->receive_in_place(one, from);
      came += io.bytes;
      quiet = io.status == io_status::ok || b->wait(true, false, 50ms).read ? 0 : quiet + 1;
    }
  }
  EXPECT_LT(came, sent);
  const auto settled = b->settle(b->inbox(), 10s, {});
  ASSERT_TRUE(settled) << to_string(settled.error().code);
  while (b->receive_in_place(one, from).status == io_status::ok) {
  }
  send(*a, "still here", b->inbox());
  EXPECT_EQ(next(*b, from), "still here");
}

TEST_F(Nats, Refusals_have_names) {
  const test::nats_process server(R"(authorization { users = [
    {user: good, password: right}
    {user: deaf, password: right, permissions: {subscribe: {deny: "_INBOX.>"}}}
    {user: alice, password: right, permissions: {subscribe: {allow: ["_INBOX_alice.>"]}}} ] })");
  const auto code = [](std::string url) { return nats_link::connect({.url = url}).error().code; };
  EXPECT_TRUE(nats_link::connect(at(server.url("good:right"))));
  EXPECT_EQ(code(server.url("good:wrong")), errc::not_permitted);
  EXPECT_EQ(code(server.url()), errc::not_permitted);
  EXPECT_EQ(code(server.url("deaf:right")), errc::not_permitted);
  const test::own_port nobody;
  EXPECT_EQ(code("nats://127.0.0.1:" + std::to_string(nobody)), errc::connection_failed);
  EXPECT_EQ(code(""), errc::bad_address);
  EXPECT_EQ(code(","), errc::bad_address);
  EXPECT_EQ(code("nats://127.0.0.1:port"), errc::bad_address);
  for (const std::string_view url : {"nats://alice:secret@127.0.0.1:4222,", "nats://alice:secret@nohost.invalid:1"}) {
    const auto link = nats_link::connect({.url = url});
    ASSERT_FALSE(link) << url;
    EXPECT_EQ(link.error().name.view().find("secret"), std::string_view::npos) << link.error().name.view();
  }
  EXPECT_EQ(code(std::string(2000, 'x')), errc::bad_address);
  const std::string alice = server.url("alice:right");
  EXPECT_EQ(nats_link::connect({.url = alice}).error().code, errc::not_permitted);
  auto own = nats_link::connect({.url = alice, .inbox = "_INBOX_alice"}, {}, 1);
  ASSERT_TRUE(own);
  const auto subject = nats_subject::any({5, 6});
  ASSERT_TRUE(own->serve(subject));
  const auto refused = own->settle(subject, 10s, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, errc::not_permitted);
}

TEST_F(Nats, A_server_may_be_waited_for_without_end) {
  const test::nats_process server;
  const std::string answers = server.url();
  nats_server there = at(answers);
  there.timeout = std::chrono::milliseconds::max();
  EXPECT_TRUE(nats_link::connect(there));
  auto silent = tcp_listener::open("127.0.0.1:0");
  ASSERT_TRUE(silent);
  const std::string url = "nats://127.0.0.1:" + std::to_string(silent->port());
  nats_server where = at(url);
  where.timeout = std::chrono::milliseconds::max();
  std::atomic<bool> stop{false};
  test::joined_thread later([&] { test::be_slow(200ms), stop = true; });
  EXPECT_EQ(nats_link::connect(where, flag{&stop}).error().code, errc::cancelled);
}

TEST_F(Nats, A_user_that_may_publish_to_no_inbox_is_let_in_and_hears_that_it_may_not_publish) {
  const test::nats_process server(R"(authorization { users = [
    {user: site, password: s, permissions: {publish: ["tensorpull.>"], subscribe: ["_INBOX.>"]}}
    {user: mute, password: s, permissions: {publish: {deny: ">"}, subscribe: {deny: ">"}}} ] })");
  const std::string url = server.url("site:s"), mute = server.url("mute:s");
  auto site = nats_link::connect(at(url));
  ASSERT_TRUE(site) << to_string(site.error().code);
  EXPECT_EQ(nats_link::connect(at(mute)).error().code, errc::not_permitted);
  const auto elsewhere = *nats_subject::of("elsewhere");
  EXPECT_FALSE(site->may_not_publish(elsewhere));
  send(*site, "hello", elsewhere);
  ASSERT_TRUE(site->settle(site->inbox(), 10s, {}));
  send(*site, "hello", elsewhere);
  EXPECT_TRUE(test::eventually("the server complains", [&] {
    site->wait(true, false, 10ms);
    nats_subject from;
    std::byte memory[8];
    (void)site->receive(memory, from);
    return site->may_not_publish(elsewhere);
  }));
}

/// A server that permits nothing. Its answers to one read are one write, but for a pause after each that `cut` is true
/// of.
class refusing_server {
 public:
  template <class Cut>
  explicit refusing_server(Cut cut)
      : thread_([this, cut](const std::stop_token& stop) mutable {
          while (!stop.stop_requested())
            if (auto peer = listener_.next(20ms)) serve(*peer, cut, stop);
        }) {}
  std::string url() const { return "nats://" + test::local(listener_.port()); }

 private:
  template <class Cut>
  static void serve(test::raw_peer& peer, Cut& cut, const std::stop_token& stop) {
    std::string told, answers;
    const auto flush = [&] { return answers.empty() || peer.say(std::exchange(answers, {})); };
    bool there = peer.say(
        "INFO {\"server_id\":\"x\",\"version\":\"2.9.0\",\"host\":\"127.0.0.1\",\"port\":4222,\"max_payload\":1024,\"proto\":1}"
        "\r\n");
    while (there && !stop.stop_requested()) {
      std::array<std::byte, 4096> piece;
      const auto io = test::read_some(peer.stream(), piece);
      there = !is_end(io.status);
      told.append(reinterpret_cast<const char*>(piece.data()), io.bytes);
      for (std::size_t end; there && (end = told.find("\r\n")) != told.npos; told.erase(0, end + 2)) {
        const auto line = std::string_view(told).substr(0, end);
        const bool subscribes = line.starts_with("SUB ");
        if (line == "PING") answers += "PONG\r\n";
        if (!subscribes && !line.starts_with("PUB ")) continue;
        answers += std::string("-ERR 'Permissions Violation for ") + (subscribes ? "Subscription" : "Publish") +
                   " to \"" + std::string(line.substr(4, line.find(' ', 4) - 4)) + "\"'\r\n";
        if (!cut(subscribes)) continue;
        there = flush();
        test::be_slow(20ms);
      }
      there = there && flush();
      if (io.bytes == 0) peer.stream().wait(true, false, 20ms);
    }
  }

  test::raw_listener listener_;
  test::joined_thread thread_;
};

TEST_F(Nats, A_user_that_may_do_nothing_is_refused_wherever_the_answers_are_cut) {
  const auto code = [](auto cut) {
    const refusing_server server(cut);
    const std::string url = server.url();
    const auto link = nats_link::connect(at(url));
    return link ? errc{} : link.error().code;
  };
  EXPECT_EQ(code([](bool) { return false; }), errc::not_permitted) << "all at once";
  EXPECT_EQ(code([](bool) { return true; }), errc::not_permitted) << "each alone";
  for (const int cuts : {1, 2})
    EXPECT_EQ(code([left = cuts](bool subscribes) mutable { return !subscribes && left-- > 0; }), errc::not_permitted)
        << "after the first refusals of a message, so that no subscription's has been read yet: " << cuts;
}

TEST_F(Nats, A_password_is_written_as_URLs_write_it) {
  const test::nats_process server(R"(authorization { users = [ {user: "a:b", password: "p@ss:w/rd%"} ] })");
  const auto code = [](std::string url) {
    const auto link = nats_link::connect({.url = url});
    return link ? errc{} : link.error().code;
  };
  EXPECT_EQ(code(server.url("a%3Ab:p%40ss%3aw%2Frd%25")), errc{});
  for (const std::string_view wrong : {"a%3Ab:p%40ss%3aw%2Frd%2", "a%3Ab:p%40ss%3aw%2Frd%", "a:%zz", "a:%00"})
    EXPECT_EQ(code(server.url(wrong)), errc::bad_address) << wrong;
  const test::nats_process token("authorization { token: \"t@ken\" }");
  EXPECT_EQ(code(token.url("t%40ken")), errc{});
  EXPECT_EQ(code(token.url("token")), errc::not_permitted);
}

TEST_F(Nats, A_server_is_read_with_its_inboxes_and_credentials) {
  const auto both = nats_server::of("nats://u:p@h:1,nats://g:2?inbox=_INBOX_me&credentials=/a/b.creds");
  ASSERT_TRUE(both);
  EXPECT_EQ(both->url, "nats://u:p@h:1,nats://g:2");
  EXPECT_EQ(both->inbox, "_INBOX_me");
  EXPECT_EQ(both->credentials, "/a/b.creds");
  const auto one = nats_server::of("nats://h:1?credentials=c"), none = nats_server::of("nats://h:1");
  ASSERT_TRUE(one && none);
  EXPECT_EQ(one->inbox, nats_subject::inbox_begin);
  EXPECT_EQ(one->credentials, "c");
  EXPECT_TRUE(none->credentials.empty());
  for (const std::string_view wrong : {"nats://h:1?", "nats://h:1?inbox", "nats://h:1?inbox=", "nats://h:1?creds=x",
                                       "nats://h:1?inbox=a&", "nats://h:1?inbox=a&&inbox=b"})
    EXPECT_EQ(nats_server::of(wrong).error(), errc::bad_address) << wrong;
}

TEST_F(Nats, Settling_hears_a_stop_request_and_an_end) {
  const test::nats_process server;
  const std::string url = server.url();
  auto a = nats_link::connect(at(url));
  ASSERT_TRUE(a);
  server.freeze();
  const std::atomic<bool> stop{true};
  EXPECT_EQ(a->settle(a->inbox(), 10s, flag{&stop}).error().code, errc::cancelled);
  EXPECT_EQ(a->settle(a->inbox(), 20ms, {}).error().code, errc::timed_out);
  server.thaw();
}

}  // namespace nats_link_test
