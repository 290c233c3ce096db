#include <tensorpull/system/link_url.hpp>

#include <gtest/gtest.h>

#include <string>

namespace link_url_test {

using namespace tensorpull;

void expect(std::string_view text, std::string_view scheme, std::string_view address, std::string_view also = {}) {
  const auto url = parse_link_url(text, also);
  ASSERT_TRUE(url) << text;
  EXPECT_EQ(url->scheme, scheme) << text;
  EXPECT_EQ(url->address, address) << text;
}

TEST(LinkUrl, A_scheme_says_which_link) {
  expect("tcp://host:80", "tcp", "host:80");
  expect("tls://[::1]:8002", "tls", "[::1]:8002");
  expect("udp://:0", "udp", ":0");
  expect("unix:/run/model", "unix", "/run/model");
  expect("unix:///run/model", "unix", "/run/model");
  expect("unix:model", "unix", "model");
  expect("unix:@model", "unix", "@model");
  expect("serial:/dev/ttyUSB0?speed=115200", "serial", "/dev/ttyUSB0?speed=115200");
  expect("pipe:ssh host send m.safetensors --stdio", "pipe", "ssh host send m.safetensors --stdio");
  expect("pipe:-", "pipe", "-");
  expect("pipe:a://b", "pipe", "a://b");
}
TEST(LinkUrl, Users_and_passwords_are_in_no_error) {
  const auto shown = [](std::string_view text) { return std::string(without_secrets(text).view()); };
  EXPECT_EQ(shown("wire://alice:secret@host:4222"), "wire://host:4222");
  EXPECT_EQ(shown("wire://alice:secret@one:1,tls://bob:p@ss@two:2#name"), "wire://one:1,tls://two:2#name");
  EXPECT_EQ(shown("wire://alice:se,cret@host:4222"), "wire://host:4222");
  EXPECT_EQ(shown("alice:secret@host:4222"), "host:4222");
  EXPECT_EQ(shown("wire://" + std::string(50, 'u') + ":secret@host:4222"), "wire://host:4222");
  EXPECT_EQ(shown("wire://host:4222"), "wire://host:4222");
  EXPECT_EQ(shown("host:1"), "host:1");
  EXPECT_EQ(shown(std::string(70, 'x')), std::string(52, 'x') + "...") << "cut as any name";
  for (const char* bad : {"tls:alice:secret@host", "unix://alice:secret@host", "tcp://alice:secret@host"})
    EXPECT_EQ(parse_link_url(bad).error().name.view().find("secret"), std::string_view::npos) << bad;
}
TEST(LinkUrl, Host_and_port_are_tcp) {
  expect("127.0.0.1:8002", "tcp", "127.0.0.1:8002");
  expect("localhost:1", "tcp", "localhost:1");
  expect(":0", "tcp", ":0");
  expect("[::1]:80", "tcp", "[::1]:80");
  expect("tcp://unix:80", "tcp", "unix:80");
  expect("unix:80", "unix", "80");
  expect("unixes:80", "tcp", "unixes:80");
}
TEST(LinkUrl, What_is_none_is_refused_and_named) {
  for (const std::string& text :
       {std::string(), std::string("tcp"), std::string("tcp:"), std::string("tcp://"), std::string("tcp://host"),
        std::string("tcp:80"), std::string("tls:host:80"), std::string("udp://host:65536"),
        std::string("TCP://host:80"), std::string("unix:"), std::string("unix://"), std::string("unix://run/model"),
        std::string("pipe:"), std::string("unix:a\0b", 8), std::string("a\0:80", 5), std::string(" tcp://host:80"),
        std::string("tcp ://host:80"), std::string("tcp://a:b:80")}) {
    const auto url = parse_link_url(text);
    ASSERT_FALSE(url) << text;
    EXPECT_EQ(url.error(), errc::bad_address) << text;
    EXPECT_EQ(url.error().name.view(), text);
  }
}
TEST(LinkUrl, A_name_that_is_not_known_is_that_of_another_link) {
  expect("wire://user:pass@host:4222", "wire", "wire://user:pass@host:4222");
  expect("memory:/run/model", "memory", "/run/model");
  expect("memory:///run/model", "memory", "/run/model");
  expect("memory:@model", "memory", "@model");
  expect("memory:80", "tcp", "memory:80");
  expect("memory:80", "memory", "80", "memory");
  for (const char* none : {"memory:", "memory:model", "memory:80:1", "host:65536", "wire://", "Wire://host",
                           "wi re://host", "://host", ":/run/model", ":@model"})
    EXPECT_FALSE(parse_link_url(none)) << none;
  EXPECT_FALSE(parse_link_url("memory://host", "memory"));
}

}  // namespace link_url_test
