// Ends that are killed: what the other end notices, and what is left.
#include "shm.hpp"
#include "support/child_process.hpp"

#include <filesystem>

namespace shm_lost_test {

using namespace test;
using net = shared_net<large>;
using namespace tensorpull;

/// An owner in a process of its own, which writes its reference and waits to be killed.
struct owner_process {
  explicit owner_process(const std::string& address, bool listens_only = false)
      : process([&] {
          const auto model = make_shared_model<large>();
          model->get()->w[1][2][3] = 4;
          auto owner = net::downloader::open({.listen = address});
          said.tell(*owner->add_tensors(*model, {.recipients = 2}));
          if (listens_only) ::pause();
          owner->run(stop_token{});
          return 0;
        }),
        ref(said.hear()) {}
  one_word<reference> said;
  child_process process;
  reference ref;
};

TEST(SharedLost, A_view_stays_readable_when_its_owner_is_killed) {
  const std::string address = abstract_name();
  owner_process owner(address);
  const auto view = net::view(address, owner.ref);
  ASSERT_TRUE(succeeded(view));
  owner.process.kill();
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
  joined_thread later([&] {
    be_slow(200ms);
    owner.process.kill();
  });
  const auto start = steady_clock::now();
  const auto view = net::view(address, owner.ref, {.retry = {.retries = 0}});
  EXPECT_EQ(code_of(view), errc::connection_lost);
  EXPECT_LT(steady_clock::now() - start, 200ms + 2s);  // it would wait for 600 s otherwise
}

TEST(SharedLost, A_killed_recipient_is_noticed_by_the_owner) {
  const auto model = make_shared_model<large>();
  ASSERT_TRUE(model);
  shared_owner<net> o;
  const auto ref = o.add(*model);
  o.serve();
  one_word<char> half;
  child_process recipient([&] {
    auto mine = blank<large>();
    const auto stop = [&](const progress_event& e) {
      if (e.bytes_done > 0) half.tell('x'), ::pause();
    };
    (void)net::download_tensors(o.address, ref, *mine, {.progress = stop, .progress_interval = 0ms});
    return 1;
  });
  EXPECT_EQ(half.hear(), 'x');
  recipient.kill();
  o.stop();
  EXPECT_TRUE(runs_until("the recipient is lost", o.owner, [&] { return o.owner.status_of(ref)->lost == 1; }));
  EXPECT_EQ(o.owner.connections(), 0u);
}

TEST(SharedLost, Nothing_is_left_behind) {
  const auto before = descriptors();
  const own_folder folder;
  const std::string path = folder / "owner";
  {
    const auto model = make_shared_model<large>();
    ASSERT_TRUE(model);
    auto owner = net::downloader::open({.listen = path});
    ASSERT_TRUE(succeeded(owner));
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
