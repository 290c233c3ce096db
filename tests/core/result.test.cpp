#include <tensorpull/core/result.hpp>

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <type_traits>

namespace result_test {

using namespace tensorpull;

result<int> half(int n) {
  if (n % 2 != 0) return failure(errc::invalid_argument, static_cast<std::uint64_t>(n), std::string_view("n"));
  return n / 2;
}

TEST(Result, Holds_a_value_or_an_error) {
  const auto good = half(4);
  ASSERT_TRUE(good);
  EXPECT_EQ(*good, 2);
  const auto bad = half(3);
  ASSERT_FALSE(bad.has_value());
  EXPECT_EQ(bad.error(), errc::invalid_argument);
  EXPECT_EQ(bad.error().at, 3u);
  EXPECT_EQ(bad.error().name.view(), "n");
  EXPECT_EQ(bad.value_or(7), 7);
  EXPECT_EQ(good.value_or(7), 2);
}

template <class From>
constexpr bool becomes_bool = std::is_convertible_v<From, result<bool>> || std::is_constructible_v<result<bool>, From>;

// `return send();` in a function that gives result<bool> would say "false", and forget why.
TEST(Result, Of_a_bool_is_not_whether_another_one_has_a_value) {
  static_assert(!becomes_bool<result<void>> && !becomes_bool<const result<int>&> && !becomes_bool<result<int>&>);
  static_assert(becomes_bool<bool> && becomes_bool<const result<bool>&> && becomes_bool<unexpected>);
  const result<bool> asked = half(4).has_value();
  EXPECT_TRUE(asked && *asked);
  const result<result<int>> within = half(4);
  EXPECT_EQ(**within, 2);
}

TEST(Result, Moves_what_cannot_be_copied) {
  result<std::unique_ptr<int>> made = std::make_unique<int>(5);
  result<std::unique_ptr<int>> moved = std::move(made);
  ASSERT_TRUE(moved);
  EXPECT_EQ(**moved, 5);
  moved = failure(errc::busy);
  EXPECT_FALSE(moved);
  moved = result<std::unique_ptr<int>>(std::make_unique<int>(6));
  const std::unique_ptr<int> taken = *std::move(moved);
  EXPECT_EQ(*taken, 6);
}

TEST(Result, Of_nothing) {
  const result<void> good;
  const result<void> bad = failure(errc::io, 0, {}, 5);
  EXPECT_TRUE(good);
  EXPECT_FALSE(bad);
  EXPECT_EQ(bad.error().system, 5);
}

TEST(ResultDeathTest, Reading_what_is_not_there_ends_the_program) {
  EXPECT_DEATH((void)*half(3), "");
  EXPECT_DEATH((void)half(4).error(), "");
}

constexpr bool in_constant_evaluation() {
  result<int> r = 4;
  r = failure(errc::busy);
  return !r && r.error() == errc::busy && *result<int>(3) == 3;
}
static_assert(in_constant_evaluation());

}  // namespace result_test
