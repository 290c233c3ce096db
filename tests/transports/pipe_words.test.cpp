#include <tensorpull/transports/over/pipe/command_words.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace pipe_words_test {

using namespace tensorpull;

std::vector<std::string> words(std::string_view line) {
  command_words split;
  const auto got = split.split(line);
  if (!got) return {"refused", std::to_string(got.error().at)};
  return {got->begin(), got->end()};
}
using list = std::vector<std::string>;

TEST(CommandWords, Spaces_part_them) {
  EXPECT_EQ(words("ssh host send model.safetensors --stdio"),
            (list{"ssh", "host", "send", "model.safetensors", "--stdio"}));
  EXPECT_EQ(words(" \ta\t b  "), (list{"a", "b"}));
  EXPECT_EQ(words("a"), (list{"a"}));
}
TEST(CommandWords, Quotes_and_backslashes_keep_characters_together) {
  EXPECT_EQ(words("a 'b c' \"d e\" f\\ g"), (list{"a", "b c", "d e", "f g"}));
  EXPECT_EQ(words("a'b'\"c\"d"), (list{"abcd"}));
  EXPECT_EQ(words("'' \"\""), (list{"", ""}));
  EXPECT_EQ(words("'a\\b' \"a\\\"b\\\\\" \\'"), (list{"a\\b", "a\"b\\", "'"}));
  EXPECT_EQ(words("a \"'\" '\"'"), (list{"a", "'", "\""}));
}
TEST(CommandWords, Nothing_else_has_a_meaning) {
  EXPECT_EQ(words("echo $HOME *.c ; rm -r ~ | cat > `x` $(y) & #z"),
            (list{"echo", "$HOME", "*.c", ";", "rm", "-r", "~", "|", "cat", ">", "`x`", "$(y)", "&", "#z"}));
}
TEST(CommandWords, What_is_no_command_is_refused_with_its_place) {
  EXPECT_EQ(words(""), (list{"refused", "0"}));
  EXPECT_EQ(words(" \t"), (list{"refused", "0"}));
  EXPECT_EQ(words("ab 'cd"), (list{"refused", "3"}));
  EXPECT_EQ(words("ab \"c\\\""), (list{"refused", "3"}));
  EXPECT_EQ(words("ab\\"), (list{"refused", "2"}));
  EXPECT_EQ(words(std::string_view("a\0b", 3)), (list{"refused", "1"}));
  EXPECT_EQ(words(std::string_view("a\\\0b", 4)), (list{"refused", "1"}));
}
TEST(CommandWords, The_longest_fits) {
  const std::string long_one(command_words::most_bytes, 'x');
  EXPECT_EQ(words(long_one), list{long_one});
  EXPECT_EQ(words(long_one + "x"), (list{"refused", "4097"}));
  std::string many;
  for (std::size_t i = 0; i < command_words::most_words; ++i) many += "a ";
  EXPECT_EQ(words(many).size(), command_words::most_words);
  EXPECT_EQ(words(many + "a"), (list{"refused", std::to_string(many.size())}));
}

}  // namespace pipe_words_test
