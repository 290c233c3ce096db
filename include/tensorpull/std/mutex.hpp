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
class [[nodiscard]] hold_lock {
 public:
  explicit hold_lock(Lock& l) noexcept : lock_(l) { lock_.lock(); }
  hold_lock(const hold_lock&) = delete;
  hold_lock& operator=(const hold_lock&) = delete;
  ~hold_lock() { lock_.unlock(); }

 private:
  Lock& lock_;
};

}  // namespace tensorpull
