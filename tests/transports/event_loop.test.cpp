#include "support/threads.hpp"

#include <tensorpull/links/posix/posix_stream.hpp>
#include <tensorpull/transports/host/event_loop.hpp>

#include <gtest/gtest.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

/// Is done once before a wait in the kernel, which then does not wait, and is given the result.
static thread_local std::function<void()> before_wait;
static thread_local int waited = 0;
/// Is done once between the wait in the kernel and the step of the loop that follows it.
static thread_local std::function<void()> after_wait;
// In the place of the C library's.
extern "C" int epoll_wait(int fd, epoll_event* ready, int most, int ms) {
  if (const auto first = std::exchange(before_wait, {})) {
    first();
    return waited = ::epoll_pwait(fd, ready, most, 0, nullptr);
  }
  const int n = ::epoll_pwait(fd, ready, most, ms, nullptr);
  if (const auto meanwhile = std::exchange(after_wait, {})) meanwhile();
  return n;
}

namespace event_loop_test {

using namespace tensorpull;
using namespace std::chrono_literals;

/// Notes what has happened, and does what the test says.
struct noting : event_target {
  using event_target::event_target;
  explicit noting(event_loop& on, int* destroyed) : event_target(on), gone(destroyed) {}
  ~noting() override {
    if (gone != nullptr) ++*gone;
  }
  void happened(std::uint32_t what) noexcept override {
    seen.push_back(what);
    if (then) then();
  }
  std::vector<std::uint32_t> seen;
  std::function<void()> then;
  int* gone = nullptr;
};
using owned = target_ptr<noting>;

struct pipe_ends {
  pipe_ends() { EXPECT_EQ(::pipe2(fd.data(), O_CLOEXEC | O_NONBLOCK), 0); }
  ~pipe_ends() {
    ::close(fd[0]);
    ::close(fd[1]);
  }
  std::array<int, 2> fd{};
};

TEST(EventLoop, Posts_that_come_before_a_call_are_one_call_and_later_ones_another) {
  event_loop loop;
  const owned t(new noting(loop));
  t->post(8);
  t->post(16);
  t->post(8);
  t->then = [&] {
    if (t->seen.size() == 1) t->post(32);
  };
  EXPECT_EQ(loop.run(), 2u);
  EXPECT_EQ(t->seen, (std::vector<std::uint32_t>{24, 32}));
  EXPECT_EQ(loop.run(), 0u) << "there is nothing to wait for";
}

TEST(EventLoop, A_descriptor_is_reported_once_for_each_wait) {
  event_loop loop;
  pipe_ends p;
  const owned t(new noting(loop));
  ASSERT_EQ(t->watch(p.fd[0]), 0);
  ASSERT_EQ(::write(p.fd[1], "x", 1), 1);
  EXPECT_EQ(loop.poll(), 0u) << "nobody waits for it";
  t->wait({true, false});
  EXPECT_EQ(loop.poll(), 1u);
  EXPECT_EQ(loop.poll(), 0u);
  t->wait({true, false});
  EXPECT_EQ(loop.poll(), 1u) << "it is readable still";
  EXPECT_EQ(t->seen, (std::vector<std::uint32_t>{event_target::readable, event_target::readable}));
}

TEST(EventLoop, A_wait_that_begins_while_an_event_of_the_one_before_is_on_its_way_is_kept) {
  event_loop loop;
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
  const posix_stream here(ends[0]), there(ends[1]);
  const owned t(new noting(loop));
  ASSERT_EQ(t->watch(ends[0]), 0);
  t->wait({true, true});
  after_wait = [&] { t->wait({true, false}); };  // as another thread does that is inside of the target
  EXPECT_EQ(loop.poll(), 0u) << "it can be written, which nobody waits for any more";
  ASSERT_EQ(::write(ends[1], "x", 1), 1);
  EXPECT_EQ(loop.poll(), 1u);
  EXPECT_EQ(t->seen, (std::vector<std::uint32_t>{event_target::readable}));
}

TEST(EventLoop, A_hang_up_is_reported_for_what_is_waited_for) {
  event_loop loop;
  pipe_ends p;
  const owned t(new noting(loop));
  ASSERT_EQ(t->watch(p.fd[0]), 0);
  ::close(std::exchange(p.fd[1], ::dup(0)));
  EXPECT_EQ(loop.poll(), 0u);
  t->wait({true, false});
  EXPECT_EQ(loop.run_one(), 1u);
  EXPECT_EQ(t->seen, (std::vector<std::uint32_t>{event_target::readable}));
}

TEST(EventLoop, A_descriptor_that_is_watched_already_is_refused_and_its_target_hears_of_it_still) {
  event_loop loop;
  pipe_ends p;
  const owned first(new noting(loop)), second(new noting(loop));
  ASSERT_EQ(first->watch(p.fd[0]), 0);
  first->wait({true, false});
  EXPECT_EQ(second->watch(p.fd[0]), EEXIST);
  ASSERT_EQ(::write(p.fd[1], "x", 1), 1);
  EXPECT_EQ(loop.poll(), 1u);
  EXPECT_EQ(first->seen.size(), 1u);
}

TEST(EventLoop, An_alarm_comes_when_it_is_due_and_the_last_one_that_was_set_counts) {
  event_loop loop;
  const owned first(new noting(loop)), second(new noting(loop)), dropped(new noting(loop));
  const auto start = std::chrono::steady_clock::now();
  first->alarm_after(1h);
  first->alarm_after(20ms);
  second->alarm_after(1ms);
  dropped->alarm_after(2ms);
  dropped->drop_alarm();
  EXPECT_EQ(loop.run_one(), 1u);
  EXPECT_EQ(second->seen.size(), 1u);
  EXPECT_EQ(loop.run(), 1u);
  EXPECT_EQ(first->seen, (std::vector<std::uint32_t>{event_target::alarm}));
  EXPECT_GE(std::chrono::steady_clock::now() - start, 20ms);
  EXPECT_TRUE(dropped->seen.empty());
}

TEST(EventLoop, An_alarm_that_is_due_can_be_dropped_or_put_off_until_it_is_called) {
  event_loop loop;
  const owned first(new noting(loop)), second(new noting(loop));
  for (const auto& [one, other] : {std::pair(first.get(), second.get()), std::pair(second.get(), first.get())}) {
    one->then = [other = other] { other->drop_alarm(); };
    one->alarm_after(0ms);
  }
  test::be_slow(2ms);
  EXPECT_EQ(loop.run(), 1u);
  for (noting* const one : {first.get(), second.get()}) one->alarm_after(0ms);
  first->then = [&] { second->alarm_after(1h); };
  second->then = [&] { first->alarm_after(1h); };
  test::be_slow(2ms);
  EXPECT_EQ(loop.run_one(), 1u);
  EXPECT_EQ(loop.poll(), 0u);
}

TEST(EventLoop, What_has_happened_to_a_descriptor_is_not_told_when_it_is_not_watched_any_more) {
  event_loop loop;
  pipe_ends p;
  const owned first(new noting(loop)), second(new noting(loop));
  ASSERT_EQ(first->watch(p.fd[0]), 0);
  ASSERT_EQ(second->watch(p.fd[1]), 0);
  ASSERT_EQ(::write(p.fd[1], "x", 1), 1);
  first->wait({true, false});
  second->wait({false, true});
  first->then = [&] { second->unwatch(); };
  second->then = [&] { first->unwatch(); };
  EXPECT_EQ(loop.run(), 1u);
}

TEST(EventLoop, A_time_that_is_longer_than_the_clock_goes_has_no_end) {
  event_loop loop;
  const owned never(new noting(loop)), soon(new noting(loop));
  never->alarm_after(std::chrono::milliseconds::max());
  soon->alarm_after(1ms);
  EXPECT_EQ(loop.run_one_for(std::chrono::nanoseconds::max()), 1u);
  soon->then = [&] { loop.stop(); };
  soon->alarm_after(1ms);
  EXPECT_EQ(loop.run_for(std::chrono::nanoseconds::max()), 1u);
  EXPECT_EQ(soon->seen.size(), 2u);
  EXPECT_TRUE(never->seen.empty());
}

TEST(EventLoop, Records_for_more_descriptors_than_there_is_memory_for_are_refused) {
  event_loop loop;
  for (const std::size_t many : {PTRDIFF_MAX / std::size_t{16}, PTRDIFF_MAX / std::size_t{2}, ~std::size_t{0} - 1000}) {
    EXPECT_FALSE(loop.reserve(many)) << many;
  }
  EXPECT_TRUE(loop.reserve(100));
}

TEST(EventLoop, A_target_that_has_retired_is_not_called_and_is_destroyed_after_the_call_that_it_is_in) {
  event_loop loop;
  int destroyed = 0;
  auto* const itself = new noting(loop, &destroyed);
  auto* const other = new noting(loop, &destroyed);
  itself->then = [&] {
    other->retire();
    itself->retire();
    EXPECT_EQ(destroyed, 1) << "the one that is not inside of a call";
  };
  itself->post(8);
  other->post(8);
  EXPECT_EQ(loop.run(), 1u);
  EXPECT_EQ(destroyed, 2);
}

TEST(EventLoop, A_target_that_is_retired_within_a_call_leaves_neither_an_alarm_nor_a_watch_behind) {
  event_loop loop;
  pipe_ends p;
  int destroyed = 0;
  auto* const t = new noting(loop, &destroyed);
  t->then = [&] {
    t->retire();  // as another thread does that does not know where this one is
    t->alarm_after(0ms);
    EXPECT_EQ(t->watch(p.fd[1]), EBADF);
    t->wait({false, true});
    t->post(8);
  };
  t->post(8);
  EXPECT_EQ(loop.run(), 1u);
  EXPECT_EQ(destroyed, 1);
  EXPECT_EQ(loop.run(), 0u);
}

TEST(EventLoop, A_target_that_goes_on_for_ever_leaves_a_turn_to_each_of_the_others) {
  event_loop loop;
  pipe_ends p;
  const owned busy(new noting(loop)), waiting(new noting(loop));
  busy->then = [&] { busy->post(8); };
  busy->post(8);
  ASSERT_EQ(waiting->watch(p.fd[1]), 0);
  EXPECT_EQ(loop.run_one(), 1u);
  waiting->wait({false, true});  // when the other one is in the queue again
  for (int i = 0; i < 2; ++i) EXPECT_EQ(loop.run_one(), 1u);
  EXPECT_EQ(waiting->seen.size(), 1u);
}

TEST(EventLoop, It_runs_for_the_time_that_it_is_told_to_also_if_there_is_always_something_to_call) {
  struct busy_target : event_target {
    using event_target::event_target;
    void happened(std::uint32_t) noexcept override {
      if (++calls < most) post(own);
    }
    const std::size_t most = 1'000'000;  // no machine gets so far in 1 ms
    std::size_t calls = 0;
  };
  event_loop loop;
  const target_ptr<busy_target> busy(new busy_target(loop));
  busy->post(event_target::own);
  EXPECT_EQ(loop.run_for(1ms), busy->calls);
  EXPECT_LT(busy->calls, busy->most);
  EXPECT_EQ(loop.run_for(0ms), 1u);
}

TEST(EventLoop, Threads_that_run_it_call_one_target_one_at_a_time_and_miss_nothing) {
  struct counting : event_target {
    using event_target::event_target;
    void happened(std::uint32_t) noexcept override {
      most = std::max(most, ++inside);
      calls += 1;
      handled = posted.load();
      --inside;
    }
    std::atomic<int> inside{0};
    std::atomic<std::uint64_t> posted{0}, handled{0};
    int most = 0;  // these two are the target's own: it is called by one thread at a time
    std::uint64_t calls = 0;
  };
  event_loop loop;
  std::vector<counting*> targets;
  for (int i = 0; i < 4; ++i) targets.push_back(new counting(loop));
  const owned keeps(new noting(loop));
  keeps->alarm_after(1h);
  test::joined_threads runners(3, [&](std::size_t) { loop.run(); });
  test::on_threads(2, [&](std::size_t) {
    for (int n = 0; n < 20'000; ++n) {
      counting& t = *targets[static_cast<std::size_t>(n) % targets.size()];
      ++t.posted;
      t.post(event_target::own);
    }
  });
  for (counting* t : targets)
    while (t->handled != 10'000) std::this_thread::yield();
  keeps->drop_alarm();
  keeps->post(event_target::own);  // after that there is nothing to wait for, on any thread
  runners.join();
  for (counting* t : targets) {
    EXPECT_EQ(t->most, 1);
    EXPECT_GT(t->calls, 0u);
    t->retire();
  }
}

TEST(EventLoop, Stop_ends_the_wait_of_each_thread_until_it_is_restarted) {
  event_loop loop;
  const owned keeps(new noting(loop));
  keeps->alarm_after(1h);
  test::joined_threads runners(3, [&](std::size_t) { loop.run(); });
  loop.stop();
  runners.join();
  keeps->post(8);
  EXPECT_EQ(loop.run_one(), 0u);
  loop.restart();
  EXPECT_EQ(loop.run_one(), 1u);
}

TEST(EventLoop, A_thread_that_waits_returns_when_another_one_takes_the_last_away_that_it_waits_for) {
  event_loop loop;
  pipe_ends p;
  const owned alarmed(new noting(loop)), watching(new noting(loop));
  auto* const retires = new noting(loop);
  const auto ends = [&](auto how) {
    before_wait = how;
    waited = 0;
    EXPECT_EQ(loop.run_one(), 0u);
    return waited == 1;
  };
  alarmed->alarm_after(1h);
  EXPECT_TRUE(ends([&] { alarmed->drop_alarm(); }));
  ASSERT_EQ(watching->watch(p.fd[0]), 0);
  watching->wait({true, false});
  EXPECT_TRUE(ends([&] { watching->wait({}); }));
  watching->wait({true, false});
  EXPECT_TRUE(ends([&] { watching->unwatch(); }));
  retires->alarm_after(1h);
  EXPECT_TRUE(ends([&] { retires->retire(); }));
}

TEST(EventLoop, Its_descriptor_is_readable_while_there_is_something_to_call) {
  event_loop loop;
  const owned first(new noting(loop)), second(new noting(loop));
  const auto readable = [fd = loop.native_handle()] {
    pollfd p{fd, POLLIN, 0};
    return ::poll(&p, 1, 0) == 1;
  };
  EXPECT_EQ(loop.poll(), 0u);
  EXPECT_FALSE(readable());
  first->post(8);
  second->post(8);
  EXPECT_TRUE(readable());
  EXPECT_EQ(loop.poll(1), 1u);
  EXPECT_TRUE(readable()) << "one is left";
  EXPECT_EQ(loop.poll(), 1u);
  EXPECT_FALSE(readable());
}

TEST(EventLoop, Its_descriptor_is_not_readable_between_stop_and_restart) {
  event_loop loop;
  pipe_ends p;
  const owned posted(new noting(loop)), watching(new noting(loop));
  const auto readable = [fd = loop.native_handle()] {
    pollfd is{fd, POLLIN, 0};
    return ::poll(&is, 1, 0) == 1;
  };
  loop.stop();
  EXPECT_TRUE(readable()) << "a thread that waits for it learns of the stop";
  EXPECT_EQ(loop.poll(), 0u);
  EXPECT_FALSE(readable()) << "a program that waits for it would spin";
  posted->post(8);
  ASSERT_EQ(watching->watch(p.fd[1]), 0);
  watching->wait({false, true});
  EXPECT_EQ(loop.poll(), 0u);
  EXPECT_FALSE(readable());
  loop.restart();
  EXPECT_TRUE(readable());
  EXPECT_EQ(loop.poll(), 2u) << "nothing is lost";
}

TEST(EventLoop, Without_descriptors_it_says_why_and_watches_nothing) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int top = ::fcntl(0, F_DUPFD_CLOEXEC, 0);
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(top) + 1;
  ::setrlimit(RLIMIT_NOFILE, &none);
  event_loop loop;
  ::setrlimit(RLIMIT_NOFILE, &before);
  ::close(top);
  EXPECT_EQ(loop.error(), EMFILE);
  const owned t(new noting(loop));
  EXPECT_EQ(t->watch(0), EMFILE);
}

}  // namespace event_loop_test
