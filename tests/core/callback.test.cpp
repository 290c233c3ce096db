// What a callback borrows, what it keeps by copy, and what it refuses.
#include <tensorpull/std/functional.hpp>

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>

namespace callback_test {

using tensorpull::callback;

struct large {
  int* a;
  int* b;
  int* c;
  int* d;
  void operator()(int n) const { *a += n; }
};
int seen = 0;
void see(int n) { seen += n; }

static_assert(!std::is_constructible_v<callback<int>, int> &&
              !std::is_constructible_v<callback<int>, std::unique_ptr<int>&>);
static_assert(sizeof(callback<int>) == 4 * sizeof(void*) && std::is_trivially_copyable_v<callback<int>>);
static_assert(!callback<int>{} && noexcept(callback<int>(see)));

TEST(Callback, A_named_callable_is_borrowed) {
  int sum = 0;
  auto add = [sum = &sum, calls = 0](int n) mutable { *sum += n + 100 * calls++; };
  const callback<int> first = add, second = first;
  first(1);
  second(2);  // the same object: its second call
  EXPECT_EQ(sum, 103);
}
TEST(Callback, A_constant_is_borrowed) {
  int sum = 0;
  const auto add = [&](int n) { sum += n; };
  const callback<int> tell = add;
  tell(3);
  EXPECT_EQ(sum, 3);
  const std::function<void(int)> owning = add;
  callback<int>{owning}(4);
  EXPECT_EQ(sum, 7);
}
TEST(Callback, A_large_named_callable_is_borrowed) {
  int sum = 0;
  const large add{&sum, nullptr, nullptr, nullptr};
  callback<int>{add}(5);
  EXPECT_EQ(sum, 5);
}
TEST(Callback, A_small_temporary_is_kept) {
  int a = 0, b = 0, c = 0;
  callback<int> tell = [&a, &b, &c](int n) { a += n, b += 2 * n, c += 3 * n; };
  callback<int> copy = tell;
  tell = {};
  EXPECT_FALSE(tell);
  copy(2);
  tell = copy;
  tell(1);
  EXPECT_EQ(a, 3);
  EXPECT_EQ(b, 6);
  EXPECT_EQ(c, 9);
}
TEST(Callback, A_copy_has_its_own_state) {
  int sum = 0;
  const callback<int> tell = [sum = &sum, calls = 0](int n) mutable { *sum += n + 100 * calls++; };
  const callback<int> copy = tell;
  tell(1);
  copy(1);
  EXPECT_EQ(sum, 2);
  tell(1);
  EXPECT_EQ(sum, 103);
}
TEST(Callback, A_constant_temporary_is_kept) {
  int sum = 0;
  const auto add = [&](int n) { sum += n; };
  const callback<int> tell = std::move(add);
  tell(6);
  EXPECT_EQ(sum, 6);
}
TEST(Callback, A_function_is_kept_by_its_address) {
  seen = 0;
  const callback<int> direct = see, pointed = &see;
  direct(1);
  pointed(2);
  EXPECT_EQ(seen, 3);
}
TEST(Callback, Its_result_is_dropped) {
  int calls = 0;
  const callback<> tell = [&] { return ++calls; };
  tell();
  EXPECT_EQ(calls, 1);
}

}  // namespace callback_test
