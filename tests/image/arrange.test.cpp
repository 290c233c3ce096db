#include <tensorpull/image/arrange.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace arrange_test {

using namespace tensorpull;

TEST(Arrange, Sorts_by_dtype_then_name_and_takes_the_addresses_along) {
  std::mt19937 generator(1);
  std::vector<std::string> names;
  for (int i = 0; i < 3000; ++i) names.push_back("t" + std::to_string(i * 7919 % 3001));
  std::vector<tensor_entry> entries;
  std::vector<std::uintptr_t> where;
  for (std::size_t i = 0; i < names.size(); ++i) {
    entries.push_back(
        {names[i], static_cast<dtype>(generator() % 2 == 0 ? dtype::f32 : static_cast<dtype>(4 + generator() % 18))});
    where.push_back(reinterpret_cast<std::uintptr_t>(names[i].data()));
  }
  const auto schema = arrange(entries, where);
  ASSERT_TRUE(schema);
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    EXPECT_EQ(where[i], reinterpret_cast<std::uintptr_t>(entries[i].name.data()));
    EXPECT_EQ(entries[i].begin, end);
    end = entries[i].end;
    if (i == 0) continue;
    EXPECT_TRUE(image_order(entries[i - 1].type, entries[i - 1].name, entries[i].type, entries[i].name));
  }
  EXPECT_EQ(schema->image_bytes, schema->header_bytes + end);
}

TEST(Arrange, Names_compare_as_unsigned_bytes) {
  tensor_entry entries[] = {{"\xc3\xa9", dtype::u8},
                            {"z", dtype::u8},
                            {"", dtype::u8},
                            {std::string_view("a\0", 2), dtype::u8},
                            {"a", dtype::u8}};
  ASSERT_TRUE(arrange(entries));
  EXPECT_EQ(entries[0].name, "");
  EXPECT_EQ(entries[1].name, "a");
  EXPECT_EQ(entries[2].name.size(), 2u);
  EXPECT_EQ(entries[3].name, "z");
}

// Every pair of dtypes, and the pair anywhere among others.
TEST(Arrange, Finds_equal_names_across_dtypes) {
  std::mt19937 generator(2);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> names;
    std::vector<tensor_entry> entries;
    for (std::size_t i = 0; i < 2 + generator() % 60; ++i) names.push_back(std::to_string(generator()));
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    for (const auto& name : names)
      entries.push_back({name, generator() % 2 == 0 ? dtype::u8 : static_cast<dtype>(4 + generator() % 18)});
    std::shuffle(entries.begin(), entries.end(), generator);
    auto copy = entries;
    ASSERT_TRUE(arrange(copy));
    entries[generator() % (entries.size() - 1)].name = entries.back().name;
    const std::string twice(entries.back().name);
    const auto refused = arrange(entries);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error(), errc::duplicate_name);
    EXPECT_EQ(refused.error().name.view(), twice);
  }
}

TEST(Arrange, Refuses_mismatched_arrays_and_missing_shapes) {
  tensor_entry entries[] = {{"a", dtype::u8}, {"b", dtype::u8}};
  std::uintptr_t where[] = {1};
  EXPECT_EQ(arrange(entries, where).error(), errc::invalid_argument);
  tensor_entry shapeless[] = {{"a", dtype::u8, false, 2}};
  EXPECT_EQ(arrange(shapeless).error(), errc::invalid_argument);
}

TEST(TensorAt, Skips_empty_tensors) {
  const std::uint64_t none[] = {0}, three[] = {3};
  tensor_entry entries[] = {{"a", dtype::u8, false, 1, 0, 0, none},
                            {"b", dtype::u8, false, 1, 0, 0, three},
                            {"c", dtype::u8, false, 1, 0, 0, none},
                            {"d", dtype::u8},
                            {"e", dtype::u8, false, 1, 0, 0, none}};
  const auto schema = arrange(entries);
  ASSERT_TRUE(schema);
  EXPECT_EQ(tensor_at(*schema, 0), 1u);
  EXPECT_EQ(tensor_at(*schema, 2), 1u);
  EXPECT_EQ(tensor_at(*schema, 3), 3u);
  EXPECT_EQ(tensor_at(*schema, 4), 5u);
  EXPECT_EQ(tensor_at(*schema, ~std::uint64_t{}), 5u);
}

}  // namespace arrange_test
