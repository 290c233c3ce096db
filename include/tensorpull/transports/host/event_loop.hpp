// Waits for many descriptors at a time, and calls their targets on the threads that run it, which are the program's. It
// starts no thread.
#pragma once

#include <tensorpull/core/detail/linked_queue.hpp>
#include <tensorpull/links/posix/wait.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/chrono.hpp>
#include <tensorpull/std/mutex.hpp>
#include <tensorpull/system/detail/file_descriptor.hpp>
#include <tensorpull/transports/host/detail/thread_lock.hpp>
#include <tensorpull/transports/host/event_target.hpp>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <new>

namespace tensorpull {

/// An event loop over epoll. Any number of threads may run it at a time. Targets have to be retired before it ends.
class event_loop {
 public:
  using clock = std::chrono::steady_clock;  ///< of alarms and waits

  /// Opens three descriptors. If it cannot, error() has the reason.
  event_loop() noexcept
      : epoll_(::epoll_create1(EPOLL_CLOEXEC)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
    if (!epoll_ || !wake_ || !timer_) error_ = errno;
    else if (!add(wake_.get(), EPOLLIN | EPOLLET, 0) || !add(timer_.get(), EPOLLIN | EPOLLET, 0)) error_ = errno;
  }
  event_loop(const event_loop&) = delete;
  event_loop& operator=(const event_loop&) = delete;
  ~event_loop() { delete[] entries_; }

  /// errno of the call that failed; 0: all descriptors are open.
  int error() const noexcept { return error_; }
  /// Readable while there is something to call: for a program that waits in a loop of its own, and then calls poll().
  /// One that runs the loop otherwise between two waits asks for it again: something may be left in the queue.
  int native_handle() noexcept {
    const lock_guard hold(lock_);
    if (!queue_.empty() && !stopped_) wake();
    return epoll_.get();
  }
  /// Allocates memory for so many more descriptors. False: there is none.
  bool reserve(std::size_t descriptors) noexcept {
    const lock_guard hold(lock_);
    return grow(static_cast<std::size_t>(timer_.get()) + 1 + descriptors);
  }

  /// Calls one target that something has happened to, or waits for at most `time` until there is one. Returns how many
  /// were called. It does not wait if there is nothing to wait for.
  std::size_t run_one_for(std::chrono::nanoseconds time) noexcept { return run_one_until(end_of(time)); }
  /// The same without an end to the wait.
  std::size_t run_one() noexcept { return run_one_until(clock::time_point::max()); }
  /// Calls targets for so long, or until there is nothing to wait for. Returns how many were called.
  std::size_t run_for(std::chrono::nanoseconds time) noexcept {
    const auto end = end_of(time);
    std::size_t n = 0;
    while (run_one_until(end) != 0) {
      ++n;
      if (clock::now() >= end) break;  // although there may always be something to call
    }
    return n;
  }
  /// Calls targets until there is nothing to wait for. Returns how many were called.
  std::size_t run() noexcept {
    std::size_t n = 0;
    while (run_one() != 0) ++n;
    return n;
  }
  /// Calls the targets that can be called without waiting, at most so many. Returns how many were called.
  std::size_t poll(std::size_t most = ~std::size_t{0}) noexcept {
    std::size_t n = 0;
    while (n < most && run_one_until(at_once) != 0) ++n;
    const lock_guard hold(lock_);
    if (stopped_) {
      (void)harvest(at_once);  // until restart() the descriptor is not readable
      if (sleeping_ > 0) wake();
    } else if (!queue_.empty()) wake();  // the descriptor stays readable
    return n;
  }
  /// Each thread that runs it returns after the call that it is in. On any thread.
  void stop() noexcept {
    const lock_guard hold(lock_);
    stopped_ = true;
    wake();
  }
  /// Lets it be run again after stop().
  void restart() noexcept {
    const lock_guard hold(lock_);
    stopped_ = false;
    if (!queue_.empty()) wake();
  }

 private:
  friend event_target;
  static constexpr clock::time_point at_once{};  // as the end of a wait: do not wait
  /// The end of a wait that begins now, or the last moment of the clock if it is beyond that.
  static clock::time_point end_of(std::chrono::nanoseconds time) noexcept {
    const auto now = clock::now();
    return time < clock::time_point::max() - now ? now + std::max(time, {}) : clock::time_point::max();
  }

  /// The target of each descriptor. The number tells an event of a descriptor that was closed meanwhile from one of the
  /// descriptor that the system has given the same number since.
  struct entry {
    event_target* target = nullptr;
    std::uint32_t number = 0;
  };

  bool add(int fd, std::uint32_t events, std::uint64_t data) noexcept {
    epoll_event e{};
    e.events = events;
    e.data.u64 = data;
    return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &e) == 0;
  }
  static std::uint64_t data_of(int fd, std::uint32_t number) noexcept {
    return std::uint64_t{number} << 32 | static_cast<std::uint32_t>(fd);
  }

