// Landing in tensors with strides: where their bytes go, and which of them share memory, which is a part of the Python
// module that knows nothing of Python. Each against a walk of all elements.
#include "python/module/overlaps.hpp"

#include <tensorpull/image/strided.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace strided_landing_test {

using namespace tensorpull;
using namespace tensorpull::python;

struct layout {
  std::uint64_t item = 1;
  std::vector<std::uint64_t> shape;
  std::vector<std::int64_t> strides;
  std::int64_t low = 0, high = 0;  // of the bytes, from the first element on

  std::uint64_t count() const {
    return std::accumulate(shape.begin(), shape.end(), std::uint64_t{1}, std::multiplies<>{});
  }
  std::int64_t place(std::uint64_t element) const {
    std::int64_t at = 0;
    for (std::size_t d = shape.size(); d-- > 0; element /= shape[d])
      at += static_cast<std::int64_t>(element % shape[d]) * strides[d];
    return at;
  }
};

layout any_layout(std::mt19937& random, bool apart) {
  const auto from = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  layout made;
  made.item = std::uint64_t{1} << from(0, 4);
  for (int rank = from(0, 4); rank > 0; --rank) made.shape.push_back(static_cast<std::uint64_t>(from(1, 5)));
  std::vector<std::size_t> order(made.shape.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), random);
  made.strides.resize(made.shape.size());
  auto step = static_cast<std::int64_t>(made.item);
  for (const std::size_t d : order) {
    made.strides[d] = apart ? step : static_cast<std::int64_t>(made.item) * from(-5, 9);
    step *= static_cast<std::int64_t>(made.shape[d]) + from(0, 2);
    if (apart && from(0, 3) == 0) made.strides[d] = -made.strides[d];
  }
  for (std::size_t d = 0; d < made.shape.size(); ++d) {
    const std::int64_t reach = static_cast<std::int64_t>(made.shape[d] - 1) * made.strides[d];
    (reach < 0 ? made.low : made.high) += reach;
  }
  made.high += static_cast<std::int64_t>(made.item);
  return made;
}

TEST(StridedLanding, Any_range_goes_where_its_elements_are) {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const layout one = any_layout(random, true);
    const auto size = static_cast<std::size_t>(one.high - one.low);
    std::vector<std::byte> memory(size, std::byte{0xee}), expected = memory,
                                                          image(static_cast<std::size_t>(one.count() * one.item));
    for (std::byte& b : image) b = static_cast<std::byte>(random());
    const auto bytes = [&] {
      return detail::strided_bytes(one.item, one.shape, one.strides.data(), memory.data() - one.low);
    };
    for (std::size_t at = 0; at < image.size();) {
      const std::size_t n = std::min<std::size_t>(image.size() - at, 1 + random() % 40);
      bytes().write(at, std::span<const std::byte>(image).subspan(at, n));
      at += n;
    }
    for (std::uint64_t i = 0; i < one.count(); ++i)
      std::copy_n(image.begin() + static_cast<std::ptrdiff_t>(i * one.item), one.item,
                  expected.begin() + static_cast<std::ptrdiff_t>(one.place(i) - one.low));
    ASSERT_EQ(memory, expected);
    const std::size_t from = random() % (image.size() + 1), n = random() % (image.size() - from + 1);
    std::vector<std::byte> back(n);
    bytes().read(from, back);
    ASSERT_TRUE(std::equal(back.begin(), back.end(), image.begin() + static_cast<std::ptrdiff_t>(from)));
  }
}

TEST(StridedLanding, Shared_memory_is_found_as_by_a_list_of_all_bytes) {
  std::size_t shared = 0;
  for (unsigned seed = 0; seed < 5000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::vector<footprint> all;
    std::map<std::pair<std::uint64_t, std::int64_t>, int> taken;
    for (std::size_t i = 0, n = 1 + random() % 4; i < n; ++i) {
      const layout one = any_layout(random, random() % 2 == 0);
      const std::uint64_t space = random() % 2;
      const std::int64_t address = 100'000 + static_cast<std::int64_t>(random() % 400);
      all.emplace_back(i, space, static_cast<std::uintptr_t>(address), one.item, one.shape, one.strides);
      for (std::uint64_t e = 0; e < one.count(); ++e)
        for (std::uint64_t b = 0; b < one.item; ++b)
          ++taken[{space, address + one.place(e) + static_cast<std::int64_t>(b)}];
    }
    const bool expected = std::any_of(taken.begin(), taken.end(), [](const auto& byte) { return byte.second > 1; });
    shared += expected ? 1 : 0;
    auto search = overlap_search([] { return false; });
    ASSERT_EQ(search.find(all) != search.none, expected);
  }
  EXPECT_GT(shared, 1000u);
  EXPECT_LT(shared, 4000u);
}

TEST(StridedLanding, The_window_moves_over_memory_that_is_longer_than_it) {
  // a comb of bytes, 79 MiB long, and a run that ends before its last tooth, or on it
  const std::vector<std::uint64_t> shape{80};
  const std::vector<std::int64_t> strides{1 << 20};
  for (const std::uint64_t length : {std::uint64_t{8}, std::uint64_t{9}}) {
    std::vector<footprint> all;
    all.emplace_back(0, 0, 1000, 1, shape, strides);
    all.emplace_back(1, 0, 1000 + (79u << 20) - 8, length, std::vector<std::uint64_t>{}, std::vector<std::int64_t>{});
    auto search = overlap_search([] { return false; });
    EXPECT_EQ(search.find(all), length == 8 ? search.none : 1u);
  }
}

TEST(StridedLanding, Columns_cost_as_much_as_their_elements) {
  std::size_t asked = 0;
  const std::uint64_t columns = 5000, rows = 500;
  std::vector<footprint> all;
  for (std::uint64_t i = 0; i < columns; ++i)
    all.emplace_back(static_cast<std::size_t>(i), 0, 4096 + 4 * i, 4, std::vector<std::uint64_t>{rows},
                     std::vector<std::int64_t>{static_cast<std::int64_t>(4 * columns)});
  auto search = overlap_search([&asked] {
    ++asked;
    return false;
  });
  EXPECT_EQ(search.find(all), search.none);
  EXPECT_EQ(asked, columns * rows / 65536 + 1);  // it asks at each 65,536th element, and at the end of each group
}

TEST(StridedLanding, The_search_ends_when_it_is_to_stop) {
  std::vector<footprint> all;
  for (std::uint64_t i = 0; i < 1000; ++i)
    all.emplace_back(static_cast<std::size_t>(i), 0, 4096 + 4 * i, 4, std::vector<std::uint64_t>{1000},
                     std::vector<std::int64_t>{4000});
  all.emplace_back(1000, 0, 4096 + 4000 + 3996, 4, std::vector<std::uint64_t>{}, std::vector<std::int64_t>{});
  std::size_t asked = 0;
  auto stopped = overlap_search([&asked] {
    ++asked;
    return true;
  });
  EXPECT_EQ(stopped.find(all), stopped.none);
  EXPECT_LE(asked, 2u);
  auto to_the_end = overlap_search([] { return false; });
  EXPECT_EQ(to_the_end.find(all), 1000u);
}

}  // namespace strided_landing_test
