// Every allocation that the library makes may fail: a clean error, and nothing is kept.
#include "support/allocation_counter.hpp"

#include <tensorpull/tensorpull.hpp>
#include <tensorpull/testing/failing_allocation.hpp>
#include <tensorpull/testing/guarded_tensors.hpp>

#include <gtest/gtest.h>

namespace failing_allocation_test {

using namespace tensorpull;
using namespace tensorpull::testing;
using net = pipeline<tensor_list, tcp, fixed_bytes<256>>;

TEST(FailingAllocation, Only_the_nth_fails_and_all_are_counted) {
  for (std::uint64_t n = 0; n < 4; ++n) {
    const failing_allocation fails(n);
    for (std::uint64_t i = 1; i <= 3; ++i) {
      int* const p = new (std::nothrow) int(1);
      EXPECT_EQ(p == nullptr, i == n);
      delete p;
    }
    EXPECT_EQ(fails.count(), 3u);
    EXPECT_EQ(fails.happened(), n != 0);
  }
}

/// Publishes what it is given and opens a connection: everything that allocates before a transfer.
result<void> set_up(std::span<const mutable_tensor_view> views) {
  auto image = dynamic_image::make(views);
  if (!image) return failure(image.error());
  publisher<net::parts> owner;
  const auto borrowed = owner.add_tensors(*image, {.recipients = 1});
  if (!borrowed) return failure(borrowed.error());
  const auto kept = owner.add_tensors(std::move(*image), {.recipients = 1});
  return kept ? result<void>() : failure(kept.error());
}
TEST(FailingAllocation, Q1_whichever_allocation_of_publishing_fails_it_is_an_error_and_nothing_is_kept) {
  std::array<std::byte, 64> memory{};
  const std::array<std::uint64_t, 1> shape{16};
  const std::array<mutable_tensor_view, 1> views{{{"w", dtype::f32, shape, memory.data()}}};
  std::uint64_t failures = 0;
  for (std::uint64_t n = 1;; ++n) {
    ASSERT_LT(n, 100u);
    const auto before = test::heap_now();
    const failing_allocation fails(n);
    const auto done = set_up(views);
    EXPECT_EQ(test::heap_now(), before) << n;
    if (!fails.happened()) {
      EXPECT_TRUE(done);
      break;
    }
    ++failures;
    ASSERT_FALSE(done) << n;
    EXPECT_EQ(done.error(), errc::out_of_memory);
  }
  EXPECT_GE(failures, 2u);
}
}  // namespace failing_allocation_test
