// The laws of all transports over shared memory.
#include "shm.hpp"
#include "transports/session_door.hpp"
#include "transports/unix_room.hpp"

namespace laws_shared_memory_test {

using namespace test;

struct shared_room : usual_room {
  using transport = tp::shared_memory;
  template <class Model>
  using net = shared_net<Model>;

  template <class Model>
  auto open(const tp::authorise_callback& may) {
    return net<Model>::downloader::open({.listen = name, .host = {.authorise = may}});
  }
  const std::string& where() const { return name; }
  auto listen() const { return transport::listen(name); }
  bool stranger(std::string_view said) const { return ends(name, said); }

  std::string name = abstract_name();
};
INSTANTIATE_TYPED_TEST_SUITE_P(SharedMemory, Laws, shared_room);

struct crowded_shared_room : shared_room {
  template <class Model>
  auto open(const tp::authorise_callback& may) {
    return net<Model>::downloader::open({.listen = name, .host = crowded(may)});
  }
  void published(const mlp&, const tp::reference& r) { ref = r; }
  auto third_parties() {
    auto all = strangers_in_numbers([at = name] { return stranger_at(at); }, 3 * few_places);
    all.push_back({"one that takes no memory that it is offered",
                   [this](const std::stop_token& stop, std::atomic<bool>& acts) {
                     std::vector<raw_peer> asking;
                     for (int i = 0; i < 4; ++i) asking.push_back(stranger_at(name));
                     tp::frame m;
                     m.kind = tp::frame_kind::describe, m.ref = ref.id, m.memory = true;
                     for (int round = 0; !stop.stop_requested(); ++round) {
                       for (auto& a : asking) {
                         m.id = static_cast<std::uint32_t>(round + 1);
                         const frame f = encode(m, 4096);
                         (void)write_some(a.stream(), f.bytes());  // until the owner takes no more
                       }
                       acts = round > 200;
                       look_again_soon();
                     }
                   },
                   4});
    return all;
  }
  usual_user as{256};
  tp::reference ref{};
};
INSTANTIATE_TYPED_TEST_SUITE_P(SharedMemory, ThirdParties, crowded_shared_room);

struct shared_sessions : session_room<shared_room> {
  auto third_parties() const {
    return strangers_in_numbers([at = name] { return stranger_at(at); }, few_strangers);
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(SharedSessions, ThirdParties, shared_sessions);

INSTANTIATE_TYPED_TEST_SUITE_P(SharedMemory, TwoWayLaws, named_pair<shared_room>);

}  // namespace laws_shared_memory_test
