// IDs that follow from others are other ones for each purpose, model, version and number.
#include <tensorpull/core/derived_id.hpp>

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace derived_id_test {

namespace tp = tensorpull;

TEST(DerivedId, Is_another_one_for_each_purpose_model_version_and_number) {
  std::set<std::string> all;
  for (const std::string_view what : {"", "a", "ab", "0123456789abcdef"})
    for (const std::uint64_t high : {1u, 2u})
      for (const std::uint64_t low : {1u, 2u})
        for (const std::uint64_t version : {1u, 2u})
          for (const std::uint64_t which : {0u, 1u})
            all.emplace(tp::to_digits(tp::derived_id(what, {{high, low}, version, 0}, which)).view());
  EXPECT_EQ(all.size(), 64u);
  EXPECT_EQ(tp::derived_id("a", {{1, 2}, 3, 4}, 5), tp::derived_id("a", {{1, 2}, 3, 0}, 5))
      << "the fingerprint is no part of it";
}
TEST(DerivedId, Of_a_purpose_that_is_too_long_the_first_16_characters_count) {
  EXPECT_EQ(tp::derived_id("0123456789abcdefg", {{1, 2}, 3, 0}, 4),
            tp::derived_id("0123456789abcdef", {{1, 2}, 3, 0}, 4));
}

}  // namespace derived_id_test
