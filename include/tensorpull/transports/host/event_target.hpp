// The targets that an event loop calls. event_loop.hpp has the loop.
#pragma once

#include <tensorpull/core/detail/linked_queue.hpp>
#include <tensorpull/links/byte_stream.hpp>
#include <tensorpull/std/chrono.hpp>
#include <tensorpull/std/memory.hpp>

#include <cstdint>

namespace tensorpull {

class event_loop;

/// Something that a loop calls: when its descriptor is ready, when its alarm is due, or because somebody has posted to
/// it. Made with `new`; retire() destroys it.
class event_target {
 public:
  /// A bit of happened(): the descriptor can be read.
  static constexpr std::uint32_t readable = 1;
  /// It can be written.
  static constexpr std::uint32_t writable = 2;
  /// The alarm is due.
  static constexpr std::uint32_t alarm = 4;
  /// The first of the bits that a target may post to itself; all above are its own, too.
  static constexpr std::uint32_t own = 8;

  /// Borrows the loop.
  explicit event_target(event_loop& on) noexcept : loop_(on) {}
  event_target(const event_target&) = delete;
  event_target& operator=(const event_target&) = delete;

  /// Lets the loop watch a descriptor, which stays the caller's. Returns 0, or errno: ENOMEM, EBADF (-1, for example),
  /// or why the system cannot watch it.
  int watch(int fd) noexcept;
  /// Stops watching the descriptor, so that it can be closed.
  void unwatch() noexcept;
  /// Waits for these directions of the descriptor from now on, and no others. When one is ready, it is reported once,
  /// and the wait has ended.
  void wait(io_ready directions) noexcept;
  /// Sets the alarm, instead of the one that was set before.
  void alarm_after(std::chrono::milliseconds time) noexcept;
  /// Drops the alarm.
  void drop_alarm() noexcept;
  /// Lets the loop call happened() with these bits. On any thread.
  void post(std::uint32_t what) noexcept;
  /// It is called no more, and is destroyed as soon as no thread is inside it.
  void retire() noexcept;

 protected:
  virtual ~event_target() = default;
  /// Is called with the bits of all that has happened since the last call. One thread at a time is inside it.
  virtual void happened(std::uint32_t what) noexcept = 0;

 private:
  friend event_loop;
  friend detail::linked_queue<event_target>;

  event_loop& loop_;
  // the loop's, guarded by its lock
  event_target *before_ = nullptr, *after_ = nullptr, *next_alarm_ = nullptr;
  std::chrono::steady_clock::time_point alarm_at_{};
  std::uint32_t pending_ = 0, armed_ = 0;
  int fd_ = -1;
  bool queued_ = false, inside_ = false, retired_ = false, alarmed_ = false;
};

namespace detail {
struct retire {
  void operator()(event_target* t) const noexcept { t->retire(); }
};
}  // namespace detail

/// Owns a target, and retires it.
template <class Target>
using target_ptr = detail::unique_ptr<Target, detail::retire>;

}  // namespace tensorpull
