// The laws of all transports over Unix sockets and shared memory.
#include "laws.hpp"
#include "shm.hpp"
#include "two_way_laws.hpp"

#include <tensorpull/transports/over/unix_socket/unix_socket.hpp>

#include <filesystem>

namespace laws_unix_test {

using namespace test;

bool ends(std::string_view path, std::string_view said) {
  auto to = tp::unix_connect(path, 10s);
  EXPECT_TRUE(to);
  if (!to) return false;
  raw_peer peer(tp::posix_stream(to->release()));
  (void)peer.say(said);
  return peer.hear_end();
}

struct unix_room : usual_room {
  using transport = tp::unix_socket;
  template <class Model>
  using net = tp::pipeline<tp::raw_tensors<Model>, tp::fixed_bytes<64_KiB>, transport>;

  template <class Model>
  auto open(const tp::authorise_callback& may) {
    return net<Model>::downloader::open({.listen = path, .host = {.authorise = may}});
  }
  const std::string& where() const { return path; }
  bool stranger(std::string_view said) const { return ends(path, said); }
  ~unix_room() { EXPECT_FALSE(std::filesystem::exists(path)) << "an owner takes its socket with it"; }

  std::string path = (std::filesystem::temp_directory_path() / abstract_name().substr(1)).string();
};
struct shared_room : usual_room {
  using transport = tp::shared_memory;
  template <class Model>
  using net = shared_net<Model>;

  template <class Model>
  auto open(const tp::authorise_callback& may) {
    return net<Model>::downloader::open({.listen = name, .host = {.authorise = may}});
  }
  const std::string& where() const { return name; }
  bool stranger(std::string_view said) const { return ends(name, said); }

  std::string name = abstract_name();
};
INSTANTIATE_TYPED_TEST_SUITE_P(UnixSocket, Laws, unix_room);
INSTANTIATE_TYPED_TEST_SUITE_P(SharedMemory, Laws, shared_room);

template <class Room>
struct named_pair : usual_pair {
  using net = typename Room::template net<mlp>;
  auto ends() {
    const auto name = abstract_name();
    auto listener = Room::transport::listen(name);
    return connected_ends<net>(*listener, name);
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(UnixSocket, TwoWayLaws, named_pair<unix_room>);
INSTANTIATE_TYPED_TEST_SUITE_P(SharedMemory, TwoWayLaws, named_pair<shared_room>);

}  // namespace laws_unix_test
