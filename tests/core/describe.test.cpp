#include <tensorpull/core/describe.hpp>

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <sstream>
#include <string>

namespace describe_test {

using namespace tensorpull;

TEST(Describe, A_code_alone_is_its_sentence) {
  for_each_code([](errc code) { EXPECT_EQ(describe({code, 0, 0, {}}).view(), to_string(code)); });
}

TEST(Describe, Adds_the_name_the_place_and_what_the_system_says) {
  EXPECT_EQ(describe({errc::schema_mismatch, 0, 0, error_name("layers.0.weight")}).view(),
            "the model on the other side has another schema: layers.0.weight");
  EXPECT_EQ(describe({errc::bad_file, 0, 4096, {}}).view(), "the file is not valid, at 4096");
  EXPECT_EQ(describe({errc::withdrawn, -1, 4096, {}}).view(),
            "what was published under the reference has been withdrawn, at 4096 (reason 4294967295)");
  EXPECT_EQ(describe({errc::bad_file, 0, ~std::uint64_t{0}, error_name("a")}).view(),
            "the file is not valid: a, at 18446744073709551615");
  EXPECT_EQ(describe({errc::connection_lost, -255, 0, {}}).view(), "the connection was lost (exit status 255)");
  EXPECT_EQ(describe({errc::connection_lost, std::numeric_limits<std::int32_t>::min(), 0, {}}).view(),
            "the connection was lost (exit status 2147483648)");
  const std::string says = std::strerror(ENOENT);
  EXPECT_EQ(describe({errc::io, ENOENT, 10, error_name("m.npy")}).view(),
            "the operating system reported an error: m.npy, at 10 (" + says + ")");
}

TEST(Describe, Goes_where_text_goes) {
  const auto text = describe({errc::busy, 0, 0, {}});
  const std::string_view converted = text;
  EXPECT_EQ(converted, to_string(errc::busy));
  EXPECT_EQ(std::strlen(text.c_str()), converted.size());
  std::ostringstream stream;
  stream << "no: " << describe({errc::busy, 0, 0, {}}) << '.';
  EXPECT_EQ(stream.str(), "no: " + std::string(to_string(errc::busy)) + ".");
}

TEST(Describe, A_name_from_the_other_side_cannot_steer_a_terminal) {
  EXPECT_EQ(describe({errc::unknown_field, 0, 0, error_name("a\x1b[2J\n\x7f")}).view(),
            std::string(to_string(errc::unknown_field)) + ": a?[2J??");
  EXPECT_EQ(describe({errc::unknown_field, 0, 0,
                      error_name("a\xc2\x9b"
                                 "2J\xc3\x9b")})
                .view(),
            std::string(to_string(errc::unknown_field)) + ": a\xc2?2J\xc3\x9b");
}

TEST(Describe, The_longest_text_fits) {
  for_each_code([](errc code) {
    const auto text = describe({code, E2BIG, ~std::uint64_t{0}, error_name(std::string(100, 'n'))});
    EXPECT_LT(text.view().size(), 255u) << "nothing is cut off";
    EXPECT_EQ(text.view().back(), ')');
  });
  error_text full;
  for (int i = 0; i < 100; ++i) full += "ten bytes ";
  EXPECT_EQ(full.view().size(), 255u);
  EXPECT_EQ(full.c_str()[255], '\0');
}

}  // namespace describe_test
