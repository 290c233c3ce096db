// A process that has few descriptors left.
#pragma once

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

namespace test {

/// Leaves the process `free` descriptors, until it is destroyed.
class few_descriptors {
 public:
  explicit few_descriptors(rlim_t free) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit now = before_;
    now.rlim_cur = 0;  // never so low that poll() refuses to wait for those that are open
    while (::fcntl(static_cast<int>(now.rlim_cur), F_GETFD) >= 0 || free-- > 0) ++now.rlim_cur;
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &now), 0);
  }
  ~few_descriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  few_descriptors(const few_descriptors&) = delete;

 private:
  rlimit before_{};
};

/// The same file under a number that no limit of few_descriptors counts. The descriptor that is given is closed.
inline int put_aside(int fd) {
  rlimit all{};
  ::getrlimit(RLIMIT_NOFILE, &all);
  all.rlim_cur = all.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &all);
  const int aside = ::fcntl(fd, F_DUPFD_CLOEXEC, 2000);
  EXPECT_GE(aside, 0) << "the hard limit on descriptors is " << all.rlim_max;
  ::close(fd);
  return aside;
}

}  // namespace test
