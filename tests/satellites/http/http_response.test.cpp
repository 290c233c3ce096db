// What servers say in the heads of their answers, and digests.
#include <tensorpull/satellites/http/recipient/http_response.hpp>

#include <gtest/gtest.h>

#include <string>

namespace http_response_test {

namespace tp = tensorpull;
using tp::errc;

const std::string ok = "HTTP/1.1 206 Partial Content\r\n";

tp::result<tp::http_head> read(const std::string& bytes) {
  tp::http_response_reader r;
  const auto used = r.take(bytes);
  if (!used) return tp::failure(used.error());
  if (*used == 0) return tp::failure(errc::truncated);
  return r.head();
}

TEST(HttpResponse, The_same_is_read_wherever_the_bytes_are_cut) {
  const std::string text =
      ok +
      "Content-Length: 10\r\nContent-Range: bytes 5-14/100\r\nETag: \"a\"\r\nRepr-Digest: xxh3=:AAAAAAAAAAI=:\r\n\r\n";
  for (std::size_t cut = 0; cut < text.size(); ++cut) {
    tp::http_response_reader r;
    const auto first = r.take(std::string_view(text).substr(0, cut));
    ASSERT_TRUE(first) << cut;
    EXPECT_EQ(*first, 0u) << cut;
    const std::string more = text + "BODY";
    const auto all = r.take(more);
    ASSERT_TRUE(all) << cut;
    EXPECT_EQ(*all, text.size());
    EXPECT_EQ(r.head().status, 206u);
    EXPECT_TRUE(r.head().has_length && r.head().has_range && r.head().persists && r.head().digest.ours);
    EXPECT_EQ(r.head().range.from, 5u);
    EXPECT_EQ(r.head().range.to, 15u);
    EXPECT_EQ(r.head().range.total, 100u);
    EXPECT_EQ(r.head().etag.view(), "\"a\"");
    EXPECT_EQ(r.head().digest.xxh3, 2u);
  }
}

TEST(HttpResponse, A_head_that_two_readers_would_cut_differently_is_refused) {
  for (const std::string fields : {"Content-Length: 10\r\nContent-Length: 11\r\n",
                                   "Content-Length: 10\r\nContent-Length: 10\r\n",
                                   "Content-Length: 10, 10\r\n",
                                   "Content-Length: -1\r\n",
                                   "Content-Length: +1\r\n",
                                   "Content-Length: 0x10\r\n",
                                   "Content-Length: 99999999999999999999\r\n",
                                   "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
                                   "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
                                   "Transfer-Encoding: gzip\r\n",
                                   "Transfer-Encoding: gzip, chunked\r\nX: y\r\nContent-Length: 2\r\n",
                                   "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                                   "Content-Range: bytes 0-1/2\r\nContent-Range: bytes 0-1/2\r\n",
                                   "Bad Name: x\r\n",
                                   ": x\r\n",
                                   "X\r\n",
                                   "X: a\nY: b\r\n",
                                   "X: a\r\n b\r\n",
                                   "X : a\r\n",
                                   "X: a\rb\r\n",
                                   "X: a\x7f\r\n",
                                   "Transfer-Encoding: gzip, chunked\r\n",
                                   "Content-Length: 18446744073709551615\r\n"}) {
    const auto h = read(ok + fields + "\r\n");
    ASSERT_FALSE(h) << fields;
    EXPECT_EQ(h.error(), errc::bad_frame) << fields;
  }
  for (const std::string line : {"HTTP/2 200 OK\r\n\r\n", "HTTP/1.1 20 OK\r\n\r\n", "SSH-2.0-OpenSSH\r\n\r\n",
                                 "HTTP/1.1 2000 OK\r\n\r\n", "ICY 200 OK\r\n\r\n", "HTTP/1.1 200\r\n\r\n",
                                 "HTTP/1.2 200 OK\r\n\r\n", "HTTP/1.1 2x0 OK\r\n\r\n", "\r\nHTTP/1.1 200 OK\r\n\r\n"})
    EXPECT_FALSE(read(line)) << line;
}

TEST(HttpResponse, A_connection_can_be_used_again_if_both_its_ends_know_where_the_body_ends) {
  const std::string length = "Content-Length: 3\r\n";
  EXPECT_TRUE(read(ok + length + "\r\n")->persists);
  EXPECT_TRUE(read(ok + "Transfer-Encoding: Chunked\r\n\r\n")->persists);
  EXPECT_TRUE(read("HTTP/1.1 204 No Content\r\n\r\n")->persists);
  EXPECT_TRUE(read("HTTP/1.0 200 OK\r\nConnection: x, Keep-Alive\r\n" + length + "\r\n")->persists);
  EXPECT_FALSE(read(ok + "\r\n")->persists);
  EXPECT_FALSE(read(ok + length + "Connection: keep-alive, Close\r\n\r\n")->persists);
  EXPECT_FALSE(read(ok + length + "Proxy-Connection: close\r\n\r\n")->persists);
  EXPECT_FALSE(read("HTTP/1.0 200 OK\r\n" + length + "\r\n")->persists);
}

TEST(HttpResponse, A_head_that_does_not_end_is_too_large) {
  tp::http_response_reader r;
  EXPECT_EQ(r.take(ok + "X: " + std::string(tp::http_response_reader::most_bytes, 'a')).error(), errc::too_large);
}

TEST(HttpResponse, Only_what_proves_equal_bytes_is_a_validator) {
  EXPECT_EQ(read(ok + "ETag: W/\"a\"\r\n\r\n")->etag.view(), "");
  EXPECT_EQ(read(ok + "ETag: a\r\n\r\n")->etag.view(), "");
  EXPECT_EQ(read(ok + "ETag: \"a\"\r\nETag: \"b\"\r\n\r\n")->etag.view(), "");
  EXPECT_EQ(read(ok + "ETag: \"" + std::string(300, 'x') + "\"\r\n\r\n")->etag.view(), "");
  const std::string modified = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
  EXPECT_EQ(read(ok + modified + "Date: Sun, 06 Nov 1994 08:50:37 GMT\r\n\r\n")->modified.view(),
            "Sun, 06 Nov 1994 08:49:37 GMT");
  EXPECT_EQ(read(ok + modified + "Date: Sun, 06 Nov 1994 08:50:36 GMT\r\n\r\n")->modified.view(), "");
  EXPECT_EQ(read(ok + modified + "\r\n")->modified.view(), "");
  EXPECT_EQ(read(ok + "Retry-After: 7\r\n\r\n")->retry_after_s, 7u);
  EXPECT_EQ(read(ok + "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nRetry-After: Sun, 06 Nov 1994 08:49:47 GMT\r\n\r\n")
                ->retry_after_s,
            10u);
}

TEST(HttpResponse, Digests_are_read_and_two_that_differ_are_doubtful) {
  const std::string empty = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
                    other = "48DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";
  const auto digest = [](const std::string& fields) { return read(ok + fields + "\r\n")->digest; };
  const auto one = digest("Repr-Digest: sha-512=:AAAA:, sha-256=:" + empty + ":\r\n");
  EXPECT_TRUE(one.known && !one.doubtful);
  EXPECT_TRUE(one.sha256 == tp::sha256_hash{}.value());
  EXPECT_FALSE(digest("Repr-Digest: sha-256=:" + empty + ":\r\nRepr-Digest: sha-256=:" + empty + ":\r\n").doubtful);
  EXPECT_TRUE(digest("Repr-Digest: sha-256=:" + empty + ":\r\nRepr-Digest: sha-256=:" + other + ":\r\n").doubtful);
  EXPECT_TRUE(digest("Repr-Digest: sha-256=:" + empty + ":, sha-256=:" + other + ":\r\n").doubtful);
  EXPECT_TRUE(digest("Repr-Digest: sha-256=" + empty + "\r\n").doubtful);
  EXPECT_TRUE(digest("Repr-Digest: sha-256=:" + empty.substr(1) + ":\r\n").doubtful);
  EXPECT_TRUE(digest("Repr-Digest: xxh3=:AAAAAAAAAAI=:, xxh3=:AAAAAAAAAAE=:\r\n").doubtful);
  EXPECT_FALSE(digest("Content-Digest: sha-256=:" + empty + ":\r\n").known);
}

TEST(HttpResponse, Sha256_has_the_published_values_however_the_bytes_are_cut) {
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

}  // namespace http_response_test
