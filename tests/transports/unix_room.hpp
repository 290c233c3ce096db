// Where the laws of all transports hold over Unix sockets.
#pragma once

#include "laws.hpp"
#include "network.hpp"
#include "support/frames.hpp"
#include "support/own_folder.hpp"
#include "third_parties.hpp"
#include "two_way_laws.hpp"

#include <tensorpull/transports/over/unix_socket/unix_socket.hpp>

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <filesystem>

namespace test {

inline bool ends(std::string_view path, std::string_view said) {
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
  using net = raw_net<Model, transport>;

  template <class Model>
  auto open(const tp::authorise_callback& may) {
    return net<Model>::downloader::open({.listen = path, .host = {.authorise = may}});
  }
  const std::string& where() const { return path; }
  auto listen() const { return transport::listen(path); }
  bool stranger(std::string_view said) const { return ends(path, said); }
  ~unix_room() { EXPECT_FALSE(std::filesystem::exists(path)) << "an owner takes its socket with it"; }

  own_folder folder;
  std::string path = folder / "owner";
};

inline raw_peer stranger_at(std::string_view path) {
  auto to = tp::unix_connect(path, 10s);
  EXPECT_TRUE(to);
  return raw_peer(tp::posix_stream(to ? to->release() : -1));
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

template <class Room>
struct named_pair : usual_pair {
  using net = typename Room::template net<mlp>;
  auto ends() {
    const auto name = abstract_name();
    auto listener = Room::transport::listen(name);
    return connected_ends<net>(*listener, name);
  }
};

}  // namespace test
