// A third party pulls what a locator names.
#include "transports/network.hpp"

#include <tensorpull/messages/download.hpp>

namespace download_test {

using namespace test;
using net = tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<64_KiB>, tp::tcp>;

class Download : public testing::Test {
 protected:
  Download() {
    owner.emplace(std::move(*net::downloader::open()));
    other.emplace(std::move(*net::downloader::open()));
    ref = *owner->add_tensors(*model);
    first.emplace(*owner), second.emplace(*other);
  }
  tp::locator at(std::initializer_list<std::uint16_t> ports) {
    tp::locator l(ref);
    for (const auto p : ports) EXPECT_TRUE(l.add(local(p)));
    return l;
  }
  std::unique_ptr<mlp> model = random_model<mlp>(1), mine = blank<mlp>();
  std::optional<net::downloader> owner, other;
  tp::reference ref;
  std::optional<serving> first, second;
};

TEST_F(Download, The_first_address_that_has_it_serves) {
  const auto done = tp::download_tensors<net>(at({1, other->port(), owner->port(), 2}), *mine);
  ASSERT_TRUE(done) << to_string(done.error().code);
  EXPECT_EQ(done->outcome, tp::outcome::completed);
  EXPECT_EQ(done->version, ref.version);
  EXPECT_TRUE(same(*mine, *model));
}

TEST_F(Download, Without_success_the_last_error_is_the_outcome) {
  EXPECT_EQ(tp::download_tensors<net>(at({1, other->port()}), *mine).error().code, tp::errc::unknown_reference);
  EXPECT_EQ(tp::download_tensors<net>(at({other->port(), 1}), *mine).error().code, tp::errc::connection_failed);
  EXPECT_EQ(tp::download_tensors<net>(at({}), *mine).error().code, tp::errc::bad_address);
  EXPECT_EQ(tp::download_tensors<net>(tp::locator(), *mine).error().code, tp::errc::bad_address);
}

TEST_F(Download, Another_version_is_not_taken) {
  tp::locator l = at({owner->port()});
  l.reference.version ^= 1;
  EXPECT_EQ(tp::download_tensors<net>(l, *mine).error().code, tp::errc::stale_version);
  EXPECT_TRUE(same(*mine, *blank<mlp>()));
}

TEST_F(Download, A_model_that_does_not_fit_ends_the_search) {
  using other_net = tp::pipeline<tp::raw_tensors<tiny>, tp::fixed_bytes<64_KiB>, tp::tcp>;
  const auto wrong = blank<tiny>();
  EXPECT_EQ(tp::download_tensors<other_net>(at({owner->port(), 1}), *wrong).error().code, tp::errc::schema_mismatch)
      << "the next address would say connection_failed";
}

}  // namespace download_test
