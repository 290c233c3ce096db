#include <tensorpull/system/address.hpp>

#include <gtest/gtest.h>

#include <string>

namespace address_test {

using namespace tensorpull;

TEST(Address, Host_and_port) {
  const auto a = parse_address("server.example:8002");
  ASSERT_TRUE(a);
  EXPECT_STREQ(a->host.data(), "server.example");
  EXPECT_STREQ(a->port.data(), "8002");
  EXPECT_EQ(a->number, 8002);
}
TEST(Address, An_empty_host_is_every_address) {
  const auto a = parse_address(":0");
  ASSERT_TRUE(a);
  EXPECT_STREQ(a->host.data(), "");
  EXPECT_EQ(a->number, 0);
}
TEST(Address, Six_wants_brackets) {
  const auto a = parse_address("[::1]:65535");
  ASSERT_TRUE(a);
  EXPECT_STREQ(a->host.data(), "::1");
  EXPECT_EQ(a->number, 65535);
  EXPECT_FALSE(parse_address("::1:80"));
}
TEST(Address, What_is_no_address_is_refused_and_named) {
  const std::string zero_in_host("a\0b:80", 6), long_host = std::string(256, 'a') + ":80";
  for (const std::string_view text :
       {"", "localhost", "localhost:", "localhost:65536", "localhost:99999", "localhost:123456", "localhost:-1",
        "localhost:+1", "localhost: 80", "localhost:80 ", "localhost:0x50", "localhost:http", "a:b:80", "[::1]",
        "[::1:80"}) {
    const auto a = parse_address(text);
    ASSERT_FALSE(a) << text;
    EXPECT_EQ(a.error(), errc::bad_address) << text;
    EXPECT_EQ(a.error().name.view(), text);
  }
  EXPECT_FALSE(parse_address(zero_in_host));
  EXPECT_FALSE(parse_address(long_host));
  EXPECT_TRUE(parse_address(std::string(255, 'a') + ":80"));
}

TEST(Address, What_is_refused_is_named_without_its_passwords) {
  EXPECT_EQ(parse_address("http://user:secret@proxy:3128").error().name.view(), "http://proxy:3128");
}

}  // namespace address_test
