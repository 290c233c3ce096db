#include <tensorpull/core/error.hpp>

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace error_test {

using namespace tensorpull;

TEST(Error, Every_code_has_a_sentence_of_its_own) {
  std::set<std::string_view> sentences;
  int codes = 0;
  for (int i = 1; i < 256 && to_string(static_cast<errc>(i)) != "unknown error"; ++i, ++codes) {
    const auto sentence = to_string(static_cast<errc>(i));
    EXPECT_FALSE(sentence.empty());
    EXPECT_NE(sentence.back(), '.');
    sentences.insert(sentence);
  }
  EXPECT_EQ(codes, static_cast<int>(sentences.size()));
  EXPECT_EQ(static_cast<int>(errc::owner_lost), codes)
      << "the codes have a gap, or a code behind the last has no sentence";
  EXPECT_EQ(to_string(errc{}), "unknown error");
}

TEST(Error, Each_code_has_a_name_of_its_own) {
  std::set<std::string_view> names;
  int codes = 0;
  tensorpull::for_each_code([&](errc code) { ++codes, names.insert(tensorpull::code_name(code)); });
  EXPECT_EQ(codes, static_cast<int>(errc::owner_lost));
  EXPECT_EQ(codes, static_cast<int>(names.size()));
  EXPECT_EQ(tensorpull::code_name(errc::bad_file), "bad_file");
  EXPECT_EQ(tensorpull::code_name(errc::owner_lost), "owner_lost");
  EXPECT_EQ(tensorpull::code_name(errc{}), "");
}

TEST(Error, Names_are_cut_visibly_and_never_overrun) {
  EXPECT_TRUE(error_name().empty());
  EXPECT_EQ(error_name("w").view(), "w");
  const std::string fits(55, 'a');
  EXPECT_EQ(error_name(fits).view(), fits);
  const std::string longer(56, 'a');
  EXPECT_EQ(error_name(longer).view(), std::string(52, 'a') + "...");
}

static_assert(error{errc::busy} == errc::busy);
static_assert(std::is_trivially_copyable_v<error> && sizeof(error) <= 72);

}  // namespace error_test
