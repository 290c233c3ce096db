// Turns at what one thread at a time may use: one thread serves, and the others publish and ask between its rounds.
#pragma once

#include <tensorpull/links/byte_stream.hpp>
#include <tensorpull/links/posix/posix_stream.hpp>
#include <tensorpull/links/posix/wait.hpp>

#include <sys/eventfd.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace tensorpull::facade {

/// A link of one descriptor whose wait another thread can end.
template <class Link>
class link_with_bell : public Link {
 public:
  explicit link_with_bell(Link&& link) noexcept
      : Link(std::move(link)), bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  /// Ends the wait that is under way, or the next one. Any thread may call it.
  void ring() const noexcept { (void)::eventfd_write(bell_.native_handle(), 1); }
  io_ready wait(bool read, bool write, std::chrono::milliseconds time) noexcept {
    const io_ready now = Link::wait(read, write, {});
    if (now.read || now.write || time.count() <= 0) return now;
    const bool full = !Link::wait(false, true, {}).write;  // what was collected waits for room
    pollfd both[] = {detail::polled(this->native_handle(), {read, write || full}),
                     detail::polled(bell_.native_handle(), {true, false})};
    eventfd_t rung = 0;
    if (detail::poll_for(both, 2, std::min(time, detail::wait_step)) > 0 && both[1].revents != 0)
      (void)::eventfd_read(bell_.native_handle(), &rung);
    return Link::wait(read, write, {});
  }

 private:
  posix_stream bell_;
};

/// A lock that its holder may take again, since callbacks publish and ask. A thread that serves waits for all others.
class turns {
 public:
  /// Makes the thread that serves end its wait; none: it ends by its time.
  std::function<void()> hurry{};

  /// Holds off other threads until what it returns is destroyed.
  auto take(bool serves = false) {
    begin(serves);
    const auto end = [](turns* t) { t->end(); };
    return std::unique_ptr<turns, decltype(end)>(this);
  }

 private:
  void begin(bool serves) {
    std::unique_lock lock(mutex_);
    if (depth_ == 0 || holder_ != std::this_thread::get_id()) {
      waiting_ += !serves;
      if (!serves && depth_ > 0 && hurry) hurry();
      changed_.wait(lock, [&] { return depth_ == 0 && (!serves || waiting_ == 0); });
      waiting_ -= !serves;
      holder_ = std::this_thread::get_id();
    }
    ++depth_;
  }
  void end() {
    const std::lock_guard lock(mutex_);
    if (--depth_ == 0) changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread::id holder_{};
  std::size_t depth_ = 0, waiting_ = 0;
};

}  // namespace tensorpull::facade
