// Processor time of the calling thread, for tests that compare shares of it. On Linux.
#pragma once

#include <algorithm>
#include <ctime>
#include <vector>

namespace test {

inline double processor_seconds() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}
/// The least processor time of some runs: what the work costs when nothing else got in between.
template <class Work>
double least_processor_seconds(Work work, int runs = 20) {
  double least = 1e9;
  for (int i = 0; i < runs; ++i) {
    const double before = processor_seconds();
    work();
    least = std::min(least, processor_seconds() - before);
  }
  return least;
}
/// Of at least one value.
inline double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

}  // namespace test
