// What a network, a stranger or a broken peer does to a TLS connection: group X of the fault catalogue, and more.
#include "certificates.hpp"
#include "network.hpp"

#include <tensorpull/core/describe.hpp>
#include <tensorpull/transports/over/tls/tls.hpp>

#include <sys/resource.h>
#include <csignal>
#include <stop_token>

namespace tls_faults_test {

using namespace test;
using net = tp::pipeline<tp::raw_tensors<large>, tp::fixed_bytes<256_KiB>, tp::tls>;

using bytes = byte_vector;

/// Passes bytes between a client and a server: it can change, record and cut them.
class relay {
 public:
  explicit relay(std::uint16_t to) : to_(to), listener_(*tp::tcp_listener::open(any_port)) {}
  std::uint16_t port() const { return listener_.port(); }

  std::size_t flip_at = ~std::size_t{0};  ///< this byte from the server has another bit
  std::size_t cut_at = ~std::size_t{0};   ///< the server's side ends after so many of its bytes
  bytes from_client{};                    ///< what it has said; to be read after the end
  void join() { thread_.join(); }

 private:
  void run(const std::stop_token& stop) {
    auto client = listener_.accept(20s);
    auto server = tp::tcp_connect(local(to_), steady_clock::now() + 10s);
    if (!client || !server) return;
    std::size_t passed = 0;
    bytes room(65536);
    while (!stop.stop_requested()) {
      bool moved = false;
      for (const bool up : {true, false}) {
        auto& from = up ? *client : *server;
        auto& to = up ? *server : *client;
        const auto io = read_some(from, room);
        if (tp::is_end(io.status)) return;  // both end
        if (io.bytes == 0) continue;
        moved = true;
        byte_span got(room.data(), io.bytes);
        if (up) from_client.insert(from_client.end(), got.begin(), got.end());
        if (!up && flip_at >= passed && flip_at < passed + got.size()) got[flip_at - passed] ^= std::byte{4};
        if (!up && cut_at < passed + got.size()) got = got.first(cut_at > passed ? cut_at - passed : 0);
        if (!up) passed += got.size();
        while (!got.empty()) {
          const auto sent = write_some(to, got);
          if (tp::is_end(sent.status)) return;
          got = got.subspan(sent.bytes);
          if (sent.bytes == 0) to.wait(false, true, 10ms);
        }
        if (!up && passed >= cut_at) {  // an end, and no reset: what the client still says is read
          (void)::shutdown(client->native_handle(), SHUT_WR);
          while (!stop.stop_requested() && !tp::is_end(read_some(*client, room).status))
            client->wait(true, false, 10ms);
          return;
        }
      }
      if (!moved) client->wait(true, false, 1ms);
    }
  }
  std::uint16_t to_;
  tp::tcp_listener listener_;
  joined_thread thread_{[this](const std::stop_token& stop) { run(stop); }};
};

/// An owner of a large model over TLS.
struct owning {
  explicit owning(tp::tls_options with = {}, tp::host_options limits = {}) {
    owner = net::downloader::open(p.here(with), limits);
    EXPECT_TRUE(owner);
    ref = *owner->add_tensors(*source);
    thread.emplace(*owner);
  }
  tp::result<tp::receipt> pull(std::uint16_t port, large& to, std::uint32_t retries = 0) const {
    const std::string where = local(port);
    return net::download_tensors(tp::tls_address{where, client}, ref, to,
                                 {.per_request_timeout = 20s, .retry = {.retries = retries, .first_delay = 1ms}});
  }
  pki p;
  std::unique_ptr<large> source = random_model<large>(7);
  tp::result<net::downloader> owner = tp::failure(errc::io);
  tp::reference ref{};
  tp::tls_context client = p.calling();
  std::optional<serving> thread;
};

TEST(TlsFaults, X1_an_end_without_notice_is_truncated_and_never_complete) {
  const owning o;
  for (const std::size_t at : {5'000'000u, 5'000'001u, 9'000'000u}) {
    const auto mine = blank<large>();
    relay r(o.owner->port());
    r.cut_at = at;
    const auto done = o.pull(r.port(), *mine);
    ASSERT_EQ(code_of(done), errc::truncated);
    EXPECT_GT(done.error().at, 0u);
    EXPECT_FALSE(same(*mine, *o.source));
  }
}

TEST(TlsFaults, X1_a_notice_is_an_orderly_end_and_a_silent_one_at_a_records_end_is_not) {
  const pki p;
  auto listener = p.here().listen();
  ASSERT_TRUE(listener);
  for (const bool notice : {true, false}) {
    relay r(listener->port());
    std::string text = local(r.port());
    joined_thread server([&] {
      auto s = listener->accept(10s);
      ASSERT_TRUE(s);
      const std::array<std::byte, 100> some{};
      EXPECT_EQ(write_some(*s, some).bytes, some.size());
      if (!notice)
        (void)::shutdown(s->native_handle(), SHUT_WR);  // the record has left whole, and nothing comes after it
    });
    auto s = tp::tls_address{text, p.calling()}.connect(10s);
    ASSERT_TRUE(s);
    std::array<std::byte, 200> room{};
    std::size_t got = 0;
    tp::io_result io{tp::io_status::would_block, 0, 0};
    while (!tp::is_end(io.status)) {
      s->wait(true, false, 50ms);
      io = read_some(*s, room);
      got += io.bytes;
    }
    EXPECT_EQ(got, 100u);
    EXPECT_EQ(io.status, notice ? tp::io_status::closed : tp::io_status::truncated);
    EXPECT_EQ(read_some(*s, room).status, io.status);  // and so it stays
  }
}

TEST(TlsFaults, X2_stalled_handshakes_end_with_their_budget_and_do_not_stop_good_clients) {
  tp::host_options limits;
  limits.budgets.accept = 1500ms;
  owning o({}, limits);
  // the first bytes of a hello that goes on, at each length
  std::vector<raw_peer> stalled;
  const std::string hello("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);
  for (std::size_t i = 0; i < 200; ++i) {
    stalled.emplace_back(o.owner->port());
    EXPECT_TRUE(stalled.back().say(std::string_view(hello).substr(0, i % 12)));
  }
  for (int i = 0; i < 2; ++i) {
    const auto mine = blank<large>();
    EXPECT_TRUE(o.pull(o.owner->port(), *mine));
    EXPECT_TRUE(same(*mine, *o.source));
  }
  for (auto& s : stalled) EXPECT_TRUE(s.hear_end());
  o.thread->stop();
  EXPECT_EQ(o.owner->connections(), 0u);
}

TEST(TlsFaults, X2_a_server_that_stalls_at_a_flight_costs_a_client_its_time_and_no_more) {
  auto silent = tp::tcp_listener::open(any_port);
  ASSERT_TRUE(silent);
  const pki p;
  const std::string text = local(silent->port());
  const auto s = tp::tls_address{text, p.calling()}.connect(200ms);
  EXPECT_EQ(code_of(s), errc::timed_out);
  stop_after stop(50ms);
  const auto stopped = tp::tls_address{text, p.calling()}.connect(60s, stop.get_token());
  EXPECT_EQ(code_of(stopped), errc::cancelled);
}

/// A socket that OpenSSL may wait in, for at most so long.
tp::result<tp::posix_stream> connected_and_blocking(std::uint16_t port) {
  auto socket = tp::tcp_connect(local(port), steady_clock::now() + 10s);
  if (!socket) return socket;
  const timeval longest{20, 0};
  for (const int which : {SO_RCVTIMEO, SO_SNDTIMEO})
    EXPECT_EQ(::setsockopt(socket->native_handle(), SOL_SOCKET, which, &longest, sizeof longest), 0);
  (void)::fcntl(socket->native_handle(), F_SETFL, 0);
  return socket;
}
/// A client or a server that is configured as ours never is, over a connected socket.
struct plain_peer {
  explicit plain_peer(const SSL_METHOD* m) : context(SSL_CTX_new(m)) {
    SSL_CTX_set_security_level(context.get(), 0);
    SSL_CTX_set_options(context.get(), SSL_OP_LEGACY_SERVER_CONNECT);
  }
  void over(int fd) {
    ssl.reset(SSL_new(context.get()));
    SSL_set_fd(ssl.get(), fd);
  }
  tp::detail::ssl_context_ptr context;
  tp::detail::ssl_ptr ssl;
};

TEST(TlsFaults, X3_old_versions_and_ciphers_without_keys_or_names_are_refused) {
  const pki p;
  auto listener = p.here().listen();
  ASSERT_TRUE(listener);
  const auto end_of = [&](auto configure) {
    plain_peer peer(TLS_client_method());
    configure(peer.context.get());
    joined_thread client([&] {
      auto socket = connected_and_blocking(listener->port());
      ASSERT_TRUE(socket);
      peer.over(socket->native_handle());
      EXPECT_NE(SSL_connect(peer.ssl.get()), 1);
      ERR_clear_error();
    });
    const auto s = listener->accept(10s);
    return s ? errc{} : s.error().code;
  };
  for (const int version : {TLS1_VERSION, TLS1_1_VERSION})
    EXPECT_EQ(end_of([&](SSL_CTX* c) {
                SSL_CTX_set_min_proto_version(c, version), SSL_CTX_set_max_proto_version(c, version);
              }),
              errc::handshake_failed);
  for (const char* const ciphers : {"NULL", "aNULL", "AES128-SHA", "ECDHE-ECDSA-AES128-SHA"})
    EXPECT_EQ(end_of([&](SSL_CTX* c) {
                SSL_CTX_set_max_proto_version(c, TLS1_2_VERSION);
                EXPECT_EQ(SSL_CTX_set_cipher_list(c, ciphers), 1);
              }),
              errc::handshake_failed)
        << ciphers;
}

TEST(TlsFaults, A_handshake_that_cannot_succeed_ends_at_once_with_its_reason_and_one_that_is_cut_is_tried_again) {
  const pki p;
  std::size_t came = 0;
  const auto end_of = [&](auto answer) {
    raw_listener there;
    came = 0;
    joined_thread other([&](const std::stop_token& stop) {
      while (!stop.stop_requested())
        if (auto peer = there.next(20ms)) {
          ++came;
          if (peer->stream().wait(true, false, ample_time).read) answer(*peer);
        }
    });
    const std::string where = local(there.port());
    const auto mine = blank<large>();
    return net::download_tensors(tp::tls_address{where, p.calling()}, tp::ref_id{1, 2}, *mine,
                                 {.retry = {.retries = 2, .first_delay = 1ms}});
  };
  const auto plain = end_of([](raw_peer& peer) { (void)peer.say("HTTP/1.1 400 Bad Request\r\n\r\n"); });
  EXPECT_EQ(code_of(plain), errc::handshake_failed);
  EXPECT_EQ(plain.error().name.view(), "wrong version number");
  EXPECT_EQ(came, 1u);
  const auto old = end_of([](raw_peer& peer) {
    plain_peer server(TLS_server_method());
    SSL_CTX_set_security_level(server.context.get(), 0);
    SSL_CTX_set_min_proto_version(server.context.get(), TLS1_1_VERSION);
    SSL_CTX_set_max_proto_version(server.context.get(), TLS1_1_VERSION);
    server.over(peer.stream().native_handle());
    EXPECT_NE(SSL_accept(server.ssl.get()), 1);
    ERR_clear_error();
  });
  EXPECT_EQ(code_of(old), errc::handshake_failed);
  EXPECT_EQ(old.error().name.view(), "tlsv1 alert protocol version");
  EXPECT_EQ(came, 1u);
  EXPECT_EQ(code_of(end_of([](raw_peer& peer) {
              byte_vector hello(16384);
              EXPECT_GT(read_some(peer.stream(), hello).bytes, 0u);  // or the end would be a reset
            })),
            errc::connection_failed)
      << "it may be a program that starts again";
  EXPECT_EQ(came, 3u);
}

TEST(TlsFaults, X3_a_renegotiation_is_refused) {
  const pki p;
  auto listener = p.here().listen();
  ASSERT_TRUE(listener);
  plain_peer peer(TLS_client_method());
  SSL_CTX_set_max_proto_version(peer.context.get(), TLS1_2_VERSION);
  joined_thread client([&] {
    auto socket = connected_and_blocking(listener->port());
    ASSERT_TRUE(socket);
    peer.over(socket->native_handle());
    ASSERT_EQ(SSL_connect(peer.ssl.get()), 1);
    EXPECT_EQ(SSL_renegotiate(peer.ssl.get()), 1);
    EXPECT_NE(SSL_do_handshake(peer.ssl.get()), 1);
    ERR_clear_error();
  });
  auto s = listener->accept(10s);
  ASSERT_TRUE(s);
  std::array<std::byte, 16> room{};
  EXPECT_TRUE(eventually("the connection ends", [&] {
    s->wait(true, false, 50ms);
    return tp::is_end(read_some(*s, room).status);
  }));
}

TEST(TlsFaults, X4_a_bit_flip_ends_the_connection_and_no_byte_of_that_record_lands) {
  const owning o;
  for (const std::size_t at : {3'000'007u, 7'000'001u}) {
    const auto mine = blank<large>();
    std::memset(mine.get(), 0x5a, sizeof(large));
    relay r(o.owner->port());
    r.flip_at = at;
    const auto done = o.pull(r.port(), *mine);
    ASSERT_EQ(code_of(done), errc::connection_lost);
    EXPECT_EQ(done.error().system, EBADMSG);
    // what has landed is a prefix of the model, and the rest is untouched: it ends before the record with the bit
    const auto* const got = reinterpret_cast<const std::byte*>(mine.get());
    const auto* const sent = reinterpret_cast<const std::byte*>(o.source.get());
    std::size_t landed = 0;
    while (landed < sizeof(large) && got[landed] == sent[landed]) ++landed;
    EXPECT_LT(landed, at);
    std::size_t changed = 0;
    for (std::size_t i = landed; i < sizeof(large); ++i) changed += got[i] != std::byte{0x5a} ? 1 : 0;
    EXPECT_EQ(changed, 0u);
    relay again(o.owner->port());
    again.flip_at = at;
    EXPECT_FALSE(o.pull(again.port(), *mine));
    EXPECT_TRUE(o.pull(o.owner->port(), *mine));
    EXPECT_TRUE(same(*mine, *o.source));
  }
}

TEST(TlsFaults, X5_a_recorded_session_that_is_played_again_is_refused) {
  owning o;
  bytes recorded;
  {
    const auto mine = blank<large>();
    relay r(o.owner->port());
    EXPECT_TRUE(o.pull(r.port(), *mine));
    r.join();
    recorded = r.from_client;
  }
  ASSERT_GT(recorded.size(), 500u);
  raw_peer thief(o.owner->port());
  (void)thief.say(recorded);
  EXPECT_TRUE(thief.hear_end());
  o.thread->stop();
  std::array<tp::recipient_record, 4> known;
  EXPECT_EQ(o.owner->recipients_of(o.ref, known), 1u);  // nobody but the first
}

TEST(TlsFaults, F16_strangers_at_a_tls_door_are_closed_at_once) {
  owning o;
  const std::string zeros(65536, '\0');
  for (const std::string_view said :
       {std::string_view(zeros), std::string_view("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
        std::string_view("SSH-2.0-OpenSSH_9.2\r\n"), std::string_view("CONNECT a:1 HTTP/1.1\r\n\r\n")}) {
    raw_peer stranger(o.owner->port());
    (void)stranger.say(said);
    EXPECT_TRUE(stranger.hear_end());
  }
  const auto mine = blank<large>();
  EXPECT_TRUE(o.pull(o.owner->port(), *mine));
}

TEST(TlsFaults, A_flood_of_short_records_harms_only_its_own_connection) {
  const owning o;
  std::atomic<bool> over = false;
  const joined_thread flood([&] {
    std::string text = local(o.owner->port());
    while (!over) {
      auto s = tp::tls_address{text, o.client}.connect(10s);
      if (!s) continue;
      const std::byte one{};
      for (tp::io_result io{}; !over && !tp::is_end(io.status);) {
        io = write_some(*s, std::span(&one, 1));
        if (io.bytes == 0) s->wait(false, true, 10ms);
      }
    }
  });
  for (int i = 0; i < 2; ++i) {
    const auto mine = blank<large>();
    EXPECT_TRUE(o.pull(o.owner->port(), *mine));
    EXPECT_TRUE(same(*mine, *o.source));
  }
  over = true;
}

TEST(TlsFaults, A_peer_that_is_gone_raises_no_signal_and_reads_of_a_full_stream_go_on_later) {
  const pki p;
  auto listener = p.here().listen();
  ASSERT_TRUE(listener);
  std::string text = local(listener->port());
  tp::result<tp::tls_connection> server = tp::failure(errc::timed_out);
  joined_thread accepting([&] { server = listener->accept(10s); });
  auto client = tp::tls_address{text, p.calling()}.connect(10s);
  accepting.join();
  ASSERT_TRUE(client && server);
  // the spans change between the calls wherever a caller may change them; what arrives is what was taken
  generator random(11);
  bytes sent, got, room(100'000);
  std::size_t blocked = 0;
  while (sent.size() < 8'000'000 || got.size() < sent.size()) {
    if (sent.size() < 8'000'000 || blocked > 0) {
      bytes next(sent.size() < 8'000'000 ? 1 + random.below(60'000) : 1);
      random.fill(next);
      if (blocked > 0) next[0] = std::byte(blocked - 1);  // as the requirement says: this byte stays the same
      const std::size_t half = random.below(next.size());
      const std::array<const_byte_span, 3> out{std::span(next).first(half), std::span(next).subspan(half, 0),
                                               std::span(next).subspan(half)};
      const auto io = server->write_some(out);
      ASSERT_FALSE(tp::is_end(io.status));
      sent.insert(sent.end(), next.begin(), next.begin() + static_cast<std::ptrdiff_t>(io.bytes));
      blocked = io.bytes < next.size() ? 1 + static_cast<std::size_t>(next[io.bytes]) : 0;
      if (io.bytes == next.size() && random.below(4) != 0) continue;
    }
    const auto io = read_some(*client, std::span(room).first(1 + random.below(room.size())));
    got.insert(got.end(), room.begin(), room.begin() + static_cast<std::ptrdiff_t>(io.bytes));
  }
  EXPECT_EQ(got, sent);
  client = tp::failure(errc::io);
  const bytes more(1'000'000);
  tp::io_result io{};
  for (int i = 0; i < 1000 && !tp::is_end(io.status); ++i) {
    io = write_some(*server, more);
    if (io.bytes == 0) server->wait(false, true, 10ms);
  }
  EXPECT_TRUE(tp::is_end(io.status));
}

TEST(TlsFaults, Tickets_are_sent_only_if_they_were_asked_for) {
  const pki p;
  for (const bool asked : {false, true}) {
    auto listener = p.here({.session_tickets = asked}).listen();
    ASSERT_TRUE(listener);
    static std::atomic<int> tickets;
    tickets = 0;
    plain_peer peer(TLS_client_method());
    SSL_CTX_set_session_cache_mode(peer.context.get(), SSL_SESS_CACHE_CLIENT);
    SSL_CTX_sess_set_new_cb(peer.context.get(), [](SSL*, SSL_SESSION*) {
      ++tickets;
      return 0;
    });
    joined_thread client([&] {
      auto socket = connected_and_blocking(listener->port());
      ASSERT_TRUE(socket);
      peer.over(socket->native_handle());
      ASSERT_EQ(SSL_connect(peer.ssl.get()), 1);
      char byte;
      (void)SSL_read(peer.ssl.get(), &byte, 1);
      ERR_clear_error();
    });
    const auto s = listener->accept(10s);
    ASSERT_TRUE(s);
    const std::byte one{};
    const std::array<const_byte_span, 1> out{std::span(&one, 1)};
    EXPECT_EQ(const_cast<tp::tls_connection&>(*s).write_some(out).bytes, 1u);
    client.join();
    EXPECT_EQ(tickets > 0, asked);
  }
}

}  // namespace tls_faults_test
