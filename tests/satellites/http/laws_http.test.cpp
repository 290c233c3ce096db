// The laws of all transports over HTTP: an owner that answers it, and recipients of `http`.
#include "transports/laws.hpp"
#include "transports/network.hpp"
#include "transports/third_parties.hpp"

#include <tensorpull/satellites/http/owner/http_owner.hpp>
#include <tensorpull/satellites/http/recipient/http_pull.hpp>

#include <cinttypes>
#include <deque>
#include <mutex>

namespace laws_http_test {

using namespace test;

struct http_room : usual_room {
  using transport = tp::http;
  template <class Model>
  using net = tp::pipeline<tp::raw_tensors<Model>, tp::fixed_bytes<64_KiB>, transport>;
  template <class Model>
  using owning = tp::pipeline<tp::raw_tensors<Model>, tp::fixed_bytes<64_KiB>, tp::http_only<tp::tcp>>;
  static tp::recipient_id seen(tp::recipient_id id) {
    std::array<char, 17> name;
    std::snprintf(name.data(), name.size(), "%016" PRIx64, id.value);
    return tp::recipient_named({name.data(), 16});
  }
  static constexpr auto stale = tp::errc::unknown_reference;  // its address is another one
  static constexpr std::uint64_t first_bytes = 64_KiB;  // with the file's header
  static constexpr bool tells_why = false, names_differences = false, takes_names = false;

  template <class Model>
  auto open(const tp::authorise_callback& may) {
    return owning<Model>::downloader::open({.listen = local(port), .host = {.authorise = may}});
  }
  tp::http_address at(const tp::reference& ref, const tp::pull_options& options) {
    std::array<char, 17> version{"latest"};
    const std::uint64_t wanted = options.version != 0 ? options.version : ref.version;
    if (wanted != 0) std::snprintf(version.data(), version.size(), "%016" PRIx64, wanted);
    const auto id = tp::to_digits(ref.id);
    const std::lock_guard lock(mutex);
    const auto& url = said.emplace_back("http://" + local(port) + "/v1/mlp/" + version.data());
    const auto& key = said.emplace_back(id.data(), id.size());
    return {.url = url, .bearer = key};
  }
  bool stranger(std::string_view bytes) const {
    raw_peer peer(port);
    (void)peer.say(bytes);
    peer.half_close();
    return peer.hear_end();
  }

  own_port port;
  std::mutex mutex;
  std::deque<std::string> said;  ///< what addresses borrow
};
INSTANTIATE_TYPED_TEST_SUITE_P(Http, Laws, http_room);

struct crowded_http_room : http_room {
  template <class Model>
  auto open(const tp::authorise_callback& may) {
    auto owner = owning<Model>::downloader::open({.listen = local(port), .host = crowded(may)});
    if (owner) owner->shared().options.metrics = true;
    return owner;
  }
  auto third_parties() const {
    return strangers_in_numbers([this] { return raw_peer(port); }, 3 * few_places);
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Http, ThirdParties, crowded_http_room);

}  // namespace laws_http_test
