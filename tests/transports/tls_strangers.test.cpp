// Connections that shake no hands, before a listener that a program waits at and before a host.
#include "certificates.hpp"
#include "network.hpp"
#include "support/clocks.hpp"
#include "support/strangers.hpp"

#include <tensorpull/core/describe.hpp>
#include <tensorpull/transports/host/detail/handshake_turns.hpp>
#include <tensorpull/transports/over/tls/tls.hpp>

#include <openssl/ssl.h>

#include <deque>
#include <set>

namespace tls_strangers_test {

using namespace test;

struct door {
  identity authority{{.common_name = "authority", .alternatives = {}, .authority = true}};
  identity server{{.common_name = "127.0.0.1"}, &authority};
  std::string certificate = server.certificate(), key = server.key(), authorities = authority.certificate();
  tp::tls_context own = *tp::tls_context::make({.certificate = {.text = certificate}, .key = {.text = key}});
  tp::tls_context theirs = *tp::tls_context::make({.authorities = {.text = authorities}});
  tp::tls_listener listener = *tp::tls_address{any_port, own}.listen();

  std::vector<raw_peer> silent(int count) const {
    std::vector<raw_peer> out;
    for (int i = 0; i < count; ++i) out.emplace_back(listener.port());
    return out;
  }
  /// An honest client, on a thread of its own.
  struct client {
    explicit client(const door& d)
        : thread([&] { in = tp::tls_address{local(d.listener.port()), d.theirs}.connect(300s); }) {}
    void expect_in() {
      thread.join();
      EXPECT_TRUE(succeeded(in));
    }
    tp::result<tp::tls_connection> in = tp::failure(errc::timed_out);
    joined_thread thread;
  };
};

void expect_in(int strangers, std::chrono::milliseconds each) {
  door d;
  auto silent = d.silent(strangers);
  const fast_clock fast(5);
  door::client honest(d);
  auto in = d.listener.accept(each);
  for (int i = 0; i < 300 && !in && in.error() == errc::timed_out; ++i) in = d.listener.accept(each);
  ASSERT_TRUE(succeeded(in));
  honest.expect_in();
  for (auto& s : silent) EXPECT_FALSE(s.ended()) << "nobody had to wait until it was given up";
}

TEST(TlsStrangers, One_that_says_nothing_keeps_nobody_out) { expect_in(1, 100s); }
TEST(TlsStrangers, A_handshake_goes_on_with_the_next_call) { expect_in(20, 1ms); }

TEST(TlsStrangers, Those_that_say_nothing_stay_as_long_as_nobody_else_waits) {
  door d;
  auto silent = d.silent(static_cast<int>(tp::tls_listener::most_at_once));
  const fast_clock fast(5);
  EXPECT_EQ(code_of(d.listener.accept(2s)), errc::timed_out);
  std::byte b;
  for (auto& s : silent) {
    EXPECT_EQ(read_some(s.stream(), std::span(&b, 1)).status, tp::io_status::would_block);
  }
}

TEST(TlsStrangers, One_that_speaks_no_tls_is_an_error_of_its_own_and_the_next_call_goes_on) {
  door d;
  auto silent = d.silent(2);
  raw_peer stranger(d.listener.port());
  ASSERT_TRUE(stranger.say("GET / HTTP/1.1\r\n\r\n"));
  EXPECT_EQ(code_of(d.listener.accept(20s)), errc::handshake_failed);
  door::client honest(d);
  EXPECT_TRUE(d.listener.accept(20s));
  honest.expect_in();
}

// All on one thread: the time that an honest client waits is this test's own.
TEST(TlsStrangers, Beside_each_of_the_list_an_accept_lets_a_client_in_within_seconds_and_ends_the_others) {
  const slow_clock slow(1000);
  constexpr std::size_t most = tp::tls_listener::most_at_once;
  for (const stranger_habit& habit : stranger_habits()) {
    SCOPED_TRACE(habit.name);
    door d;
    const std::size_t none = descriptors();
    crowd strangers([&] { return raw_peer(d.listener.port()); }, habit, 2 * most + 2);
    tp::result<tp::tls_connection> in = tp::failure(errc::timed_out);
    const auto accept_all = [&] {
      for (;;) {
        auto one = d.listener.accept(0ms);
        if (one) in = std::move(one);
        else if (one.error() == errc::timed_out) return;
      }
    };
    strangers.act();
    accept_all();
    auto to = tp::tcp_connect(local(d.listener.port()), steady_clock::now() + 10s);
    auto honest = tp::tls_connection::client(std::move(*to), d.theirs, "127.0.0.1");
    ASSERT_TRUE(succeeded(honest));
    for (auto waited = 0ms; !in; waited += 100ms, pass_time(100ms)) {
      ASSERT_LE(waited, 6s) << "each has a second if others wait, and 64 have it at a time";
      strangers.act();
      (void)honest->establish();
      accept_all();
      EXPECT_LE(descriptors(), none + 2 * most + 2 + most + 2);
      be_slow(1ms);  // the system's own work
    }
    for (int second = 0; second < 16; ++second) {
      pass_time(1s);
      accept_all();
    }
    EXPECT_EQ(strangers.left(), 0u) << "each has ten seconds if nobody waits";
  }
}

/// What a client says first.
std::string client_hello() {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()), &SSL_CTX_free);
  const std::unique_ptr<SSL, decltype(&SSL_free)> client(SSL_new(context.get()), &SSL_free);
  SSL_set_bio(client.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
  (void)SSL_connect(client.get());
  char* bytes = nullptr;
  const auto n = BIO_get_mem_data(SSL_get_wbio(client.get()), &bytes);
  return {bytes, static_cast<std::size_t>(n)};
}
constexpr std::size_t most = tp::tls::most_handshakes, count = most + 60;
/// That many connections to a host, each of which says this and no more.
std::vector<raw_peer> begin_handshakes(std::uint16_t port, std::string_view first) {
  std::vector<raw_peer> out;
  for (std::size_t i = 0; i < count; ++i) {
    out.emplace_back(port);
    EXPECT_TRUE(out.back().say(first));
  }
  return out;
}
using net = raw_net<mlp, tp::tls>;

