// A third party pulls what a locator names, over TLS: with the context that the program has for it.
#include "transports/certificates.hpp"
#include "transports/network.hpp"

#include <tensorpull/messages/tensor_decomposer.hpp>
#include <tensorpull/transports/over/tls/tls.hpp>

namespace download_tls_test {

using namespace test;
using net = raw_net<mlp, tp::tls>;

struct task {
  tp::tensors_of<mlp> model;
};

}  // namespace download_tls_test

BOOST_HANA_ADAPT_STRUCT(download_tls_test::task, model);

namespace download_tls_test {

TEST(DownloadTls, A_locator_and_a_set_that_was_sent_on_are_pulled_with_a_context) {
  const pki p;
  const auto model = random_model<mlp>(1);
  auto owner = net::downloader::open(p.here());
  ASSERT_TRUE(owner);
  const auto apart = tp::tensor_decomposer<net, tp::inline_up_to<0>>::decompose(
      *owner, task{tp::tensors_of<mlp>(*model)}, {.recipients = 0});
  ASSERT_TRUE(apart);
  task got;
  ASSERT_TRUE((tp::tensor_decomposer<net>::recompose(apart->references(), apart->body(), got)));
  ASSERT_TRUE(got.model.owner_at("tls://" + local(owner->port())));
  serving run(*owner);

  const auto known = p.calling();
  const auto where = [&](std::string_view a) { return tp::tls_address{a, known}; };
  const auto mine = blank<mlp>();
  const auto done = tp::download_tensors<net>(*got.model.remote(), where, *mine);
  ASSERT_TRUE(succeeded(done));
  EXPECT_TRUE(same(*mine, *model));

  const auto other = blank<mlp>();
  const auto set = got.model.download_tensors<net>(*other, {}, where);
  ASSERT_TRUE(succeeded(set));
  EXPECT_TRUE(same(*other, *model));

  const pki strange;
  const auto unknown = strange.calling();
  const auto refused = tp::download_tensors<net>(
      *got.model.remote(), [&](std::string_view a) { return tp::tls_address{a, unknown}; }, *other);
  EXPECT_EQ(code_of(refused), errc::not_authenticated);
}

}  // namespace download_tls_test
