// Ends that are killed: what the other end notices, and what is left.
#include "shm.hpp"

#include <sys/wait.h>

#include <csignal>
#include <filesystem>

namespace shm_lost_test {

using namespace test;
using net = shared_net<large>;
using namespace tensorpull;

/// An owner in a process of its own, which writes its reference and waits to be killed.
struct owner_process {
  explicit owner_process(const std::string& address, bool listens_only = false) {
    int out[2];
    EXPECT_EQ(::pipe2(out, O_CLOEXEC), 0);
    id = ::fork();
    if (id == 0) {
      const auto model = make_shared_model<large>();
      model->get()->w[1][2][3] = 4;
      auto owner = net::downloader::open({.listen = address});
      const auto published = owner->add_tensors(*model, {.recipients = 2});
      (void)!::write(out[1], &*published, sizeof *published);
      if (listens_only) ::pause();
      owner->run(stop_token{});
      ::_exit(0);
    }
    ::close(out[1]);
    EXPECT_EQ(::read(out[0], &ref, sizeof ref), static_cast<ssize_t>(sizeof ref));
    ::close(out[0]);
  }
  ~owner_process() { kill(); }
  void kill() {
    if (id <= 0) return;
    ::kill(id, SIGKILL);
    ::waitpid(std::exchange(id, -1), nullptr, 0);
  }
  pid_t id = -1;
  reference ref{};
};

TEST(SharedLost, A_view_stays_readable_when_its_owner_is_killed) {
  const std::string address = abstract_name();
  owner_process owner(address);
  const auto view = net::view(address, owner.ref);
  ASSERT_TRUE(view) << to_string(view.error().code);
  owner.kill();
  EXPECT_EQ((*view->model())->w[1][2][3], 4);
  float sum = 0;
  for (const auto& plane : (*view->model())->w)
    for (const auto& row : plane)
      for (const float x : row) sum += x;
  EXPECT_EQ(sum, 4);
}

TEST(SharedLost, A_killed_owner_is_noticed_by_the_recipient_that_waits_for_it) {
  const std::string address = abstract_name();
  owner_process owner(address, true);
  std::jthread later([&] {
    std::this_thread::sleep_for(200ms);
    owner.kill();
  });
  const auto start = std::chrono::steady_clock::now();
  const auto view = net::view(address, owner.ref, {.retry = {.retries = 0}});
  ASSERT_FALSE(view);
  EXPECT_EQ(view.error().code, errc::connection_lost);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 200ms + 2s);  // it would wait for 600 s otherwise
}

TEST(SharedLost, A_killed_recipient_is_noticed_by_the_owner) {
  const auto model = make_shared_model<large>();
  ASSERT_TRUE(model);
  shared_owner<net> o;
  const auto ref = o.add(*model);
  o.serve();
  int ready[2];
  ASSERT_EQ(::pipe2(ready, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto mine = blank<large>();
    struct until_half {
      int fd;
      void operator()(const progress_event& e) const noexcept {
        if (e.bytes_done > 0) (void)!::write(fd, "x", 1), ::pause();
      }
    };
    const until_half stop{ready[1]};
    (void)net::download_tensors(o.address, ref, *mine, {.progress = stop, .progress_interval = 0ms});
    ::_exit(1);
  }
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  o.stop();
  o.owner.run([&](const auto& owner) { return owner.status_of(ref)->lost == 1; }, within(20s));
  EXPECT_EQ(o.owner.status_of(ref)->lost, 1u);
  EXPECT_EQ(o.owner.connections(), 0u);
  ::close(ready[0]), ::close(ready[1]);
}

TEST(SharedLost, Nothing_is_left_behind) {
  const auto before = descriptors();
  const std::string path = std::filesystem::temp_directory_path() / ("tensorpull.shm." + std::to_string(::getpid()));
  {
    const auto model = make_shared_model<large>();
    ASSERT_TRUE(model);
    auto owner = net::downloader::open({.listen = path});
    ASSERT_TRUE(owner) << to_string(owner.error().code);
    const auto ref = owner->add_tensors(*model, {.recipients = 1});
    ASSERT_TRUE(ref);
    serving server(*owner);
    const auto view = net::view(path, *ref);
    ASSERT_TRUE(view);
    EXPECT_TRUE(std::filesystem::exists(path));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(descriptors(), before);
}

}  // namespace shm_lost_test
