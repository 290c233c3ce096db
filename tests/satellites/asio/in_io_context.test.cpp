#include <tensorpull/satellites/asio/in_io_context.hpp>

#include <tensorpull/transports/host/owner.hpp>

#include "support/threads.hpp"
#include "transports/sample_models.hpp"

#include <gtest/gtest.h>

#include <atomic>

namespace in_io_context_test {

using namespace tensorpull;
using namespace test;
using namespace std::chrono_literals;

using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, tcp>;

TEST(InIoContext, An_owner_serves_and_settles_in_the_program_s_own_loop) {
  const auto source = random_model<mlp>(1);
  auto owner = net::downloader::open();
  ASSERT_TRUE(owner);
  boost::asio::io_context io;
  bool settled = false;
  const auto end = [&](const settlement&) { settled = true; };
  const auto ref = *owner->add_tensors(*source, {.recipients = 2, .settled = end});
  const in_io_context serving(owner->event_loop(), io);
  std::atomic<int> equal{0};
  test::joined_threads recipients(2, [&](std::size_t) {
    auto mine = std::make_unique<mlp>();
    if (net::download_tensors("127.0.0.1:" + std::to_string(owner->port()), ref, *mine)) equal += same(*mine, *source);
  });
  while (!settled && io.run_one() != 0) {
  }
  recipients.join();
  EXPECT_TRUE(settled);
  EXPECT_EQ(equal, 2);
}

TEST(InIoContext, What_is_posted_on_another_thread_wakes_it_and_other_work_has_its_turn) {
  struct counting : event_target {
    using event_target::event_target;
    void happened(std::uint32_t) noexcept override {
      if (++calls < 1000) post(own);
    }
    int calls = 0;
  };
  event_loop loop;
  boost::asio::io_context io;
  auto* const target = new counting(loop);
  {
    const in_io_context serving(loop, io);
    test::joined_thread other([&] { target->post(event_target::own); });
    int turns = 0;
    while (target->calls < 1000 && io.run_one() != 0) {
      EXPECT_LE(target->calls, ++turns * static_cast<int>(in_io_context::turn));
    }
    other.join();
    EXPECT_EQ(target->calls, 1000);
  }
  EXPECT_EQ(io.run(), 1u) << "the wait that has ended";
  target->retire();
}

TEST(InIoContext, What_is_left_in_the_queue_of_a_loop_that_ran_before_is_called) {
  struct counting : event_target {
    using event_target::event_target;
    void happened(std::uint32_t) noexcept override { ++calls; }
    int calls = 0;
  };
  event_loop loop;
  boost::asio::io_context io;
  const target_ptr<counting> first(new counting(loop)), second(new counting(loop));
  first->post(event_target::own);
  second->post(event_target::own);
  EXPECT_EQ(loop.run_one(), 1u);
  {
    const in_io_context serving(loop, io);
    io.poll();
    EXPECT_EQ(first->calls, 1);
    EXPECT_EQ(second->calls, 1);
  }
  io.poll();
}

}  // namespace in_io_context_test
