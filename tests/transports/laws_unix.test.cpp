// The laws of all transports over Unix sockets and shared memory.
#include "laws.hpp"
#include "shm.hpp"
#include "support/frames.hpp"
#include "third_parties.hpp"
#include "two_way_laws.hpp"

#include <tensorpull/transports/over/unix_socket/unix_socket.hpp>

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>

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
  static constexpr bool several_connections = true;
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

raw_peer stranger_at(std::string_view path) {
  auto to = tp::unix_connect(path, 10s);
  EXPECT_TRUE(to);
  return raw_peer(tp::posix_stream(to ? to->release() : -1));
}

/// A connected TCP socket whose close waits until the other end reads, for at most so long, and the other end, which
/// does not read.
std::pair<tp::posix_stream, tp::posix_stream> lingering(int seconds) {
  raw_listener listener;
  tp::posix_stream near(raw_peer(listener.port()).stream().release());
  tp::posix_stream far(listener.accept().stream().release());
  const std::vector<std::byte> bytes(1 << 20);
  while (::send(near.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) continue;
  const linger how{1, seconds};
  EXPECT_EQ(::setsockopt(near.native_handle(), SOL_SOCKET, SO_LINGER, &how, sizeof how), 0);
  return {std::move(near), std::move(far)};
}
/// One that passes sockets which it has closed itself, so that the close of the owner's copy is the last.
third_party one_that_passes_descriptors(std::string path) {
  return {"one that passes sockets that linger", [path](const std::stop_token& stop, std::atomic<bool>& acts) {
            std::vector<tp::posix_stream> far;
            while (!stop.stop_requested()) {
              auto to = tp::unix_connect(path, 10s);
              auto [near, end] = lingering(120);
              far.push_back(std::move(end));
              const int fd = near.native_handle();
              std::byte bytes[8]{};
              iovec v{bytes, sizeof bytes};
              alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)]{};
              msghdr m{};
              m.msg_iov = &v, m.msg_iovlen = 1, m.msg_control = control, m.msg_controllen = sizeof control;
              cmsghdr* const c = CMSG_FIRSTHDR(&m);
              c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof fd);
              std::memcpy(CMSG_DATA(c), &fd, sizeof fd);
              if (::sendmsg(to->native_handle(), &m, MSG_NOSIGNAL) < 0) {  // it keeps it, and need not wait either
                const linger none{};
                (void)::setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
              }
              near = {};
              acts = true;
              for (int i = 0; i < 20 && !stop.stop_requested(); ++i) std::this_thread::sleep_for(5ms);
            }
          }};
}
/// Whether the system can refuse descriptors that are passed (Linux 6.16).
bool can_refuse_descriptors() {
  const tp::posix_stream s(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int off = 0;
  return ::setsockopt(s.native_handle(), SOL_SOCKET, 83, &off, sizeof off) == 0;
}

/// As long as it lives, this thread and those that it starts may have as many descriptors under way as users have who
/// are not root, and as the limit on descriptors allows.
class usual_user {
 public:
  explicit usual_user(rlim_t most) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit now = before_;
    now.rlim_cur = std::min(most, now.rlim_cur);
    ::setrlimit(RLIMIT_NOFILE, &now);
    ::syscall(SYS_capget, &about_, had_);
    __user_cap_data_struct has[2]{had_[0], had_[1]};
    for (const int c : {CAP_SYS_RESOURCE, CAP_SYS_ADMIN}) has[c / 32].effective &= ~(1u << (c % 32));
    ::syscall(SYS_capset, &about_, has);
  }
  ~usual_user() {
    ::syscall(SYS_capset, &about_, had_);
    ::setrlimit(RLIMIT_NOFILE, &before_);
  }
  usual_user(const usual_user&) = delete;

 private:
  rlimit before_{};
  __user_cap_header_struct about_{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct had_[2]{};
};

struct crowded_unix_room : unix_room {
  template <class Model>
  auto open(const tp::authorise_callback& may) {
    return net<Model>::downloader::open({.listen = path, .host = crowded(may)});
  }
  auto third_parties() const {
    auto all = strangers_in_numbers([at = path] { return stranger_at(at); }, 3 * few_places);
    if (can_refuse_descriptors()) all.push_back(one_that_passes_descriptors(path));
    return all;
  }
};
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
                         const std::array<std::span<const std::byte>, 1> asks{f.bytes()};
                         (void)a.stream().write_some(asks);  // until the owner takes no more
                       }
                       acts = round > 200;
                       std::this_thread::sleep_for(1ms);
                     }
                   },
                   4});
    return all;
  }
  usual_user as{256};
  tp::reference ref{};
};
INSTANTIATE_TYPED_TEST_SUITE_P(UnixSocket, ThirdParties, crowded_unix_room);
INSTANTIATE_TYPED_TEST_SUITE_P(SharedMemory, ThirdParties, crowded_shared_room);

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