  std::size_t run_one_until(clock::time_point end) noexcept {
    lock_.lock();
    ++running_;
    event_target* next = nullptr;
    for (bool late = false; !stopped_;) {
      if (round_ > 0 && (next = pop()) != nullptr) break;
      if (late || (queue_.empty() && end != at_once && !has_work())) break;
      late = harvest(!queue_.empty() ? at_once : end) && queue_.empty();
    }
    if (next != nullptr) call(*next);
    --running_;
    // then other threads go on, or return, too
    if (sleeping_ > 0 && (!queue_.empty() || stopped_ || !has_work())) wake();
    lock_.unlock();
    return next != nullptr;
  }
  /// Waits until `end`, and queues the targets that are ready. True: the time was over.
  bool harvest(clock::time_point end) noexcept {
    std::int64_t ms = end == at_once ? 0 : -1;
    if (end != at_once && end != clock::time_point::max())
      ms = std::chrono::ceil<std::chrono::milliseconds>(std::max(end - clock::now(), {})).count();
    epoll_event ready[64];
    ++sleeping_;
    lock_.unlock();
    const int n = ::epoll_wait(epoll_.get(), ready, 64, static_cast<int>(std::min<std::int64_t>(ms, 1 << 30)));
    lock_.lock();
    --sleeping_;
    for (int i = 0; i < n; ++i) {
      const auto fd = static_cast<int>(ready[i].data.u64 & 0xffff'ffff);
      const std::uint32_t events = ready[i].events;
      if (ready[i].data.u64 == 0) sound_alarms();  // or somebody was woken, to look at the queue
      else if (const entry& e = entries_[fd]; e.target != nullptr && data_of(fd, e.number) == ready[i].data.u64) {
        const bool over = (events & (EPOLLERR | EPOLLHUP)) != 0;
        const std::uint32_t happened = ((events & EPOLLIN) != 0 || over ? event_target::readable : 0u) |
                                       ((events & EPOLLOUT) != 0 || over ? event_target::writable : 0u);
        const std::uint32_t wanted = e.target->armed_;
        if ((happened & wanted) == 0) continue;  // of a wait that another has replaced meanwhile
        arm(*e.target, 0);
        put(*e.target, happened & wanted);
      }
    }
    round_ = count_;  // then it looks again, so that nothing waits behind targets that are queued anew
    return n <= 0 && ms == 0;
  }
  // The caller of the functions from here on has the lock.
  void call(event_target& t) noexcept {
    t.inside_ = true;
    ++inside_;
    const std::uint32_t what = t.pending_;
    t.pending_ = 0;
    if (!queue_.empty() && sleeping_ > 0) wake();  // for the next
    lock_.unlock();
    t.happened(what);
    lock_.lock();
    --inside_;
    t.inside_ = false;
    if (t.retired_) {
      lock_.unlock();
      delete &t;
      lock_.lock();
    } else if (t.pending_ != 0) push(t);
  }
  void put(event_target& t, std::uint32_t what) noexcept {
    t.pending_ |= what;
    if (!t.queued_ && !t.inside_) push(t);
  }
  void push(event_target& t) noexcept {
    t.queued_ = true;
    queue_.append(t);
    ++count_;
  }
  void take(event_target& t) noexcept {
    t.queued_ = false;
    queue_.take_out(t);
    --count_;
  }
  /// Does not call it for these, although they have happened.
  void forget(event_target& t, std::uint32_t what) noexcept {
    t.pending_ &= ~what;
    if (t.queued_ && t.pending_ == 0) take(t);
  }
  event_target* pop() noexcept {
    event_target* const t = queue_.first;
    if (t == nullptr) return nullptr;
    take(*t);
    --round_;
    return t;
  }
  void arm(event_target& t, std::uint32_t what) noexcept {
    waiting_ += static_cast<std::size_t>(what != 0) - static_cast<std::size_t>(t.armed_ != 0);
    t.armed_ = what;
  }
  void unwatch(event_target& t) noexcept {
    if (t.fd_ < 0) return;
    epoll_event none{};
    (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, t.fd_, &none);
    entries_[t.fd_].target = nullptr;
    arm(t, 0);
    forget(t, event_target::readable | event_target::writable);
    t.fd_ = -1;
  }
  bool has_work() const noexcept { return waiting_ > 0 || count_ > 0 || inside_ > 0 || alarms_ != nullptr; }
  /// Lets threads that wait return if this was the last that they could wait for.
  void look_for_work() noexcept {
    if (sleeping_ > 0 && !has_work()) wake();
  }
  /// Lets a thread that waits look at the queue.
  void wake() noexcept { (void)::eventfd_write(wake_.get(), 1); }

  void sound_alarms() noexcept {
    const auto now = clock::now();
    for (event_target** at = &alarms_; *at != nullptr;) {
      event_target& t = **at;
      if (t.alarm_at_ > now) {
        at = &t.next_alarm_;
        continue;
      }
      *at = t.next_alarm_;
      t.alarmed_ = false;
      put(t, event_target::alarm);
    }
    set_timer();
  }
  void drop_alarm(event_target& t) noexcept {
    forget(t, event_target::alarm);
    if (!t.alarmed_) return;
    event_target** at = &alarms_;
    while (*at != &t) at = &(*at)->next_alarm_;
    *at = t.next_alarm_;
    t.alarmed_ = false;
  }
  /// Sets the timer to the first of the alarms.
  void set_timer() noexcept {
    if (alarms_ == nullptr) return;
    auto first = alarms_->alarm_at_;
    for (const event_target* t = alarms_; t != nullptr; t = t->next_alarm_) first = std::min(first, t->alarm_at_);
    // from now: the program's clock may be another than the kernel's, as under libfaketime; 0 would be no timer
    const auto time = std::max<clock::duration>(first - clock::now(), std::chrono::nanoseconds(1));
    const auto s = std::chrono::duration_cast<std::chrono::seconds>(time);
    itimerspec after{};
    after.it_value.tv_sec = static_cast<time_t>(s.count());
    after.it_value.tv_nsec = static_cast<long>((time - s).count());
    (void)::timerfd_settime(timer_.get(), 0, &after, nullptr);
  }
  /// Has room for descriptors below this number.
  bool grow(std::size_t wanted) noexcept {
    if (wanted <= size_) return true;
    const std::size_t size = std::max(wanted, 2 * size_);
    if (size > PTRDIFF_MAX / sizeof(entry)) return false;
    entry* const more = new (std::nothrow) entry[size];
    if (more == nullptr) return false;
    for (std::size_t i = 0; i < size_; ++i) more[i] = entries_[i];
    delete[] entries_;
    entries_ = more;
    size_ = size;
    return true;
  }

  detail::file_descriptor epoll_, wake_, timer_;
  int error_ = 0;
  detail::thread_lock lock_{};
  entry* entries_ = nullptr;
  std::size_t size_ = 0;
  detail::linked_queue<event_target> queue_{};
  event_target* alarms_ = nullptr;
  // targets: in the queue, of these called before it looks for more, and that wait for a descriptor
  std::size_t count_ = 0, round_ = 0, waiting_ = 0;
  std::size_t running_ = 0, sleeping_ = 0, inside_ = 0;  // threads: that run it, that wait, that call a target
  bool stopped_ = false;
};

inline int event_target::watch(int fd) noexcept {
  const lock_guard hold(loop_.lock_);
  if (loop_.error_ != 0) return loop_.error_;
  if (fd < 0 || retired_) return EBADF;
  if (!loop_.grow(static_cast<std::size_t>(fd) + 1)) return ENOMEM;
  event_loop::entry& e = loop_.entries_[fd];
  const std::uint32_t number = e.number + 1 != 0 ? e.number + 1 : 1;  // 0 is the loop's own
  if (!loop_.add(fd, EPOLLONESHOT, event_loop::data_of(fd, number))) return errno;
  e = {this, number};
  fd_ = fd;
  return 0;
}
inline void event_target::unwatch() noexcept {
  const lock_guard hold(loop_.lock_);
  loop_.unwatch(*this);
  loop_.look_for_work();
}
inline void event_target::wait(io_ready directions) noexcept {
  const std::uint32_t wanted = (directions.read ? readable : 0u) | (directions.write ? writable : 0u);
  const lock_guard hold(loop_.lock_);
  if (fd_ < 0 || wanted == armed_) return;
  loop_.arm(*this, wanted);
  epoll_event e{};
  e.events = EPOLLONESHOT | (directions.read ? EPOLLIN : 0u) | (directions.write ? EPOLLOUT : 0u);
  e.data.u64 = event_loop::data_of(fd_, loop_.entries_[fd_].number);
  (void)::epoll_ctl(loop_.epoll_.get(), EPOLL_CTL_MOD, fd_, &e);
  loop_.look_for_work();
}
inline void event_target::alarm_after(std::chrono::milliseconds time) noexcept {
  const auto at = detail::deadline_after(time);
  const lock_guard hold(loop_.lock_);
  if (retired_) return;  // meanwhile, by another thread: nobody would take it out of the list
  loop_.drop_alarm(*this);
  alarm_at_ = at;
  alarmed_ = true;
  next_alarm_ = loop_.alarms_;
  loop_.alarms_ = this;
  loop_.set_timer();
}
inline void event_target::drop_alarm() noexcept {
  const lock_guard hold(loop_.lock_);
  loop_.drop_alarm(*this);
  loop_.look_for_work();
}
inline void event_target::post(std::uint32_t what) noexcept {
  const lock_guard hold(loop_.lock_);
  loop_.put(*this, what);
  // a thread that runs the loop looks at the queue before it waits
  if (queued_ && (loop_.sleeping_ > 0 || loop_.running_ == 0)) loop_.wake();
}
inline void event_target::retire() noexcept {
  {
    const lock_guard hold(loop_.lock_);
    loop_.unwatch(*this);
    loop_.drop_alarm(*this);
    if (queued_) loop_.take(*this);
    loop_.look_for_work();
    retired_ = true;
    if (inside_) return;
  }
  delete this;
}

}  // namespace tensorpull
