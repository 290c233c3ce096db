// The laws of all transports over Unix sockets.
#include "session_door.hpp"
#include "unix_room.hpp"

namespace laws_unix_test {

using namespace test;

INSTANTIATE_TYPED_TEST_SUITE_P(UnixSocket, Laws, unix_room);

/// A connected TCP socket whose close waits until the other end reads, for at most so long, and the other end, which
/// does not read.
std::pair<tp::posix_stream, tp::posix_stream> lingering(int seconds) {
  raw_listener listener;
  tp::posix_stream near(raw_peer(listener.port()).stream().release());
  tp::posix_stream far(listener.accept().stream().release());
  const byte_vector bytes(1 << 20);
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
              for (const auto soon = within(100ms); !soon.stop_requested() && !stop.stop_requested();)
                look_again_soon();
            }
          }};
}
/// Whether the system can refuse descriptors that are passed (Linux 6.16).
bool can_refuse_descriptors() {
  const tp::posix_stream s(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int off = 0;
  return ::setsockopt(s.native_handle(), SOL_SOCKET, 83, &off, sizeof off) == 0;
}

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
INSTANTIATE_TYPED_TEST_SUITE_P(UnixSocket, ThirdParties, crowded_unix_room);

struct unix_sessions : session_room<unix_room> {
  auto third_parties() const {
    return strangers_in_numbers([at = path] { return stranger_at(at); }, few_strangers);
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(UnixSessions, ThirdParties, unix_sessions);

INSTANTIATE_TYPED_TEST_SUITE_P(UnixSocket, TwoWayLaws, named_pair<unix_room>);

}  // namespace laws_unix_test