// Each handshake takes 272 KiB of a host at most.
TEST(TlsStrangers, A_host_shakes_hands_with_so_many_at_a_time) {
  const slow_clock slow(1000);
  const door d;
  auto owner = *net::downloader::open(tp::tls_address{any_port, d.own});
  const auto source = random_model<mlp>(1);
  (void)*owner.add_tensors(*source);
  const serving server(owner);
  auto begun = begin_handshakes(owner.port(), client_hello());
  const auto answered = [&] {
    return std::count_if(begun.begin(), begun.end(), [](raw_peer& p) {
      char b;
      return ::recv(p.stream().native_handle(), &b, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
    });
  };
  EXPECT_TRUE(eventually("as many as may", [&] { return answered() >= std::ptrdiff_t{most}; }));
  be_slow(100ms);
  EXPECT_EQ(answered(), std::ptrdiff_t{most});
}
TEST(TlsStrangers, A_host_lets_in_a_recipient_beside_more_unfinished_handshakes_than_it_has_at_a_time) {
  const door d;
  auto owner = *net::downloader::open(tp::tls_address{any_port, d.own}, {.budgets = {.accept = 6000s}});
  const auto source = random_model<mlp>(1);
  const auto ref = *owner.add_tensors(*source);
  const serving server(owner);
  const auto begun = begin_handshakes(owner.port(), {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11});
  const fast_clock fast(10);
  const auto mine = blank<mlp>();
  const auto address = local(owner.port());
  const auto done = net::download_tensors(tp::tls_address{address, d.theirs}, ref, *mine, {.per_request_timeout = 60s});
  ASSERT_TRUE(succeeded(done));
  EXPECT_TRUE(same(*mine, *source));
}

using turns = tp::detail::handshake_turns;
/// Handshakes of some addresses with a host that has `most` at a time, in the order in which they were begun.
struct handshaking {
  turns all{most};
  steady_clock::time_point now = steady_clock::now();
  std::deque<turns::turn> of{};
  std::set<const turns::turn*> gone{};

  std::size_t begin(std::size_t n, std::uint8_t address) {
    std::size_t begun = 0;
    for (std::size_t i = 0; i < n; ++i) begun += all.begins(of.emplace_back(address), now);
    return begun;
  }
  std::size_t shaking(std::uint8_t address) {
    return static_cast<std::size_t>(std::count_if(of.begin(), of.end(), [&](auto& t) {
      return !gone.contains(&t) && t.neighbours() == address && all.begins(t, now);
    }));
  }
  /// Lets time pass; how many are ended.
  std::size_t wait(std::chrono::milliseconds time) {
    now += time;
    std::vector<turns::turn*> ended;
    all.make_room(now, [&](turns::turn& t) { ended.push_back(&t); });
    for (turns::turn* t : ended) (void)all.ends(*t, now);
    gone.insert(ended.begin(), ended.end());
    return ended.size();
  }
};

TEST(HandshakeTurns, All_of_one_address_have_three_seconds_each) {
  handshaking h;
  EXPECT_EQ(h.begin(320, 1), most);
  EXPECT_EQ(h.wait(2999ms), 0u);
  for (std::size_t i = 0; i < most; ++i) {
    const auto* const next = h.all.ends(h.of[i], h.now);
    EXPECT_EQ(next, i < 320 - most ? &h.of[most + i] : nullptr) << "the oldest that waits";
  }
  EXPECT_EQ(h.wait(600s), 0u) << "nobody waits";
}
TEST(HandshakeTurns, An_address_that_has_fewer_is_the_next) {
  handshaking h;
  h.begin(300, 1);
  h.begin(2, 2);
  EXPECT_EQ(h.all.ends(h.of[0], h.now), &h.of[300]);
  EXPECT_EQ(h.all.ends(h.of[301], h.now), nullptr) << "it has only waited";
  EXPECT_EQ(h.all.ends(h.of[1], h.now), &h.of[most]);
}
TEST(HandshakeTurns, Those_that_take_longer_make_room_for_each_that_waits_of_an_address_that_has_no_more) {
  handshaking h;
  h.begin(100, 1);
  h.begin(156, 2);
  h.begin(20, 2);
  EXPECT_EQ(h.wait(2999ms), 0u);
  EXPECT_EQ(h.wait(1ms), 20u);
  EXPECT_EQ(h.shaking(1), 100u) << "it has fewer than the one that waits";
  EXPECT_EQ(h.shaking(2), 156u);
  h.begin(200, 1);
  EXPECT_EQ(h.wait(3s), 100u + 29u) << "each for one, until it has fewer";
  EXPECT_EQ(h.shaking(1), 129u);
  EXPECT_EQ(h.shaking(2), 127u);
}

}  // namespace tls_strangers_test
