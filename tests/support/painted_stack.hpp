// How deep a call goes: it runs on a stack that was painted before, and what is not the colour any more was used. Or it
// runs on a stack that has no more room than it may take.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <new>

namespace test {

namespace detail {

template <class Call>
void run_on_thread(const pthread_attr_t& attributes, Call& call) {
  pthread_t thread;
  const auto run = [](void* p) -> void* {
    (*static_cast<Call*>(p))();
    return nullptr;
  };
  if (pthread_create(&thread, &attributes, run, &call) != 0) std::terminate();
  pthread_join(thread, nullptr);
}

template <class Call>
std::size_t painted_bytes(Call& call) {
  constexpr std::size_t size = 1024 * 1024, page = 4096;
  constexpr std::byte colour{0xa5};
  struct release {
    void operator()(std::byte* p) const noexcept { ::operator delete(p, std::align_val_t(page)); }
  };
  const std::unique_ptr<std::byte, release> stack(
      static_cast<std::byte*>(::operator new(size, std::align_val_t(page))));
  std::memset(stack.get(), static_cast<int>(colour), size);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, stack.get(), size);
  run_on_thread(attributes, call);
  pthread_attr_destroy(&attributes);
  std::size_t untouched = 0;
  while (untouched < size && stack.get()[untouched] == colour) ++untouched;
  return size - untouched;
}

}  // namespace detail

/// Bytes of stack that `call` and what it calls have used, without those of the thread. The call runs on a thread of
/// its own.
template <class Call>
std::size_t stack_of(Call call) {
  auto nothing = [] {};
  return detail::painted_bytes(call) - detail::painted_bytes(nothing);
}

/// Does it on a stack of so many bytes, behind which the program ends.
template <class Call>
void on_a_stack_of(std::size_t bytes, Call call) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  if (pthread_attr_setstacksize(&attributes, bytes) != 0) std::terminate();
  detail::run_on_thread(attributes, call);
  pthread_attr_destroy(&attributes);
}

}  // namespace test
