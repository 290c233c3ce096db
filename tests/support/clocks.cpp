// The C library's clocks, in its place, also for those of <chrono>.
#include "clocks.hpp"

#include <dlfcn.h>
#include <sys/time.h>

#include <cstdint>
#include <ctime>

namespace test {
namespace {

std::atomic<std::int64_t> passed_ns{0};

std::time_t jump() noexcept {
  static std::atomic<std::uint64_t> readings{0};
  if (!wall_clock_jumps) return 0;
  return readings.fetch_add(1) % 2 == 0 ? 3600 : -3600;
}

}  // namespace

void pass_time(std::chrono::nanoseconds time) noexcept { passed_ns += time.count(); }

extern "C" int clock_gettime(clockid_t which, timespec* t) noexcept {
  static const auto of_the_kernel = reinterpret_cast<int (*)(clockid_t, timespec*)>(
      ::dlsym(RTLD_NEXT, "clock_gettime"));
  const int status = of_the_kernel(which, t);
  if (which == CLOCK_REALTIME) t->tv_sec += jump();
  if (which != CLOCK_MONOTONIC) return status;
  const std::int64_t now = t->tv_nsec + passed_ns.load();
  t->tv_sec += now / 1'000'000'000;
  t->tv_nsec = now % 1'000'000'000;
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
