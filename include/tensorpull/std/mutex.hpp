// The lock that a shared table takes: nothing where one thread uses it.
#pragma once

namespace tensorpull {

/// For what one thread uses. A lock for several has the same three members; relax() lets the others go on.
struct no_lock {
  constexpr void lock() noexcept {}
  constexpr void unlock() noexcept {}
  constexpr void relax() noexcept {}
};

template <class Lock>
class [[nodiscard]] lock_guard {
 public:
  explicit lock_guard(Lock& l) noexcept : lock_(l) { lock_.lock(); }
  lock_guard(const lock_guard&) = delete;
  lock_guard& operator=(const lock_guard&) = delete;
  ~lock_guard() { lock_.unlock(); }

 private:
  Lock& lock_;
};

}  // namespace tensorpull
