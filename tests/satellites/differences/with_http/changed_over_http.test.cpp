// Tensors that have changed, over HTTP.
#include "published_tensors.hpp"

#include <tensorpull/satellites/http/owner/http_owner.hpp>
#include <tensorpull/satellites/http/recipient/http_pull.hpp>

namespace changed_over_http_test {

using namespace test;
using namespace test::changed;

TEST(ChangedOverHttp, Over_HTTP_where_nothing_comes_by_name_all_is_pulled) {
  using web = over<tp::fixed_bytes<64_KiB>, tp::http_only<tp::tcp>>;
  using pulls = over<tp::fixed_bytes<64_KiB>, tp::http>;
  small s;
  const auto image = s.now.image();
  auto owner = web::downloader::open({});
  const auto ref = owner->add_tensors(image, {.tensor_digests = true});
  const serving server(*owner);
  const std::string url = "http://" + local(owner->port()) + "/v1/m/" +
                          std::string(tp::to_digits(*ref).view().substr(32));
  const std::string key(tp::to_digits(ref->id).view());
  auto model = s.old.image();
  std::uint64_t kept = 7;
  const auto done = tp::download_changes<pulls>(tp::http_address{.url = url, .bearer = key}, *ref, model, {}, &kept);
  ASSERT_TRUE(done) << to_string(done.error().code) << done.error().name.view();
  EXPECT_EQ(s.old, s.now);
  EXPECT_EQ(kept, 0u);
}

}  // namespace changed_over_http_test
