// Replicas over TLS: the recipients' connections to them, and their lines to the coordinator, each with certificates of
// its own.
#include "transports/certificates.hpp"
#include "transports/network.hpp"

#include <tensorpull/core/describe.hpp>
#include <tensorpull/satellites/replica/replica_owner.hpp>
#include <tensorpull/transports/over/tls/tls.hpp>

namespace replica_tls_test {

using namespace test;

constexpr tp::ref_id shared{31, 32};
using net = tp::pipeline<tp::raw_tensors<large>, tp::fixed_bytes<256_KiB>, tp::tls>;

struct parties {
  pki p;
  std::unique_ptr<large> model = random_model<large>(1), mine = blank<large>();
  std::string text;

  net::downloader coordinator(const tp::tls_options& options = {}) {
    auto owner = net::downloader::open(p.here(options));
    EXPECT_TRUE(succeeded(owner));
    EXPECT_TRUE(owner->add_tensors(*model, {.recipients = 1, .id = shared}));
    return std::move(*owner);
  }
  /// `as`: what it shows the coordinator, and trusts. The text of the address is borrowed for as long as the replica
  /// lives.
  tp::replica_of<net> replica(std::uint16_t port, const tp::tls_context& as, const tp::replica_options& options = {}) {
    text = local(port);
    auto replica = tp::replica_of<net>::open(p.here(), tp::tls_address{.address = text, .context = as}, options);
    EXPECT_TRUE(succeeded(replica));
    EXPECT_TRUE(replica->add_tensors(*model, {.id = shared}));
    return std::move(*replica);
  }
  tp::result<tp::receipt> pull(std::uint16_t port, const tp::tls_context& as, const tp::pull_options& options = {}) {
    const std::string where = local(port);
    return net::download_tensors(tp::tls_address{.address = where, .context = as}, tp::reference{shared, 0, 0}, *mine,
                                 options);
  }
};

TEST(TlsReplica, Gives_chunks_and_the_coordinator_settles) {
  parties all;
  auto coordinator = all.coordinator();
  serving first(coordinator);
  auto replica = all.replica(coordinator.port(), all.p.calling());
  serving second(replica);
  const auto done = all.pull(replica.port(), all.p.calling());
  ASSERT_TRUE(confirmed(done));
  EXPECT_TRUE(same(*all.mine, *all.model));
  first.stop(), second.stop();
  const auto how = coordinator.settlement_of({shared, 0, 0});
  ASSERT_TRUE(how);
  EXPECT_EQ(how->counts.completed, 1u);
  EXPECT_LE(how->counts.bytes_sent, 256_KiB);
  EXPECT_EQ(replica.counts().own, sizeof(large) / 256_KiB);
  EXPECT_EQ(replica.counts().broken, 0u);
}

TEST(TlsReplica, Shows_its_own_certificate_to_a_coordinator_that_asks_for_one) {
  parties all;
  auto coordinator = all.coordinator({.clients_have_certificates = true});
  serving first(coordinator);
  auto replica = all.replica(coordinator.port(), context_of(&all.p.client, all.p.authority));
  serving second(replica);
  const auto direct = all.pull(coordinator.port(), all.p.calling(), {.retry = {.retries = 0}});
  EXPECT_FALSE(direct) << "the coordinator itself wants a certificate";
  const auto done = all.pull(replica.port(), all.p.calling());
  ASSERT_TRUE(confirmed(done));
  EXPECT_TRUE(same(*all.mine, *all.model));
}

TEST(TlsReplica, That_does_not_trust_its_coordinator_is_without_one) {
  parties all;
  const identity stranger{{.common_name = "another authority", .alternatives = {}, .authority = true}};
  auto coordinator = all.coordinator();
  serving first(coordinator);
  auto replica = all.replica(coordinator.port(), context_of(nullptr, stranger), {.gone = 300ms});
  serving second(replica);
  const auto done = all.pull(replica.port(), all.p.calling());
  EXPECT_EQ(code_of(done), errc::owner_lost);
  second.stop();
  EXPECT_TRUE(replica.coordinator_lost());
  EXPECT_EQ(replica.counts().own, 0u);
}

TEST(TlsReplica, A_recipient_without_TLS_gets_nothing_and_hurts_nobody) {
  parties all;
  auto coordinator = all.coordinator();
  serving first(coordinator);
  auto replica = all.replica(coordinator.port(), all.p.calling(), {.budgets = {.accept = 500ms}});
  serving second(replica);
  raw_peer plain(replica.port()), silent(replica.port());
  plain.say(std::string(4096, '\0'));
  const auto done = all.pull(replica.port(), all.p.calling());
  ASSERT_TRUE(succeeded(done));
  EXPECT_TRUE(same(*all.mine, *all.model));
  EXPECT_TRUE(plain.hear_end());
  EXPECT_TRUE(silent.hear_end());
}

}  // namespace replica_tls_test
