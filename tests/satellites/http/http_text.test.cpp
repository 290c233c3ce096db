// The text of HTTP that is read here and not by libcurl: digests, ranges, limits of rates; and which URLs are taken.
#include <tensorpull/satellites/http/recipient/detail/http_head.hpp>
#include <tensorpull/satellites/http/recipient/http_url.hpp>

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

namespace http_text_test {

namespace tp = tensorpull;
using tp::errc;

TEST(HttpUrl, Parts_are_those_that_were_written_and_the_target_stays_byte_for_byte) {
  const auto u = tp::parse_http_url(
      "HTTPS://Store.Example:8443/b%2Fa/../model.safetensors?X-Amz-Signature=aB%2f+~&x=1#part");
  ASSERT_TRUE(u);
  EXPECT_TRUE(u->secure());
  EXPECT_EQ(u->address(), "store.example:8443");
  EXPECT_EQ(u->target(), "/b%2Fa/../model.safetensors?X-Amz-Signature=aB%2f+~&x=1");
  EXPECT_EQ(u->origin(), "https://store.example:8443");
  EXPECT_EQ(tp::parse_http_url("http://h")->text, "http://h:80/");
  EXPECT_EQ(tp::parse_http_url("https://h")->address(), "h:443");
  EXPECT_EQ(tp::parse_http_url("http://[::1]:80/x")->text, "http://[::1]:80/x");
}

TEST(HttpUrl, One_with_a_secret_or_a_line_end_or_of_another_scheme_is_refused_and_not_repeated) {
  using std::string_view_literals::operator""sv;
  for (const std::string_view text :
       {"", "h/x", "ftp://h/x", "file:///etc/passwd", "http://", "http://user@h/x", "http://user:secret@h/x",
        "http://h:80@evil/x", "http://h\\@evil/x", "http://h/a b", "http://h/a\r\nX: y", "http://h\r\n/x",
        "http://h:65536/x", "http://h:8x/x", "http://[::1/x", "http://[::1%25lo]/x"}) {
    const auto u = tp::parse_http_url(text);
    ASSERT_FALSE(u) << text;
    EXPECT_EQ(u.error(), errc::bad_address) << text;
    EXPECT_EQ(u.error().name.view(), "URL") << text;
  }
  EXPECT_FALSE(tp::parse_http_url("http://h/a\0b"sv));
}

TEST(HttpUrl, A_redirect_is_read_relative_to_what_was_asked_and_never_leaves_encryption) {
  const auto base = *tp::parse_http_url("https://h:8443/a/b/c?q=1");
  const auto to = [&](std::string_view location) { return tp::resolve_location(base, location)->text; };
  EXPECT_EQ(to("https://other/x?y"), "https://other:443/x?y");
  EXPECT_EQ(to("//other/x"), "https://other:443/x");
  EXPECT_EQ(to("../d?at=a:b"), "https://h:8443/a/d?at=a:b");
  EXPECT_EQ(to("?q=2%2F"), "https://h:8443/a/b/c?q=2%2F");
  EXPECT_EQ(tp::resolve_location(base, "http://h/x").error(), errc::not_permitted);
  for (const std::string_view bad :
       {"", "ftp://h/x", "javascript:x", "https://u:p@h/x", "/a\r\nSet-Cookie: x", "file:///x"})
    EXPECT_EQ(tp::resolve_location(base, bad).error(), errc::bad_address) << bad;
  const auto open = *tp::parse_http_url("http://h/x");
  EXPECT_NE(tp::resolve_location(open, "https://h/x")->origin(), open.origin());
  EXPECT_EQ(tp::parse_http_url("HTTP://H:80/y")->origin(), open.origin());
  EXPECT_NE(tp::parse_http_url("http://h:81/x")->origin(), open.origin());
}

TEST(HttpRange, Content_ranges_are_read_as_servers_write_them_and_lie_in_the_file) {
  for (const std::string_view text : {"bytes 5-14/100", "Bytes 5-14/100", "bytes=5-14/100", "bytes  5-14/100"}) {
    const auto r = tp::detail::parse_content_range(text);
    ASSERT_TRUE(r) << text;
    EXPECT_EQ(r->from, 5u);
    EXPECT_EQ(r->to, 15u);
    EXPECT_EQ(r->total, 100u);
  }
  EXPECT_EQ(tp::detail::parse_content_range("bytes 5-14/*")->total, ~std::uint64_t{0});
  for (const std::string_view text :
       {"", "bytes", "bytes */100", "items 0-9/100", "bytes 0-9", "bytes 0-9/", "bytes 9-0/100", "bytes 0-100/100",
        "bytes -9/100", "bytes 0-18446744073709551615/*", "bytes 0-9/18446744073709551615", "bytes 0-9/1x",
        "bytes 0-/9", "bytes 1/2-3"})
    EXPECT_FALSE(tp::detail::parse_content_range(text)) << text;
}

TEST(HttpRateLimit, The_longest_time_counts) {
  using tp::detail::rate_limit_seconds;
  EXPECT_EQ(rate_limit_seconds("\"resolvers\";r=0;t=87"), 87u);
  EXPECT_EQ(rate_limit_seconds("\"a\";t=5, \"b;t=9\"; r=0; t=7"), 7u);
  for (const std::string_view text : {"", "limit=10, remaining=0, reset=7", "\"a\";t=x", "\"a\";t=", ";;;"})
    EXPECT_EQ(rate_limit_seconds(text), 0u) << text;
}

TEST(HttpDigest, Digests_are_read_and_two_that_differ_are_doubtful) {
  const std::string empty = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
                    other = "48DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";
  const auto digest = [](std::initializer_list<std::string> fields) {
    tp::detail::repr_digest d;
    for (const std::string& f : fields) d.add(f);
    return d;
  };
  const auto one = digest({"sha-512=:AAAA:, sha-256=:" + empty + ":"});
  EXPECT_TRUE(one.known && !one.doubtful);
  EXPECT_TRUE(one.sha256 == tp::sha256_hash{}.value());
  EXPECT_FALSE(digest({"sha-256=:" + empty + ":", "sha-256=:" + empty + ":"}).doubtful);
  EXPECT_TRUE(digest({"sha-256=:" + empty + ":", "sha-256=:" + other + ":"}).doubtful);
  EXPECT_TRUE(digest({"sha-256=:" + empty + ":, sha-256=:" + other + ":"}).doubtful);
  EXPECT_TRUE(digest({"sha-256=" + empty}).doubtful);
  EXPECT_TRUE(digest({"sha-256=:" + empty.substr(1) + ":"}).doubtful);
  EXPECT_TRUE(digest({"xxh3=:AAAAAAAAAAI=:, xxh3=:AAAAAAAAAAE=:"}).doubtful);
}

TEST(HttpDigest, Sha256_has_the_published_values_however_the_bytes_are_cut) {
  const auto hex = [](std::string_view text) { return *tp::detail::parse_sha256(text); };
  const auto of = [](std::string_view text, std::size_t piece) {
    tp::sha256_hash h;
    for (std::size_t at = 0; at < text.size(); at += piece) h.update(std::as_bytes(std::span(text.substr(at, piece))));
    return h.value();
  };
  EXPECT_TRUE(of("abc", 1) == hex("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
  const std::string a(1'000'000, 'a');
  for (const std::size_t piece : {std::size_t{63}, std::size_t{64}, std::size_t{1000}, a.size()})
    EXPECT_TRUE(of(a, piece) == hex("cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"));
  for (std::size_t n = 0; n < 130; ++n) EXPECT_TRUE(of(a.substr(0, n), 7) == of(a.substr(0, n), n + 1)) << n;
}

}  // namespace http_text_test
