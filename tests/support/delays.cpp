// Preloaded, it delays a program by 0 to 60 ms at about one in TENSORPULL_DELAYS of its calls of sockets and now and
// then at mutexes and threads. A test fails that depends on which of two threads is first: TENSORPULL_DELAYS=64 bash
// tests/run.sh GROUP. Static guards are not used: they call what is replaced here.
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <ctime>

namespace {

std::uint64_t random_number() {
  thread_local std::uint64_t state = 0;
  if (state == 0) {
    std::timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    state = (static_cast<std::uint64_t>(now.tv_nsec) * 2'654'435'761U ^ reinterpret_cast<std::uintptr_t>(&state)) | 1U;
  }
  state ^= state << 13U;
  state ^= state >> 7U;
  state ^= state << 17U;
  return state >> 8U;
}

void sleep_up_to(long nanoseconds) {
  const timespec time{0, static_cast<long>(random_number() % static_cast<std::uint64_t>(nanoseconds))};
  clock_nanosleep(CLOCK_MONOTONIC, 0, &time, nullptr);
}

void delay(std::uint64_t seldom = 1) {
  static int every = -1;
  if (every < 0) {
    const char* const text = std::getenv("TENSORPULL_DELAYS");
    every = text == nullptr ? 0 : std::atoi(text);
  }
  if (every == 0 || random_number() % (static_cast<std::uint64_t>(every) * seldom) != 0) return;
  const int kept = errno;
  sleep_up_to(random_number() % 32 == 0 ? 60'000'000 : 8'000'000);
  errno = kept;
}

template <class Function>
Function* next(Function*& found, const char* name) {
  if (found == nullptr) found = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
  return found;
}

template <class Function, class... Arguments>
auto delayed(Function* real, Arguments... arguments) {
  delay();
  const auto result = real(arguments...);
  delay();
  return result;
}

struct work {
  void* (*function)(void*);
  void* argument;
};

// A quarter of all threads begin late, and a quarter end late.
void* late(void* given) {
  const work own = *static_cast<work*>(given);
  std::free(given);
  if (random_number() % 4 == 0) sleep_up_to(20'000'000);
  void* const result = own.function(own.argument);
  if (random_number() % 4 == 0) sleep_up_to(20'000'000);
  return result;
}

}  // namespace

extern "C" {

ssize_t send(int file, const void* bytes, std::size_t size, int flags) {
  static decltype(send)* real = nullptr;
  return delayed(next(real, "send"), file, bytes, size, flags);
}
ssize_t sendto(int file, const void* bytes, std::size_t size, int flags, const sockaddr* to, socklen_t length) {
  static decltype(sendto)* real = nullptr;
  return delayed(next(real, "sendto"), file, bytes, size, flags, to, length);
}
ssize_t sendmsg(int file, const msghdr* message, int flags) {
  static decltype(sendmsg)* real = nullptr;
  return delayed(next(real, "sendmsg"), file, message, flags);
}
ssize_t recv(int file, void* bytes, std::size_t size, int flags) {
  static decltype(recv)* real = nullptr;
  return delayed(next(real, "recv"), file, bytes, size, flags);
}
ssize_t recvmsg(int file, msghdr* message, int flags) {
  static decltype(recvmsg)* real = nullptr;
  return delayed(next(real, "recvmsg"), file, message, flags);
}
int poll(pollfd* files, nfds_t count, int timeout) {
  static decltype(poll)* real = nullptr;
  return delayed(next(real, "poll"), files, count, timeout);
}
int epoll_wait(int file, epoll_event* events, int count, int timeout) {
  static decltype(epoll_wait)* real = nullptr;
  return delayed(next(real, "epoll_wait"), file, events, count, timeout);
}
int close(int file) {
  static decltype(close)* real = nullptr;
  return delayed(next(real, "close"), file);
}
int shutdown(int file, int how) noexcept {
  static decltype(shutdown)* real = nullptr;
  return delayed(next(real, "shutdown"), file, how);
}
int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
  static decltype(pthread_mutex_unlock)* real = nullptr;
  const int result = next(real, "pthread_mutex_unlock")(mutex);
  delay(8);
  return result;
}
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*function)(void*),
                   void* argument) noexcept {
  static decltype(pthread_create)* real = nullptr;
  auto* const own = static_cast<work*>(std::malloc(sizeof(work)));
  if (own == nullptr) return EAGAIN;
  *own = {function, argument};
  const int result = next(real, "pthread_create")(thread, attributes, late, own);
  if (result != 0) std::free(own);
  delay();
  return result;
}
}
