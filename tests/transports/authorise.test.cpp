// Access to references, end to end: over TCP, which identifies nobody, and over a stream that knows its peer.
#include "transports/network.hpp"

#include <sys/socket.h>

namespace authorise_test {

using namespace test;
using net = raw_net<tiny, tp::tcp>;

/// A socket whose other end is known to be user 1000.
struct known_stream : tp::posix_stream {
  using tp::posix_stream::posix_stream;
  tp::peer_identity peer() const noexcept { return {.kind = tp::identity_kind::user, .user = 1000}; }
};
struct known : tp::stream_transport<known, known_stream> {
  static constexpr tp::identity_kind identifies = tp::identity_kind::user;
  static tp::result<known_stream> connect(std::string_view, std::chrono::milliseconds, const tp::stop_token&) noexcept {
    return tp::failure(errc::bad_address);
  }
};
using known_net = raw_net<tiny, known>;

TEST(AuthoriseOverTcp, A_callback_that_throws_refuses) {
  const auto source = random_model<tiny>(1);
  auto mine = blank<tiny>();
  auto owner = net::downloader::open(
      {.listen = any_port, .host = {.authorise = [](const tp::access_request&) -> bool { throw 1; }}});
  ASSERT_TRUE(owner);
  const auto ref = owner->add_tensors(*source);
  serving run(*owner);
  const auto refused = net::download_tensors(local(owner->port()), *ref, *mine);
  EXPECT_EQ(code_of(refused), errc::unknown_reference);
  run.stop();
  EXPECT_GE(owner->callback_failures(), 1u);
}
// For what tells of a reference by other means than requests, such as the door of a swarm.
TEST(AuthoriseOverTcp, The_program_is_asked_for_others_too) {
  auto owner = net::downloader::open({.listen = any_port});
  ASSERT_TRUE(owner);
  EXPECT_TRUE(owner->publications().machine().allows({.ref = {1, 2}})) << "nobody is asked";
  owner->publications().authorise([](const tp::access_request& r) { return r.ref.low == 2 && r.version == 3; });
  EXPECT_TRUE(owner->publications().machine().allows({.ref = {1, 2}, .version = 3}));
  EXPECT_FALSE(owner->publications().machine().allows({.ref = {1, 2}, .version = 4}));
}
TEST(AuthoriseOverAStream, A_session_asks_for_the_identity_that_its_stream_knows) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  auto owner = known_net::session::over(known_stream(ends[0]));
  auto recipient = known_net::session::over(known_stream(ends[1]));
  ASSERT_TRUE(owner && recipient);
  EXPECT_EQ(owner->peer().user, 1000u);
  const auto source = random_model<tiny>(1);
  auto mine = blank<tiny>();
  const auto ref = owner->add_tensors(*source, {.recipients = 1});
  ASSERT_TRUE(ref);
  std::uint32_t asked_by = 0;
  owner->authorise([&](const tp::access_request& r) {
    asked_by = r.peer.user;
    return r.peer.kind == tp::identity_kind::user && r.ref == ref->id;
  });
  joined_thread server([&] { EXPECT_TRUE(owner->serve(tp::until_settled(*ref), 20s)); });
  EXPECT_FALSE(recipient->download_tensors({{1, 1}, 0, 0}, *mine));
  const auto done = recipient->download_tensors(*ref, *mine);
  ASSERT_TRUE(succeeded(done));
  server.join();
  EXPECT_EQ(asked_by, 1000u);
  EXPECT_TRUE(same(*source, *mine));
}

}  // namespace authorise_test
