// The seeds of this folder's targets.
#include "fuzz/seeds.hpp"

namespace test::fuzz {
namespace {

void make_http_requests() {
  const std::string eight(8, '\0'), cut = std::string("\x01\x01\x03\x02\x07\x05\x01\x40", 8),
                                    key = "0123456789abcdef0123456789abcdef";
  static small_model a;
  a.fill(1);
  char version[20];
  std::snprintf(version, sizeof version, "%016llx", static_cast<unsigned long long>(a.version()));
  const std::string path = "/v1/model/" + std::string(version),
                    fields = " HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + key + "\r\n",
                    get = "GET " + path + fields, end = "\r\n";
  const std::string post = "POST " + path + "/confirm" + fields;
  const std::string pages = "\x02" + std::string(7, '\0'), old = "GET " + path + " HTTP/1.0\r\nAuthorization: Bearer " +
                                                                 key + "\r\nConnection: keep-alive\r\n";
  // of ":0123456789abcdef"
  const std::string looks = "\x04" + std::string(7, '\0'), shown = "Authorization: Basic OjAxMjM0NTY3ODlhYmNkZWY=\r\n";
  const std::pair<const char*, std::string> files[] = {
      {"valid-get", eight + get + end},
      {"valid-get-in-pieces", cut + get + end},
      {"valid-head", eight + "HEAD " + path + fields + end},
      {"valid-range", cut + get + "Range: bytes=8-99\r\nIf-Range: \"" + version + "\"\r\n" + end},
      {"valid-suffix", eight + get + "Range: bytes=-5\r\n" + end},
      {"valid-several", eight + get + "Range: bytes=0-1, 4-5\r\n" + end + get + "Range: bytes=9-8\r\n" + end + get +
                            "Connection: close\r\n" + end + get + end},
      {"valid-conditions",
       eight + get + "If-None-Match: W/\"" + version + "\", \"a,b\"\r\n" + end + get + "If-Match: *\r\n" + end},
      {"valid-confirmed", cut + get + "Tensorpull-Recipient: site-1\r\n" + end + post +
                              "Tensorpull-Recipient: site-1\r\nContent-Length: 23\r\n" + end + "digest=" + version},
      {"valid-digest-in-a-field",
       eight + get + end + post + "Repr-Digest: sha-256=:AA==:, xxh3=:AAAAAAAAAAI=:\r\nContent-Length: 0\r\n" + end},
      {"valid-continued",
       eight + get + end + post + "Expect: 100-continue\r\nContent-Length: 23\r\n" + end + "digest=" + version},
      {"valid-key-in-url", eight + "GET /v1/a/latest?key=" + key + "&x=1 HTTP/1.1\r\nHost: a\r\n" + end},
      {"valid-metrics", cut + "GET /metrics HTTP/1.0\r\n" + end},
      {"valid-status", looks + "GET / HTTP/1.1\r\nHost: a\r\n" + shown + end +
                           "HEAD /status.json HTTP/1.1\r\nHost: a\r\n" + shown + end + "GET /status.json HTTP/1.0\r\n" +
                           shown + end},
      {"valid-preflight", pages + "OPTIONS " + path +
                              " HTTP/1.1\r\nHost: a\r\nOrigin: https://a\r\nAccess-Control-Request-Method: GET\r\n" +
                              end + get + "Origin: https://a\r\n" + end},
      {"valid-kept-1.0", eight + old + end + old + end},
      {"valid-cancelled", cut + get + "Tensorpull-Recipient: site-1\r\n" + end + "POST " + path + "/cancel" + fields +
                              "Tensorpull-Recipient: site-1\r\nContent-Length: 0\r\n" + end},
      {"two-lengths",
       eight + post + "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n" + end + "0\r\n\r\n" + get + end},
      {"length-twice", eight + post + "Content-Length: 0\r\nContent-Length: 0\r\n" + end + get + end},
      {"folded", eight + get + "X: a\r\n b\r\n" + end},
      {"bare-feed", cut + get + "X: a\nY: b\r\n" + end},
      {"bare-return", cut + get + "X: a\rY: b\r\n" + end},
      {"long-line", eight + get + "X: " + std::string(2100, 'a') + "\r\n" + end},
      {"long-path", eight + "GET /" + std::string(2100, 'a')},
      {"dots", eight + "GET /v1/../metrics" + fields + end},
      {"encoded", eight + "GET /v1/a%2f/latest" + fields + end},
      {"frames", eight + std::string("\0\0\0\0\x05\0\0\0", 8)},
  };
  for (const auto& [name, said] : files) write("http_requests", name, said);
}

const seeds mine{make_http_requests};

}  // namespace
}  // namespace test::fuzz
