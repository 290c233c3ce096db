// What TLS costs in memory: OpenSSL's allocations are counted, for each chunk and for each connection.
#include "certificates.hpp"
#include "network.hpp"

#include "support/allocation_counter.hpp"

#include <tensorpull/transports/over/tls/tls.hpp>

#include <malloc.h>

namespace tls_memory_test {

using namespace test;

std::atomic<std::uint64_t> calls{0};
std::atomic<std::int64_t> live{0};
void* note(void* p) {
  ++calls;
  live += static_cast<std::int64_t>(::malloc_usable_size(p));
  return p;
}
constexpr std::size_t sent_each = tp::tls_connection::allocations_per_record_sent;
constexpr std::size_t both = sent_each + tp::tls_connection::allocations_per_record_received;

/// OpenSSL takes these only before its first allocation, so that they are set before main().
const bool counted = CRYPTO_set_mem_functions([](std::size_t n, const char*, int) { return note(std::malloc(n)); },
                                              [](void* p, std::size_t n, const char*, int) {
                                                live -= static_cast<std::int64_t>(::malloc_usable_size(p));
                                                return note(std::realloc(p, n));
                                              },
                                              [](void* p, const char*, int) {
                                                live -= static_cast<std::int64_t>(::malloc_usable_size(p));
                                                std::free(p);
                                              }) == 1;

TEST(TlsMemory, Openssl_allocates_as_often_as_stated_for_each_record_and_nobody_else_does) {
  ASSERT_TRUE(counted);
  const pki p;
  const auto source = random_model<mlp>(1);
  using net = tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<4096>, tp::tls>;
  for (const bool old : {false, true}) {
    auto owner = net::downloader::open(p.here());
    const auto ref = *owner->add_tensors(*source);
    serving server(*owner);
    const std::string where = local(owner->port());
    auto peer = net::session::connect(tp::tls_address{where, old ? of_1_2(p.calling()) : p.calling()});
    const auto mine = blank<mlp>();
    ASSERT_TRUE(peer->download_tensors(ref, *mine));
    const allocation_watch all;
    const std::uint64_t before = calls;
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(peer->download_tensors(ref, *mine));
    const std::uint64_t by_openssl = calls - before;
    EXPECT_EQ(all.count(), by_openssl);
    // at most a record for each chunk, for each request, and for what is said at the end
    EXPECT_LE(by_openssl, both * 5 * (2 * sizeof(mlp) / 4096 + 10));
    EXPECT_TRUE(old || by_openssl % both == 0);
  }
}

TEST(TlsMemory, A_long_span_is_one_record_for_each_16_KiB_and_short_ones_share_one) {
  ASSERT_TRUE(counted);
  const pki p;
  auto listener = p.here().listen();
  const std::string where = local(listener->port());
  std::optional<tp::tls_connection> server;
  joined_thread accepting([&] { server = std::move(*listener->accept(10s)); });
  auto client = tp::tls_address{where, p.calling()}.connect(10s);
  accepting.join();
  ASSERT_TRUE(client && server);
  byte_vector bytes(128 * 1024);
  const auto records_of = [&](std::span<const const_byte_span> out) {
    const std::uint64_t before = calls;
    std::size_t left = client->write_some(out).bytes;
    const std::uint64_t records = (calls - before) / sent_each;
    while (left > 0) {
      left -= read_some(*server, bytes).bytes;
      server->wait(true, false, 1ms);
    }
    EXPECT_EQ(calls - before, records * both);
    return records;
  };
  const const_byte_span all(bytes), one = all.first(1);
  (void)client->write_some({&one, 1});  // the first record and the first read make the buffers
  while (read_some(*server, bytes).bytes == 0) server->wait(true, false, 10ms);
  EXPECT_EQ(records_of({&all, 1}), 8u);
  const std::array<const_byte_span, 4> short_ones{all.first(56), all.first(4096), all.first(56), all.first(4096)};
  EXPECT_EQ(records_of(short_ones), 1u);
  const std::array<const_byte_span, 2> head_and_body{all.first(56), all.first(64 * 1024)};
  EXPECT_EQ(records_of(head_and_body), 5u);
}

TEST(TlsMemory, A_connection_takes_no_more_than_the_policy_states) {
  ASSERT_TRUE(counted);
  const pki p;
  const auto context = p.serving({.clients_have_certificates = true}), client = context_of(&p.client, p.authority);
  std::vector<tp::tls_connection> servers, clients;
  const auto connect = [&] {
    auto listener = tp::tls_address{any_port, context}.listen();
    const std::string where = local(listener->port());
    joined_thread accepting([&] { servers.push_back(std::move(*listener->accept(10s))); });
    clients.push_back(std::move(*tp::tls_address{where, client}.connect(10s)));
    accepting.join();
    // both ways, so that each end has its buffers
    byte_vector bytes(300'000);
    for (auto [from, to] : {std::pair{&servers.back(), &clients.back()}, std::pair{&clients.back(), &servers.back()}})
      for (std::size_t n = 0; n < bytes.size();) {
        (void)write_some(*from, std::span(bytes).first(60'000));
        n += read_some(*to, bytes).bytes;
      }
  };
  servers.reserve(20), clients.reserve(20);
  connect();
  const std::int64_t before = live;
  for (int i = 0; i < 10; ++i) connect();
  const auto each = static_cast<std::size_t>(live - before) / 20;  // two ends of ten connections
  RecordProperty("openssl_bytes", static_cast<int>(each));
  EXPECT_LE(each + tp::tcp::connection_bytes + 21 * 1024, tp::tls::connection_bytes);
  EXPECT_GE(each + tp::tcp::connection_bytes + 21 * 1024, tp::tls::connection_bytes * 3 / 4)
      << "the bound says more than it has to: " << each;
}

TEST(TlsMemory, Certificates_that_come_with_a_clients_own_are_not_kept_and_too_many_are_refused) {
  ASSERT_TRUE(counted);
  const pki p;
  const auto context = p.serving({.clients_have_certificates = true});
  const auto held_by = [&](int others) -> std::int64_t {  // a server, besides its own memory; 0: the client is refused
    const std::string key = p.client.key(), authority = p.authority.certificate();
    std::string certificates = p.client.certificate();
    for (int i = 0; i < others; ++i) certificates += authority;
    const auto with = tp::tls_context::make(
        {.authorities = {.text = authority}, .certificate = {.text = certificates}, .key = {.text = key}});
    auto listener = tp::tls_address{any_port, context}.listen();
    const std::string where = local(listener->port());
    const std::int64_t before = live;
    std::optional<tp::result<tp::tls_connection>> server, client;
    joined_thread accepting([&] { server.emplace(listener->accept(10s)); });
    client.emplace(tp::tls_address{where, *with}.connect(10s));
    accepting.join();
    client.reset();
    return *server ? live - before : 0;
  };
  (void)held_by(0);
  const std::int64_t alone = held_by(0);
  ASSERT_GT(alone, 0);
  EXPECT_LE(held_by(40), alone + 4096);
  EXPECT_EQ(held_by(100), 0);
}

TEST(TlsMemory, A_stranger_that_shakes_hands_takes_no_more_than_is_stated) {
  ASSERT_TRUE(counted);
  const pki p;
  auto listener = p.here().listen();
  std::int64_t most = 0;
  for (int i = 0; i < 2; ++i) {
    const std::int64_t before = live;
    auto stranger = tp::tcp_connect(local(listener->port()), steady_clock::now() + 10s);
    ASSERT_TRUE(stranger);
    auto server = listener->accept();
    while (!server) server = listener->accept();
    // the longest first message that OpenSSL takes, without its last bytes
    byte_vector record(5 + 16384);
    record[0] = std::byte{22}, record[1] = std::byte{3}, record[2] = std::byte{1}, record[3] = std::byte{0x40};
    record[5] = std::byte{1}, record[6] = std::byte{2}, record[8] = std::byte{0x80};
    for (int n = 0; n < 8; ++n) {
      for (std::size_t at = 0; at < record.size();) {
        at += write_some(*stranger, std::span(record).subspan(at)).bytes;
        ASSERT_EQ(server->establish().status, tp::io_status::would_block);
      }
      server->wait(true, false, 20ms);
      ASSERT_EQ(server->establish().status, tp::io_status::would_block);
      most = std::max(most, live - before);
      record[5] = record[6] = record[8] = std::byte{0};
    }
  }
  const auto held = static_cast<std::size_t>(most) + tp::tcp::connection_bytes + 21 * 1024;
  RecordProperty("bytes", static_cast<int>(held));
  EXPECT_LE(held, tp::tls::handshake_bytes);
  EXPECT_GE(held, tp::tls::handshake_bytes * 3 / 4) << "the bound says more than it has to";
}

}  // namespace tls_memory_test
