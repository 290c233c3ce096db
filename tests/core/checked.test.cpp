#include <tensorpull/core/checked.hpp>

#include <gtest/gtest.h>

namespace checked_test {

using namespace tensorpull;

constexpr std::uint64_t most = ~std::uint64_t{};

static_assert(checked_add(most, 0) == most && !checked_add(most, 1) && checked_add(1, 2) == 3u);
static_assert(checked_multiply(most, 1) == most && !checked_multiply(most, 2) && checked_multiply(0, most) == 0u &&
              checked_multiply(most, 0) == 0u);
static_assert(!checked_multiply(std::uint64_t{1} << 32, std::uint64_t{1} << 32));
static_assert(checked_add(1, 2).value_or(7) == 3 && checked_add(most, 1).value_or(7) == 7);

TEST(Checked, Ranges_never_wrap) {
  EXPECT_TRUE(range_within(0, 0, 0));
  EXPECT_TRUE(range_within(5, 5, 10));
  EXPECT_TRUE(range_within(10, 0, 10));
  EXPECT_FALSE(range_within(5, 6, 10));
  EXPECT_FALSE(range_within(11, 0, 10));
  EXPECT_FALSE(range_within(most, most, 10));
  EXPECT_FALSE(range_within(1, most, most));
  EXPECT_TRUE(range_within(0, most, most));
}

}  // namespace checked_test
