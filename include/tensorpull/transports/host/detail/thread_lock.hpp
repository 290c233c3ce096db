// The lock of a host that several threads run.
#pragma once

#include <mutex>
#include <thread>

namespace tensorpull::detail {

struct thread_lock {
  std::mutex mutex;
  void lock() noexcept { mutex.lock(); }
  void unlock() noexcept { mutex.unlock(); }
  void relax() noexcept { std::this_thread::yield(); }
};

}  // namespace tensorpull::detail
