// Threads of a test.
#pragma once

#include "waiting.hpp"

#include <concepts>
#include <deque>
#include <stop_token>
#include <thread>
#include <utility>

namespace test {

/// A thread that begins with this object and has ended when the object has gone, on every way out of a test. It can
/// neither be assigned nor be empty, so all that its work borrows was declared before it, and goes after it. As a
/// member it is the last one. The work may take a std::stop_token.
class joined_thread {
 public:
  template <class Work>
  explicit joined_thread(Work work)
      : thread_([work = std::move(work)](const std::stop_token& stop) mutable {
          if constexpr (std::invocable<Work&, const std::stop_token&>) work(stop);
          else work();
        }) {}
  joined_thread(const joined_thread&) = delete;
  void request_stop() { thread_.request_stop(); }
  void join() {
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::jthread thread_;
};

/// Asks to stop after a time.
class stop_after : public std::stop_source {
 public:
  explicit stop_after(std::chrono::milliseconds time)
      : thread_([this, time] {
          be_slow(time);
          request_stop();
        }) {}

 private:
  joined_thread thread_;
};

/// Several of them; each is told its number, from 0.
class joined_threads {
 public:
  template <class Work>
  joined_threads(std::size_t count, Work work) {
    for (std::size_t i = 0; i < count; ++i)
      threads_.emplace_back([work, i](const std::stop_token& stop) mutable {
        if constexpr (std::invocable<Work&, std::size_t, const std::stop_token&>) work(i, stop);
        else work(i);
      });
  }
  void request_stop() {
    for (auto& t : threads_) t.request_stop();
  }
  void join() {
    for (auto& t : threads_) t.join();
  }
  ~joined_threads() { request_stop(); }

 private:
  std::deque<joined_thread> threads_;
};

/// Does it on so many threads at once, and returns when all of them are done.
template <class Work>
void on_threads(std::size_t count, Work work) {
  joined_threads(count, std::move(work)).join();
}

}  // namespace test
