// URLs, and where redirects lead.
#include <tensorpull/satellites/http/text/http_url.hpp>

#include <gtest/gtest.h>

namespace http_url_test {

namespace tp = tensorpull;
using tp::errc;

TEST(HttpUrl, Parts_are_those_that_were_written_and_the_target_stays_byte_for_byte) {
  const auto u = tp::parse_http_url(
      "HTTPS://Store.Example:8443/b%2Fa/model.safetensors?X-Amz-Signature=aB%2f+~&x=1#part");
  ASSERT_TRUE(u);
  EXPECT_TRUE(u->secure);
  EXPECT_EQ(u->host, "store.example");
  EXPECT_EQ(u->port, 8443);
  EXPECT_EQ(u->target, "/b%2Fa/model.safetensors?X-Amz-Signature=aB%2f+~&x=1");
  EXPECT_EQ(u->authority(), "store.example:8443");
  EXPECT_EQ(u->text(), "https://store.example:8443/b%2Fa/model.safetensors?X-Amz-Signature=aB%2f+~&x=1");

  const auto plain = tp::parse_http_url("http://h");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->port, 80);
  EXPECT_EQ(plain->target, "/");
  EXPECT_EQ(plain->authority(), "h");
  EXPECT_EQ(tp::parse_http_url("https://h?a=b")->target, "/?a=b");
  EXPECT_EQ(tp::parse_http_url("https://h")->address(), "h:443");

  const auto v6 = tp::parse_http_url("http://[::1]:8080/x");
  ASSERT_TRUE(v6);
  EXPECT_EQ(v6->host, "::1");
  EXPECT_EQ(v6->address(), "[::1]:8080");
  EXPECT_EQ(tp::parse_http_url("http://[::1]/x")->authority(), "[::1]");
}

TEST(HttpUrl, Whatever_could_be_read_in_two_ways_is_refused_and_not_repeated) {
  using std::string_view_literals::operator""sv;
  for (const std::string_view text : {"",
                                      "http:/h/x",
                                      "ftp://h/x",
                                      "file:///etc/passwd",
                                      "http://",
                                      "http:///x",
                                      "http://user@h/x",
                                      "http://user:secret@h/x",
                                      "http://h:80@evil/x",
                                      "http://h\\@evil/x",
                                      "http://h/a b",
                                      "http://h/a\r\nX: y",
                                      "http://h/a\nb",
                                      "http://h\r\n/x",
                                      "http://h/\x7f",
                                      "http://h/\xc3\xa4",
                                      "http://h/%",
                                      "http://h/%4",
                                      "http://h/%zz",
                                      "http://h:/x",
                                      "http://h:0/x",
                                      "http://h:65536/x",
                                      "http://h:080000/x",
                                      "http://h:8x/x",
                                      "http://h:+8/x",
                                      "http://[::1/x",
                                      "http://[::1]8/x",
                                      "http://[h]/x",
                                      "http://[::1%25lo]/x",
                                      "http://::1/x",
                                      "http://h%2eevil/x",
                                      "http://.h/x",
                                      "http://-h/x",
                                      "http://h/a\\b",
                                      "http://h/<x>",
                                      "http://h/#a b",
                                      "http://h/a\tb"}) {
    const auto u = tp::parse_http_url(text);
    ASSERT_FALSE(u) << text;
    EXPECT_EQ(u.error(), errc::bad_address) << text;
    EXPECT_EQ(u.error().name.view(), "URL") << text;
  }
  EXPECT_FALSE(tp::parse_http_url("http://h/a\0b"sv));
  EXPECT_FALSE(tp::parse_http_url("http://h/" + std::string(tp::http_url::most_bytes, 'a')));
  EXPECT_FALSE(tp::parse_http_url("http://" + std::string(254, 'a') + "/"));
}

TEST(HttpUrl, A_redirect_is_read_relative_to_what_was_asked_and_never_leaves_encryption) {
  const auto base = *tp::parse_http_url("https://h:8443/a/b/c?q=1");
  const auto to = [&](std::string_view location) { return tp::resolve_location(base, location)->text(); };
  EXPECT_EQ(to("https://other/x?y"), "https://other/x?y");
  EXPECT_EQ(to("//other/x"), "https://other/x");
  EXPECT_EQ(to("/x/../y"), "https://h:8443/y");
  EXPECT_EQ(to("d"), "https://h:8443/a/b/d");
  EXPECT_EQ(to("../d"), "https://h:8443/a/d");
  EXPECT_EQ(to("../../../../d/."), "https://h:8443/d/");
  EXPECT_EQ(to("?q=2"), "https://h:8443/a/b/c?q=2");
  EXPECT_EQ(to("d?at=a:b"), "https://h:8443/a/b/d?at=a:b");
  EXPECT_EQ(tp::resolve_location(base, "http://h/x").error(), errc::not_permitted);
  for (const std::string_view bad :
       {"", "ftp://h/x", "javascript:x", "https://u:p@h/x", "/a b", "/a\r\nSet-Cookie: x", "//", "https:x"})
    EXPECT_EQ(tp::resolve_location(base, bad).error(), errc::bad_address) << bad;
  const auto open = *tp::parse_http_url("http://h/x");
  EXPECT_EQ(tp::resolve_location(open, "https://h/x")->text(), "https://h/x");
  EXPECT_FALSE(tp::resolve_location(open, "https://h/x")->same_origin(open));
  EXPECT_TRUE(open.same_origin(*tp::parse_http_url("HTTP://H:80/y")));
  EXPECT_FALSE(open.same_origin(*tp::parse_http_url("http://h:81/x")));
}

}  // namespace http_url_test
