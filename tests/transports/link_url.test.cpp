#include <tensorpull/system/link_url.hpp>

#include <gtest/gtest.h>

#include <string>

namespace link_url_test {

using namespace tensorpull;

void expect(std::string_view text, link_scheme scheme, std::string_view address) {
  const auto url = parse_link_url(text);
  ASSERT_TRUE(url) << text;
  EXPECT_EQ(url->scheme, scheme) << text;
  EXPECT_EQ(url->address, address) << text;
}

TEST(LinkUrl, A_scheme_says_which_link) {
  expect("tcp://host:80", link_scheme::tcp_url, "host:80");
  expect("tls://[::1]:8002", link_scheme::tls_url, "[::1]:8002");
  expect("udp://:0", link_scheme::udp_url, ":0");
  expect("nats://user:pass@host:4222", link_scheme::nats_url, "nats://user:pass@host:4222");
  expect("unix:/run/model", link_scheme::unix_url, "/run/model");
  expect("unix:///run/model", link_scheme::unix_url, "/run/model");
  expect("unix:model", link_scheme::unix_url, "model");
  expect("unix:@model", link_scheme::unix_url, "@model");
  expect("shm:/run/model", link_scheme::shm_url, "/run/model");
  expect("serial:/dev/ttyUSB0?speed=115200", link_scheme::serial_url, "/dev/ttyUSB0?speed=115200");
  expect("pipe:ssh host send m.safetensors --stdio", link_scheme::pipe_url, "ssh host send m.safetensors --stdio");
  expect("pipe:-", link_scheme::pipe_url, "-");
  expect("pipe:a://b", link_scheme::pipe_url, "a://b");
}
TEST(LinkUrl, Users_and_passwords_are_in_no_error) {
  const auto shown = [](std::string_view text) { return std::string(without_secrets(text).view()); };
  EXPECT_EQ(shown("nats://alice:secret@host:4222"), "nats://host:4222");
  EXPECT_EQ(shown("nats://alice:secret@one:1,tls://bob:p@ss@two:2#name"), "nats://one:1,tls://two:2#name");
  EXPECT_EQ(shown("nats://alice:se,cret@host:4222"), "nats://host:4222");
  EXPECT_EQ(shown("alice:secret@host:4222"), "host:4222");
  EXPECT_EQ(shown("nats://" + std::string(50, 'u') + ":secret@host:4222"), "nats://host:4222");
  EXPECT_EQ(shown("nats://host:4222"), "nats://host:4222");
  EXPECT_EQ(shown("host:1"), "host:1");
  EXPECT_EQ(shown(std::string(70, 'x')), std::string(52, 'x') + "...") << "cut as any name";
  for (const char* bad : {"nats:alice:secret@host", "http://alice:secret@host", "tcp://alice:secret@host"})
    EXPECT_EQ(parse_link_url(bad).error().name.view().find("secret"), std::string_view::npos) << bad;
}
TEST(LinkUrl, Host_and_port_are_tcp) {
  expect("127.0.0.1:8002", link_scheme::tcp_url, "127.0.0.1:8002");
  expect("localhost:1", link_scheme::tcp_url, "localhost:1");
  expect(":0", link_scheme::tcp_url, ":0");
  expect("[::1]:80", link_scheme::tcp_url, "[::1]:80");
  expect("tcp://unix:80", link_scheme::tcp_url, "unix:80");
  expect("unix:80", link_scheme::unix_url, "80");
  expect("unixes:80", link_scheme::tcp_url, "unixes:80");
}
TEST(LinkUrl, What_is_none_is_refused_and_named) {
  for (const std::string& text : {std::string(),
                                  std::string("tcp"),
                                  std::string("tcp:"),
                                  std::string("tcp://"),
                                  std::string("tcp://host"),
                                  std::string("tcp:80"),
                                  std::string("tls:host:80"),
                                  std::string("udp://host:65536"),
                                  std::string("TCP://host:80"),
                                  std::string("http://host:80"),
                                  std::string("nats:"),
                                  std::string("nats:host:1"),
                                  std::string("nats://"),
                                  std::string("unix:"),
                                  std::string("unix://"),
                                  std::string("unix://run/model"),
                                  std::string("pipe:"),
                                  std::string("unix:a\0b", 8),
                                  std::string("a\0:80", 5),
                                  std::string(" tcp://host:80"),
                                  std::string("tcp ://host:80"),
                                  std::string("tcp://a:b:80")}) {
    const auto url = parse_link_url(text);
    ASSERT_FALSE(url) << text;
    EXPECT_EQ(url.error(), errc::bad_address) << text;
    EXPECT_EQ(url.error().name.view(), text);
  }
}
TEST(LinkUrl, Each_scheme_has_its_own_name) {
  for (int i = 0; i < 8; ++i) {
    const auto scheme = static_cast<link_scheme>(i);
    EXPECT_FALSE(to_string(scheme).empty());
    for (int k = 0; k < i; ++k) EXPECT_NE(to_string(scheme), to_string(static_cast<link_scheme>(k)));
  }
}

}  // namespace link_url_test
