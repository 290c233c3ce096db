// The lock that a table takes if several threads share it, and the stand-in that does nothing if only one thread uses
// it.
#pragma once

namespace tensorpull {

/// The lock for what only one thread uses. A lock for several threads has the same three members; its relax() lets the
/// other threads run.
struct no_lock {
  /// Does nothing.
  constexpr void lock() noexcept {}
  /// Does nothing.
  constexpr void unlock() noexcept {}
  /// Does nothing.
  constexpr void relax() noexcept {}
};

/// Holds a lock until the end of the scope, as std::lock_guard does.
template <class Lock>
class [[nodiscard]] lock_guard {
 public:
  /// Waits for the lock; borrows it.
  explicit lock_guard(Lock& l) noexcept : lock_(l) { lock_.lock(); }
  lock_guard(const lock_guard&) = delete;
  lock_guard& operator=(const lock_guard&) = delete;
  ~lock_guard() { lock_.unlock(); }

 private:
  Lock& lock_;
};

}  // namespace tensorpull
