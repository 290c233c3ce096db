// Connections that shake no hands, before a listener that a program waits at.
#include "certificates.hpp"
#include "network.hpp"
#include "support/clocks.hpp"
#include "support/process_entries.hpp"

#include <tensorpull/core/describe.hpp>
#include <tensorpull/transports/over/tls/tls.hpp>

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
  if (silent.size() < tp::tls_listener::most_at_once) {
    for (auto& s : silent) EXPECT_FALSE(s.ended()) << "nobody had to wait until it was given up";
  }
}

TEST(TlsStrangers, One_that_says_nothing_keeps_nobody_out) { expect_in(1, 100s); }
TEST(TlsStrangers, More_than_may_shake_hands_at_a_time_make_room_if_they_say_nothing) {
  expect_in(3 * static_cast<int>(tp::tls_listener::most_at_once), 100s);
}
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

// Each handshake takes 272 KiB of a host at most.
TEST(TlsStrangers, A_host_shakes_hands_with_so_many_at_a_time_and_lets_in_a_recipient) {
  constexpr std::size_t most = tp::tls::most_handshakes, count = most + 60;
  door d;
  using net = raw_net<mlp, tp::tls>;
  const std::size_t before = descriptors();
  auto owner = *net::downloader::open(tp::tls_address{any_port, d.own}, {.budgets = {.accept = 600s}});
  const auto source = random_model<mlp>(1);
  const auto ref = *owner.add_tensors(*source);
  const serving server(owner);
  const std::size_t own = descriptors() - before;
  std::vector<raw_peer> begun;
  for (std::size_t i = 0; i < count; ++i) {
    begun.emplace_back(owner.port());
    ASSERT_TRUE(begun.back().say(std::string_view("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11)));
  }
  EXPECT_TRUE(eventually("as many as may", [&] { return descriptors() >= before + own + count + most; }));
  be_slow(100ms);
  EXPECT_LE(descriptors(), before + own + count + most);
  const fast_clock fast(10);
  const auto mine = blank<mlp>();
  const auto address = local(owner.port());
  const auto done = net::download_tensors(tp::tls_address{address, d.theirs}, ref, *mine,
                                          {.per_request_timeout = 600s});
  ASSERT_TRUE(succeeded(done));
  EXPECT_TRUE(same(*mine, *source));
}

}  // namespace tls_strangers_test
