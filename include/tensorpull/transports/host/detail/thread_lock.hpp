// The lock of a host that several threads run.
#pragma once

#include <chrono>
#include <mutex>
#include <thread>

namespace tensorpull::detail {

struct thread_lock {
  std::mutex mutex;
  void lock() noexcept { mutex.lock(); }
  void unlock() noexcept { mutex.unlock(); }
  /// Sleeps, because another thread's callback may take its time.
  void relax() noexcept { std::this_thread::sleep_for(std::chrono::microseconds(50)); }
};

}  // namespace tensorpull::detail
