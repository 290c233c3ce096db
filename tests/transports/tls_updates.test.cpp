// New keys in the middle of a connection (RFC 8446, 4.6.3): the other end may send as many as it likes, and ask for
// answers.
#include "certificates.hpp"
#include "support/streams.hpp"
#include "support/words.hpp"

#include <tensorpull/transports/over/tls/tls_stream.hpp>

#include <algorithm>
#include <deque>
#include <initializer_list>
#include <vector>

namespace tls_updates_test {

using namespace test;

/// What one end has said and the other has not read. The server's end takes at most `room` bytes.
struct wire {
  std::deque<std::byte> to_server, to_client;
  std::size_t room = ~std::size_t{0}, read = 0;
};
struct server_end {
  wire* w = nullptr;
  tp::io_result read_some(std::span<const byte_span> spans) noexcept {
    std::size_t n = 0;
    for (const auto s : spans)
      for (std::byte& b : s) {
        if (w->to_server.empty()) return {n > 0 ? tp::io_status::ok : tp::io_status::would_block, 0, n};
        b = w->to_server.front();
        w->to_server.pop_front();
        ++n, ++w->read;
      }
    return {tp::io_status::ok, 0, n};
  }
  tp::io_result write_some(std::span<const const_byte_span> spans) noexcept {
    std::size_t n = 0;
    for (const auto s : spans)
      for (const std::byte b : s) {
        if (w->room == 0) return {n > 0 ? tp::io_status::ok : tp::io_status::would_block, 0, n};
        w->to_client.push_back(b);
        --w->room, ++n;
      }
    return {tp::io_status::ok, 0, n};
  }
  tp::io_ready wait(bool read, bool write, std::chrono::milliseconds) noexcept {
    return {read && !w->to_server.empty(), write && w->room > 0};
  }
};
using stream = tp::tls_stream<server_end>;

/// A server's stream, and a client that is OpenSSL itself.
struct two_ends {
  two_ends() : client(SSL_new(clients.get())), in(BIO_new(BIO_s_mem())), out(BIO_new(BIO_s_mem())) {
    SSL_set_bio(client.get(), in, out);
    SSL_set_connect_state(client.get());
    for (int i = 0; i < 10; ++i) {
      (void)SSL_do_handshake(client.get());
      move();
      (void)server.establish();
      move();
    }
    EXPECT_EQ(SSL_is_init_finished(client.get()), 1);
  }
  void move() {
    std::array<std::byte, 4096> some{};
    for (int n = 0; (n = BIO_read(out, some.data(), some.size())) > 0;)
      w.to_server.insert(w.to_server.end(), some.begin(), some.begin() + n);
    const byte_vector all(w.to_client.begin(), w.to_client.end());
    w.to_client.clear();
    if (!all.empty()) BIO_write(in, all.data(), static_cast<int>(all.size()));
  }
  void update(int kind) {
    EXPECT_EQ(SSL_key_update(client.get(), kind), 1);
    EXPECT_EQ(SSL_do_handshake(client.get()), 1);
  }
  tp::io_result read() {
    std::array<std::byte, 100> room{};
    return read_some(server, room);
  }

  const identity authority{{.authority = true}}, site{{}, &authority};
  const std::string certificate = site.certificate(), key = site.key();
  tp::tls_context context = *tp::tls_context::make({.certificate = {.text = certificate}, .key = {.text = key}});
  tp::detail::ssl_context_ptr clients{SSL_CTX_new(TLS_client_method())};
  wire w;
  stream server = *stream::server(server_end{&w}, context);
  tp::detail::ssl_ptr client;
  BIO *in, *out;
};

TEST(TlsUpdates, An_answer_that_finds_no_room_leaves_the_bytes_as_they_are) {
  byte_vector said(60'000), heard;
  for (std::size_t i = 0; i < said.size(); ++i) said[i] = static_cast<std::byte>(i * 7 / 5);
  for (const std::size_t first : {std::size_t{100}, said.size()})  // short spans are gathered, long ones are not
    for (const std::size_t room : std::initializer_list<std::size_t>{0, 1, 20, 30, 5000, 16'500}) {
      two_ends ends;
      ends.update(SSL_KEY_UPDATE_REQUESTED);
      ends.move();
      EXPECT_EQ(ends.read().status, tp::io_status::would_block);
      ends.w.room = room;
      heard.clear();
      std::size_t taken = 0;
      for (int turn = 0; turn < 1000 && heard.size() < said.size(); ++turn) {
        const auto left = std::span(said).subspan(taken);
        const std::size_t split = std::min(left.size(), first);
        const std::array<const_byte_span, 2> spans{left.first(split), left.subspan(split)};
        const auto io = ends.server.write_some(spans);
        ASSERT_FALSE(tp::is_end(io.status)) << room;
        taken += io.bytes;
        if (turn > 0) ends.w.room = turn < 3 ? 10 : 5000;
        ends.move();
        std::array<std::byte, 4096> some{};
        for (int n = 0; (n = SSL_read(ends.client.get(), some.data(), some.size())) > 0;)
          heard.insert(heard.end(), some.begin(), some.begin() + n);
      }
      ASSERT_EQ(heard.size(), said.size()) << first << " " << room;
      EXPECT_TRUE(heard == said) << first << " " << room;
    }
}

TEST(TlsUpdates, A_flood_of_them_takes_a_bounded_part_of_each_read) {
  two_ends ends;
  for (int i = 0; i < 6000; ++i) ends.update(SSL_KEY_UPDATE_NOT_REQUESTED);
  ends.move();
  const std::size_t all = ends.w.to_server.size();
  ASSERT_GT(all, 150'000u);
  while (!ends.w.to_server.empty()) {
    ends.w.read = 0;
    EXPECT_EQ(ends.read().bytes, 0u);
    ASSERT_LE(ends.w.read, 64u * 1024);
  }
  ASSERT_EQ(SSL_write(ends.client.get(), "after", 5), 5);  // and the connection is as good as before
  ends.move();
  EXPECT_EQ(ends.read().bytes, 5u);
}

}  // namespace tls_updates_test
