// The lock of what several threads use. <mutex> and <thread> cost 0.2 s in each file that includes them; this costs
// nothing.
#pragma once

#include <pthread.h>
#include <time.h>

namespace tensorpull::detail {

class thread_lock {
 public:
  thread_lock() noexcept = default;
  thread_lock(const thread_lock&) = delete;
  thread_lock& operator=(const thread_lock&) = delete;
  ~thread_lock() { pthread_mutex_destroy(&mutex_); }

  void lock() noexcept { pthread_mutex_lock(&mutex_); }
  void unlock() noexcept { pthread_mutex_unlock(&mutex_); }
  /// Sleeps, because another thread's callback may take its time.
  void relax() noexcept {
    const timespec time{0, 50'000};
    ::nanosleep(&time, nullptr);
  }

 private:
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
};

}  // namespace tensorpull::detail
