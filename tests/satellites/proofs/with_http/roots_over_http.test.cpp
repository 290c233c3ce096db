// What a root changes over HTTP.
#include "root_laws.hpp"
#include "support/own_port.hpp"

#include <tensorpull/satellites/http/owner/http_owner.hpp>
#include <tensorpull/satellites/http/recipient/http_pull.hpp>

namespace roots_over_http_test {

using namespace test;

struct http_room {
  template <class Model>
  using net = raw_net<Model, tp::http>;
  template <class Model>
  using owning = raw_net<Model, tp::http_only<tp::tcp>>;
  template <class Model>
  auto open() {
    return owning<Model>::downloader::open({.listen = local(port)});
  }
  tp::http_address at(const tp::reference& ref) {
    const auto id = tp::to_digits(ref.id);
    key.assign(id.data(), id.size());
    url = "http://" + local(port) + "/v1/mlp/latest";
    return {.url = url, .bearer = key};
  }

  own_port port;
  std::string url, key;  ///< what addresses borrow
};
INSTANTIATE_TYPED_TEST_SUITE_P(Http, Roots, http_room);

}  // namespace roots_over_http_test
