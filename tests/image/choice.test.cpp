// Choosing tensors by name, by prefix and by pattern.
#include "support/models.hpp"

#include <tensorpull/image/choice.hpp>

namespace choice_test {

using namespace test;
using tp::fits_pattern;
using names = std::vector<std::string_view>;

/// Every way to cut the name, tried one by one.
bool fits_slowly(std::string_view name, std::string_view pattern) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] == '*') {
    for (std::size_t i = 0; i <= name.size(); ++i)
      if (fits_slowly(name.substr(i), pattern.substr(1))) return true;
    return false;
  }
  return !name.empty() && (pattern[0] == '?' || pattern[0] == name[0]) &&
         fits_slowly(name.substr(1), pattern.substr(1));
}

TEST(Choice, A_pattern_fits_as_trying_every_way_says) {
  generator random(7);
  int fitting = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string name, pattern;
    for (auto n = random.below(7); n > 0; --n) name += "ab."[random.below(3)];
    for (auto n = random.below(7); n > 0; --n) pattern += "ab.*?*"[random.below(6)];
    const bool fits = fits_slowly(name, pattern);
    ASSERT_EQ(fits_pattern(name, pattern), fits) << '"' << name << "\" and \"" << pattern << '"';
    fitting += fits;
  }
  EXPECT_GT(fitting, 1000);
}
TEST(Choice, A_character_of_several_bytes_is_one) {
  EXPECT_TRUE(fits_pattern("w\xc3\xb6rt", "w?rt"));
  EXPECT_FALSE(fits_pattern("w\xc3\xb6rt", "w??rt"));
  EXPECT_TRUE(fits_pattern("\xe2\x82\xac\xc3\xb6", "*?"));
  EXPECT_FALSE(fits_pattern("\xe2\x82\xac", "?*?"));
}

model adapters() {
  model m;
  for (int i = 0; i < 4; ++i)
    for (const char* part : {"base", "lora_A", "lora_B"})
      m.add("layers." + std::to_string(i) + "." + part, dtype::f32, {2, 3});
  m.add("*", dtype::u8, {5});
  return std::move(m.ready());
}
names of(const tp::image_schema& s) {
  names all;
  for (const auto& t : s.entries()) all.push_back(t.name);
  return all;
}

TEST(Choice, A_part_has_the_chosen_tensors_in_the_same_memory) {
  model m = adapters();
  const names exact{"*"}, prefixes{"layers.2."}, patterns{"*.lora_?"};
  const auto part = tp::part_of(m.destination(), {.names = exact, .prefixes = prefixes, .patterns = patterns});
  ASSERT_TRUE(part);
  EXPECT_EQ(of(part->schema()),
            (names{"layers.0.lora_A", "layers.0.lora_B", "layers.1.lora_A", "layers.1.lora_B", "layers.2.base",
                   "layers.2.lora_A", "layers.2.lora_B", "layers.3.lora_A", "layers.3.lora_B", "*"}));
  for (std::size_t i = 0; i < part->schema().tensor_count; ++i) {
    const auto all = of(m.schema());
    const auto at = std::find(all.begin(), all.end(), part->schema().tensors[i].name) - all.begin();
    EXPECT_EQ(part->source().address(i), m.source().address(static_cast<std::size_t>(at)));
  }
}
TEST(Choice, A_name_that_chooses_nothing_is_reported) {
  model m = adapters();
  const names good{"*"}, bad{"*", "layers.7.base"};
  const auto why = [&](const tp::tensor_choice& c) { return tp::part_of(m.destination(), c).error(); };
  EXPECT_EQ(why({.names = bad}).name.view(), "layers.7.base");
  EXPECT_EQ(why({.names = good, .prefixes = std::span(bad).last(1)}).name.view(), "layers.7.base");
  EXPECT_EQ(why({.patterns = std::span(bad).last(1)}).name.view(), "layers.7.base");
  EXPECT_EQ(why({.patterns = bad}).code, errc::invalid_argument);
}

}  // namespace choice_test
