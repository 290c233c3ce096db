// The C library's clocks, in its place, also for those of <chrono>.
#include "clocks.hpp"

#include <dlfcn.h>
#include <sys/time.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <ctime>
#include <mutex>

namespace test {
namespace {

constexpr std::int64_t second = 1'000'000'000;

std::atomic<std::int64_t> passed_ns{0};
/// From a moment on, the kernel's time counts for a part only.
struct pace {
  std::int64_t kernel_from = 0, shown_from = 0;
  int divisor = 1;
  std::int64_t shown(std::int64_t kernel) const noexcept {
    return shown_from + std::max<std::int64_t>(kernel - kernel_from, 0) / divisor;
  }
};
pace paces[2];
std::atomic<const pace*> current_pace{&paces[0]};

/// When each timer of the kernel's is due, by its descriptor, in nanoseconds of the test's clock; 0: never. An array,
/// since some tests count allocations.
std::mutex timers_mutex;
std::array<std::int64_t, 4096> timers{};

using set_timer = int (*)(int, int, const itimerspec*, itimerspec*);
int set_in_the_kernel(int fd, int flags, const itimerspec& at, itimerspec* old) noexcept {
  static const auto of_the_kernel = reinterpret_cast<set_timer>(::dlsym(RTLD_NEXT, "timerfd_settime"));
  return of_the_kernel(fd, flags, &at, old);
}
/// The same moment on the kernel's clock.
itimerspec kernel_time(std::int64_t due) noexcept {
  const pace& p = *current_pace;
  const std::int64_t at = std::max<std::int64_t>(p.kernel_from + (due - passed_ns - p.shown_from) * p.divisor, 1);
  itimerspec spec{};
  spec.it_value = {at / second, at % second};
  return spec;
}

std::time_t jump() noexcept {
  static std::atomic<std::uint64_t> readings{0};
  if (!wall_clock_jumps) return 0;
  return readings.fetch_add(1) % 2 == 0 ? 3600 : -3600;
}

void set_timers_again() noexcept {
  for (std::size_t fd = 0; fd < timers.size(); ++fd)
    if (timers[fd] != 0)
      (void)set_in_the_kernel(static_cast<int>(fd), TFD_TIMER_ABSTIME, kernel_time(timers[fd]), nullptr);
}
using read_clock = int (*)(clockid_t, timespec*);
int read_of_the_kernel(clockid_t which, timespec* t) noexcept {
  static const auto of_the_kernel = reinterpret_cast<read_clock>(::dlsym(RTLD_NEXT, "clock_gettime"));
  return of_the_kernel(which, t);
}

}  // namespace

void pass_time(std::chrono::nanoseconds time) noexcept {
  const std::lock_guard lock(timers_mutex);
  passed_ns += time.count();
  set_timers_again();
}

void slow_clock::set(int divisor) noexcept {
  const std::lock_guard lock(timers_mutex);
  timespec now{};
  (void)read_of_the_kernel(CLOCK_MONOTONIC, &now);
  const std::int64_t kernel = now.tv_sec * second + now.tv_nsec;
  const pace& before = *current_pace;
  pace& after = paces[&before == &paces[0] ? 1 : 0];
  after = {kernel, before.shown(kernel), divisor};
  current_pace = &after;
  set_timers_again();
}

extern "C" int timerfd_settime(int fd, int flags, const itimerspec* at, itimerspec* old) noexcept {
  const std::lock_guard lock(timers_mutex);
  const std::int64_t value = at->it_value.tv_sec * second + at->it_value.tv_nsec;
  if (static_cast<std::size_t>(fd) >= timers.size()) return set_in_the_kernel(fd, flags, *at, old);
  const std::int64_t now = (flags & TFD_TIMER_ABSTIME) != 0
                               ? 0
                               : std::chrono::steady_clock::now().time_since_epoch().count();
  const std::int64_t due = timers[static_cast<std::size_t>(fd)] = value == 0 ? 0 : now + value;
  return set_in_the_kernel(fd, TFD_TIMER_ABSTIME, due == 0 ? *at : kernel_time(due), old);
}

extern "C" int clock_gettime(clockid_t which, timespec* t) noexcept {
  const int status = read_of_the_kernel(which, t);
  if (which == CLOCK_REALTIME) t->tv_sec += jump();
  if (which != CLOCK_MONOTONIC) return status;
  const std::int64_t now = current_pace.load()->shown(t->tv_sec * second + t->tv_nsec) + passed_ns;
  *t = {now / second, now % second};
  return status;
}
extern "C" std::time_t time(std::time_t* out) noexcept {
  timespec t{};
  ::clock_gettime(CLOCK_REALTIME, &t);
  if (out != nullptr) *out = t.tv_sec;
  return t.tv_sec;
}
extern "C" int gettimeofday(timeval* out, void*) noexcept {
  timespec t{};
  ::clock_gettime(CLOCK_REALTIME, &t);
  *out = {t.tv_sec, t.tv_nsec / 1000};
  return 0;
}

}  // namespace test
