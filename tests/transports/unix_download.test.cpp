// Models over Unix sockets: pulls, sessions, hosts, an owner of many connections, and what peers do wrong.
#include "network.hpp"
#include "unix_folder.hpp"

#include <tensorpull/core/describe.hpp>
#include <tensorpull/transports/over/unix_socket/unix_socket.hpp>

namespace unix_download_test {

using namespace test;
using net = raw_net<mlp, tp::unix_socket>;
using over_threads = raw_net<mlp, tp::unix_socket_on_threads>;

static_assert(tp::unix_socket::reliable && tp::unix_socket::ordered && !tp::unix_socket::encrypted &&
              tp::unix_socket::identifies == tp::identity_kind::user);
static_assert(net::memory.recipient <= 4096 &&
              net::memory.owner_per_recipient <= 2048 + tp::unix_socket::connection_bytes);

using UnixDownload = unix_folder;

TEST_F(UnixDownload, C4_ManyRecipientsOnThreadsCompleteAndAreCounted) {
  owner_at_work<over_threads> o(over_threads::downloader::open({.listen = "@" + folder()}), {.recipients = 32}, 2);
  std::atomic<int> completed{0};
  on_threads(32, [&](std::size_t) {
    const auto mine = blank<mlp>();
    const auto done = over_threads::download_tensors("@" + folder(), o.ref, *mine);
    completed += done && same(*mine, *o.source);
  });
  o.server.stop();
  EXPECT_EQ(completed, 32);
  EXPECT_EQ(o.owner->status_of(o.ref)->completed, 32u);
  EXPECT_TRUE(o.owner->settled(o.ref));
}

/// Connects with a host, and pulls into its model.
struct puller {
  using host_type = net::host<puller, net::consumer>;
  mlp& mine;
  tp::reference ref{};
  int completed = 0, closes = 0;
  std::int32_t why = 0;
  void connected(host_type::connection& c) { (void)c.pull(ref, {}, mine); }
  void message(host_type::connection&, const tp::message&) {}
  void pulled(host_type::connection& c, const tp::result<tp::receipt>& r) { completed += r.has_value(), c.close(); }
  void closed(host_type::connection&, const tp::error& e) { ++closes, why = e.system; }
};

TEST_F(UnixDownload, A_host_connects_and_pulls) {
  const auto source = random_model<mlp>(3), mine = blank<mlp>();
  auto owner = net::downloader::open({.listen = path()});
  EXPECT_EQ(owner->port(), 0u);
  puller handler{*mine};
  handler.ref = *owner->add_tensors(*source);
  serving server(*owner);
  tp::event_loop io;
  puller::host_type host(io, handler);
  ASSERT_TRUE(host.connect(path()));
  for (int i = 0; i < 1000 && handler.closes == 0; ++i) io.run_one_for(50ms);
  EXPECT_EQ(handler.completed, 1);
  EXPECT_TRUE(same(*mine, *source));
  const auto refused = host.connect(path() + ".no");
  ASSERT_EQ(code_of(refused), errc::connection_failed);
  EXPECT_EQ(refused.error().system, ENOENT);
}

TEST_F(UnixDownload, Q6_APeerThatClosesWhileItIsSentToEndsNothingElse) {
  struct sigaction before{}, normal{};
  normal.sa_handler = SIG_DFL;
  ASSERT_EQ(::sigaction(SIGPIPE, &normal, &before), 0);
  const auto mine = blank<mlp>();
  owner_at_work<net> o(net::downloader::open({.listen = path()}));
  for (int i = 0; i < 20; ++i) {
    std::atomic<bool> stop{false};
    struct flag {
      const std::atomic<bool>* at;
      bool stop_requested() const noexcept { return at->load(); }
    };
    const auto progress = [&](const tp::progress_event& e) { stop = e.bytes_done > 0; };
    const auto done = net::download_tensors(path(), o.ref, *mine,
                                            {.stop = flag{&stop}, .progress = progress, .progress_interval = {}});
    EXPECT_TRUE(done || done.error().code == errc::cancelled);
  }
  EXPECT_TRUE(net::download_tensors(path(), o.ref, *mine));
  EXPECT_TRUE(same(*mine, *o.source));
  ::sigaction(SIGPIPE, &before, nullptr);
}

/// Counts the tries to write, and the waits.
class counted_stream : public tp::unix_stream {
 public:
  counted_stream() = default;
  counted_stream(int fd, int& writes, int& waits) : tp::unix_stream(fd), writes_(&writes), waits_(&waits) {}
  tp::io_result write_some(std::span<const const_byte_span> spans) noexcept {
    ++*writes_;
    return tp::unix_stream::write_some(spans);
  }
  tp::io_ready wait(bool read, bool write, std::chrono::milliseconds timeout) noexcept {
    ++*waits_;
    return tp::unix_stream::wait(read, write, timeout);
  }

 private:
  int *writes_ = nullptr, *waits_ = nullptr;
};

TEST_F(UnixDownload, T7_APeerThatIsGoneWhileItsMessagesWaitForUsCostsNoWork) {
  int fd[2], writes = 0, waits = 0;
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fd), 0);
  auto mine = tp::stream_session<net::parts, counted_stream>::over(counted_stream(fd[0], writes, waits));
  {
    auto theirs = tp::stream_session<net::parts, tp::unix_stream>::over(tp::unix_stream(fd[1]));
    const std::array<std::byte, 1000> body{};
    while (theirs->send(1, {}, body, 0ms)) {
    }
  }
  EXPECT_FALSE(mine->serve([](const auto&) { return false; }, 500ms));
  EXPECT_LE(waits, 30);
}

TEST_F(UnixDownload, T5_APeerThatOnlyStopsReadingCostsNoWork) {
  int fd[2], writes = 0, waits = 0;
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fd), 0);
  auto owner = tp::stream_session<net::parts, counted_stream>::over(counted_stream(fd[0], writes, waits));
  const auto source = random_model<mlp>(9), copy = blank<mlp>();
  const auto ref = owner->add_tensors(*source);
  ASSERT_TRUE(ref);
  tp::unix_stream mine(fd[1]);
  ASSERT_EQ(::shutdown(fd[1], SHUT_RD), 0);
  tp::land to(tp::raw_tensors<mlp>::destination(*copy));
  ASSERT_FALSE(tp::pull_over<net::parts>(mine, *ref, to, {.retry = {.retries = 0}}));  // it has asked
  EXPECT_FALSE(owner->serve(tp::until_settled(*ref), 500ms));
  EXPECT_LE(writes, 30);
}

TEST_F(UnixDownload, T5_APeerOfAHostThatOnlyStopsReadingCostsNoWork) {
  auto owner = *net::downloader::open({.listen = path()});
  const auto source = random_model<mlp>(10), copy = blank<mlp>();
  const auto ref = owner.add_tensors(*source);
  ASSERT_TRUE(ref);
  auto mine = tp::unix_connect(path(), 10s);
  ASSERT_TRUE(mine);
  ASSERT_EQ(::shutdown(mine->native_handle(), SHUT_RD), 0);
  tp::land to(tp::raw_tensors<mlp>::destination(*copy));
  ASSERT_FALSE(tp::pull_over<net::parts>(*mine, *ref, to, {.retry = {.retries = 0}}));  // it has asked
  const auto spent = [] {
    timespec t{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
  };
  const auto before = spent();
  const auto end = steady_clock::now() + 1s;
  (void)owner.run([&](const auto&) { return steady_clock::now() >= end; });
  EXPECT_LT(spent() - before, 100ms);
}

}  // namespace unix_download_test
