// TLS as a byte stream: the conformance kit with each version, and with tickets.
#include "certificates.hpp"
#include "support/results.hpp"
#include "support/streams.hpp"

#include <tensorpull/links/posix/posix_stream.hpp>
#include <tensorpull/testing/conformance/transport_conformance.hpp>
#include <tensorpull/transports/over/tls/tls_stream.hpp>

#include <sys/socket.h>

namespace tls_conformance_test {

using namespace test;
using stream = tp::tls_stream<tp::posix_stream>;

/// Two ends of TLS over two connected streams, after their handshake.
template <class Next>
tp::result<tp::testing::stream_pair<tp::tls_stream<Next>>> secured(Next near, Next far, const tp::tls_context& client,
                                                                   const tp::tls_context& server) {
  auto left = tp::tls_stream<Next>::client(std::move(near), client, "127.0.0.1");
  auto right = tp::tls_stream<Next>::server(std::move(far), server);
  if (!left || !right) return tp::failure(errc::out_of_memory);
  for (int i = 0; i < 20; ++i) {
    const auto a = left->establish(), b = right->establish();
    if (a.status == tp::io_status::failed) return tp::failure(a.code);
    if (b.status == tp::io_status::failed) return tp::failure(b.code);
    if (a.status == tp::io_status::ok && b.status == tp::io_status::ok)
      return tp::testing::stream_pair<tp::tls_stream<Next>>{std::move(*left), std::move(*right)};
  }
  return tp::failure(errc::timed_out);
}
/// Over a pair of Unix sockets.
struct pairs {
  tp::tls_context client, server;
  tp::result<tp::testing::stream_pair<stream>> operator()() const {
    int fd[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fd) != 0) return tp::failure(errc::io);
    return secured(tp::posix_stream(fd[0]), tp::posix_stream(fd[1]), client, server);
  }
};
/// Over such a pair that has TLS itself.
struct pairs_within {
  pairs outer;
  tp::tls_context client, server;
  tp::result<tp::testing::stream_pair<tp::tls_stream<stream>>> operator()() const {
    auto below = outer();
    if (!below) return tp::failure(below.error());
    return secured(std::move(below->left), std::move(below->right), client, server);
  }
};

void check(const auto& made) {
  const auto report = tp::testing::check_byte_stream(made);
  if (!report.passed()) report.print(stderr);
  EXPECT_TRUE(report.passed());
}
void check(const tp::tls_context& client, const tp::tls_context& server) { check(pairs{client, server}); }

TEST(TlsConformance, Each_requirement_of_a_byte_stream_holds) {
  const pki p;
  check(p.calling(), p.serving());
}
TEST(TlsConformance, Each_holds_with_TLS_1_2) {
  const pki p;
  check(of_1_2(p.calling()), p.serving());
}
TEST(TlsConformance, Each_holds_where_the_server_sends_tickets_between_the_bytes) {
  const pki p;
  check(p.calling(), p.serving({.session_tickets = true}));
}

TEST(TlsConformance, Each_holds_within_the_TLS_of_another_party) {
  const pki outer, inner;
  check(pairs_within{{outer.calling(), outer.serving()}, inner.calling(), inner.serving()});
}
TEST(TlsConformance, Within_the_TLS_of_another_party_a_certificate_that_is_refused_is_known_as_that) {
  const pki outer, inner;
  const auto made = pairs_within{{outer.calling(), outer.serving()}, outer.calling(), inner.serving()}();
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error(), errc::not_authenticated);
}

TEST(TlsConformance, Bytes_that_came_with_the_last_of_the_handshake_are_announced) {
  const pki p;
  int fd[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fd), 0);
  auto client = stream::client(tp::posix_stream(fd[0]), p.calling(), "127.0.0.1");
  auto server = stream::server(tp::posix_stream(fd[1]), p.serving());
  ASSERT_TRUE(client && server);
  while (client->establish().status == tp::io_status::would_block) (void)server->establish();
  const std::array<std::byte, 100> some{};
  ASSERT_EQ(write_some(*client, some).bytes, some.size());
  ASSERT_EQ(server->establish().status, tp::io_status::ok);
  EXPECT_TRUE(server->wait(true, false, 5s).read);
}

/// Counts the reads that may wait.
struct counting : tp::posix_stream {
  explicit counting(int fd) noexcept : tp::posix_stream(fd) {}
  tp::io_result read_or_wait(std::span<const byte_span> spans, std::chrono::milliseconds t) noexcept {
    ++waits;
    return tp::posix_stream::read_or_wait(spans, t);
  }
  int waits = 0;
};

TEST(TlsConformance, A_read_that_has_bytes_of_a_record_that_came_before_waits_for_no_other) {
  const pki p;
  int fd[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fd), 0);
  auto client = stream::client(tp::posix_stream(fd[0]), p.calling(), "127.0.0.1");
  auto server = tp::tls_stream<counting>::server(counting(fd[1]), p.serving());
  ASSERT_TRUE(client && server);
  while (client->establish().status == tp::io_status::would_block) (void)server->establish();
  ASSERT_EQ(server->establish().status, tp::io_status::ok);
  const std::array<std::byte, 100> some{};
  ASSERT_EQ(write_some(*client, some).bytes, some.size());
  std::array<std::byte, 100> memory;
  const auto read = [&](std::size_t room) {
    const std::array<byte_span, 1> in{std::span(memory).first(room)};
    return server->read_or_wait(in, 100ms).bytes;
  };
  ASSERT_EQ(read(40), 40u);
  const int before = server->next().waits;
  EXPECT_GT(before, 0);
  EXPECT_EQ(read(100), 60u);
  EXPECT_EQ(server->next().waits, before);
  EXPECT_EQ(read(100), 0u);
  EXPECT_EQ(server->next().waits, before + 1);
}

}  // namespace tls_conformance_test
