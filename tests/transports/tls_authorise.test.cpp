// The names of certificates are tied to the recipients that a transaction names.
#include "certificates.hpp"
#include "network.hpp"

#include <tensorpull/core/describe.hpp>
#include <tensorpull/transports/over/tls/tls.hpp>

namespace tls_authorise_test {

using namespace test;
using net = tp::pipeline<tp::raw_tensors<tiny>, tp::fixed_bytes<256>, tp::tls>;

TEST(TlsAuthorise, Who_a_transaction_names_pulls_under_the_name_in_its_own_certificate_and_nobody_else_does) {
  const pki p;
  const identity second({.common_name = "site-2"}, &p.authority), stranger({.common_name = "site-3"}, &p.authority);
  const auto source = random_model<tiny>(1);
  auto owner = net::downloader::open(p.here({.clients_have_certificates = true}),
                                     {.authorise = tp::expected_ones_are_certified});
  ASSERT_TRUE(owner);
  const std::array named{tp::recipient_named("site-1"), tp::recipient_named("site-2")};
  const auto ref = *owner->add_tensors(*source, {.named = named});
  serving thread(*owner);
  const std::string where = local(owner->port());
  const auto pull = [&](const identity& who, std::string_view as) {
    const auto mine = blank<tiny>();
    const auto done = net::download_tensors(tp::tls_address{where, context_of(&who, p.authority)}, ref, *mine,
                                            {.recipient = tp::recipient_named(as)});
    EXPECT_EQ(same(*mine, *source), done.has_value());
    return done;
  };
  for (const auto& done : {pull(stranger, "site-1"), pull(second, "site-1"), pull(p.client, "site-2")}) {
    EXPECT_EQ(code_of(done), errc::unknown_reference);
  }
  EXPECT_FALSE(owner->settled(ref));
  EXPECT_TRUE(pull(p.client, "site-1"));
  EXPECT_TRUE(pull(second, "site-2"));
  thread.stop();
  EXPECT_TRUE(owner->settled(ref));
}

}  // namespace tls_authorise_test
