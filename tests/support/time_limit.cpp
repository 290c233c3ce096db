// Ends a program whose test takes too long, and says where each of its threads is: that is what the test waits for.
// ctest would end it a minute later, without a word. TENSORPULL_TEST_SECONDS: how long a test may take.
#include <gtest/gtest.h>

#include <dirent.h>
#include <execinfo.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

extern "C" const char __executable_start;

namespace {

const int too_long = SIGRTMAX - 1, where_are_you = SIGRTMAX - 2;
std::atomic<int> threads_shown{0};
std::string program;

/// A program of its own finds the names, so that nothing is allocated here: a thread may have been stopped within
/// malloc.
void show_stack(int) {
  std::array<void*, 48> frames{};
  const int count = ::backtrace(frames.data(), static_cast<int>(frames.size()));
  std::array<std::array<char, 24>, 48> text;
  std::array<const char*, 53> words{"addr2line", "-Cfpe", program.c_str()};
  for (int i = 0; i < count; ++i) {
    auto& one = text[static_cast<std::size_t>(i)];
    std::snprintf(one.data(), one.size(), "0x%tx",
                  static_cast<const char*>(frames[static_cast<std::size_t>(i)]) - &__executable_start - 1);
    words[3 + static_cast<std::size_t>(i)] = one.data();
  }
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(STDERR_FILENO, STDOUT_FILENO);
    ::execvp(words[0], const_cast<char* const*>(words.data()));
    ::backtrace_symbols_fd(frames.data(), count, STDERR_FILENO);
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  ++threads_shown;
}

void end(int) {
  ::signal(SIGALRM, SIG_DFL);
  ::alarm(60);  // if that does not end either
  const testing::TestInfo* const test = testing::UnitTest::GetInstance()->current_test_info();
  std::fprintf(stderr, "%s.%s has taken too long. Its threads are here:\n", test->test_suite_name(), test->name());
  DIR* const all = ::opendir("/proc/self/task");
  while (const dirent* const one = ::readdir(all)) {
    const int id = std::atoi(one->d_name), before = threads_shown;
    if (id == 0) continue;
    std::fprintf(stderr, "thread %d\n", id);
    if (::syscall(SYS_tgkill, ::getpid(), id, where_are_you) != 0) continue;
    const timespec moment{0, 10'000'000};
    for (int i = 0; i < 500 && threads_shown == before; ++i) ::nanosleep(&moment, nullptr);
  }
  std::abort();
}

class time_limit : public testing::EmptyTestEventListener {
 public:
  time_limit() {
    program = "/proc/" + std::to_string(::getpid()) + "/exe";
    std::array<void*, 1> first{};
    (void)::backtrace(first.data(), 1);  // loads what it needs
    ::signal(where_are_you, show_stack);
    ::signal(too_long, end);
    sigevent how{};
    how.sigev_notify = SIGEV_SIGNAL;
    how.sigev_signo = too_long;
    (void)::timer_create(CLOCK_MONOTONIC, &how, &timer_);
    if (const char* const text = std::getenv("TENSORPULL_TEST_SECONDS")) seconds_ = std::atoi(text);
  }
  void OnTestStart(const testing::TestInfo&) override { set(seconds_); }
  void OnTestEnd(const testing::TestInfo&) override { set(0); }

 private:
  void set(int seconds) {
    const itimerspec when{{0, 0}, {seconds, 0}};
    ::timer_settime(timer_, 0, &when, nullptr);
  }
  timer_t timer_{};
  int seconds_ = 240;
};

[[maybe_unused]] const bool watched = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new time_limit);
  return true;
}();

}  // namespace
