// What HTTP servers do wrong, by mistake or on purpose. Each is an error with a name, and nothing wrong is under a
// final name.
#include "http_server.hpp"

#include <tensorpull/consumers/any_schema/safetensors_file.hpp>
#include <tensorpull/core/describe.hpp>
#include <tensorpull/satellites/http/recipient/http_pull.hpp>

#include <filesystem>

namespace http_hostile_test {

using namespace test;
using tp::errc;
using net = tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<64_KiB>, tp::http>;

struct HttpHostile : testing::Test {
  std::unique_ptr<mlp> source = random_model<mlp>(9);
  std::string file = file_of<tp::raw_tensors<mlp>>(*source);
  tp::pull_options options{.per_request_timeout = 5s, .unverified = true, .retry = {.retries = 1, .first_delay = 1ms}};
  own_folder folder;
  http_server server{file};  // the last: its threads use what is above

  /// Into a file: after an error there is none.
  tp::error pull(tp::http_address to = {}) {
    const std::string url = server.url(), path = folder / "model";
    to.url = url;
    auto file_there = tp::safetensors_file::create(path);
    EXPECT_TRUE(file_there);
    const auto done = net::pull(to, {}, *file_there, options);
    EXPECT_FALSE(done);
    EXPECT_FALSE(std::filesystem::exists(path));
    return done ? tp::error{} : done.error();
  }
  /// Answers each request from `from` on with this text, and closes.
  tp::error answered(std::string text, std::size_t from = 0) {
    const std::size_t before = server.asked().size();
    server.instead = [text = std::move(text), from, before](const http_asked& a, raw_peer& peer) {
      if (a.number - before < from) return false;
      peer.say(text);
      close_now(peer);
      return true;
    };
    return pull();
  }
  std::string range_head(std::string_view fields) const {
    return "HTTP/1.1 206 Partial Content\r\n" + std::string(fields) + "\r\n";
  }
};

TEST_F(HttpHostile, The_first_answer_is_refused_if_it_is_not_what_was_asked) {
  const std::string total = std::to_string(file.size());
  const std::pair<std::string, errc> cases[]{
      {"garbage that is no HTTP\r\n\r\n", errc::bad_frame},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", errc::bad_frame},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", errc::bad_frame},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", errc::bad_frame},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n", errc::bad_frame},
      {"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello", errc::unsupported_layout},
      {"HTTP/1.1 200 OK\r\nX: " + std::string(70'000, 'x') + "\r\n\r\n", errc::too_large},
      {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", errc::bad_file},
      {"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n1234567", errc::bad_file},
      {"HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n" + std::string("\x04\0\0\0\0\0\0\0abcdefghijklmnopqrstuv", 30),
       errc::bad_file},
      {"HTTP/1.1 200 OK\r\n\r\n" + std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8), errc::too_large},
      {"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n" + std::string("\0\x01\0\0\0\0\0\0{}", 10), errc::bad_file},
      {"HTTP/1.1 101 Switching Protocols\r\n\r\n", errc::unexpected_frame},
      {"HTTP/1.1 417 Expectation Failed\r\nContent-Length: 5\r\n\r\nhello", errc::bad_request},
      {"HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\n\r\nhello", errc::wrong_payload},
      {range_head("Content-Range: bytes 1-65536/" + total + "\r\nContent-Length: 65536\r\n"), errc::wrong_payload},
      {range_head("Content-Range: bytes 0-99/" + total + "\r\nContent-Length: 100\r\n"), errc::wrong_payload},
      {range_head("Content-Range: bytes 0-65535/" + total + "\r\nContent-Length: 65537\r\n"), errc::wrong_payload},
      {range_head("Content-Range: bytes 0-65535/*\r\nContent-Length: 65536\r\n"), errc::unsupported_request},
      {range_head("Content-Range: bytes 0-65535/18446744073709551615\r\nContent-Length: 65536\r\n"),
       errc::wrong_payload},
      {range_head("Content-Range: bytes 0-65535/" + total + "\r\nContent-Type: multipart/byteranges; boundary=x\r\n"),
       errc::wrong_payload},
      {"HTTP/1.1 416 Range Not Satisfiable\r\nContent-Range: bytes */0\r\nContent-Length: 0\r\n\r\n", errc::bad_file},
      {"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n", errc::bad_address},
      {"HTTP/1.1 302 Found\r\nLocation: ftp://h/x\r\nContent-Length: 0\r\n\r\n", errc::bad_address},
      {"HTTP/1.1 302 Found\r\nLocation: http://user:pass@h/x\r\nContent-Length: 0\r\n\r\n", errc::bad_address},
      {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nRepr-Digest: sha-256=:AAAA:\r\n\r\nabcdefghi", errc::bad_frame},
  };
  for (const auto& [text, code] : cases) {
    const tp::error e = answered(text);
    EXPECT_EQ(e, code) << text.substr(0, 120) << "\n" << describe(e).view();
    EXPECT_EQ(e.at == 0 || e.code != errc::wrong_payload, true);
  }
}

TEST_F(HttpHostile, A_range_in_the_middle_is_refused_if_it_is_another) {
  const std::string total = std::to_string(file.size()), good = "Content-Range: bytes 65536-131071/" + total + "\r\n";
  const std::pair<std::string, errc> cases[]{
      {range_head("Content-Range: bytes 65537-131072/" + total + "\r\nContent-Length: 65536\r\n"), errc::wrong_payload},
      {range_head("Content-Range: bytes 65536-131071/1\r\n"), errc::wrong_payload},
      {range_head("Content-Range: bytes 65536-131071/999999999\r\nContent-Length: 65536\r\n"), errc::stale_version},
      {range_head(good + "ETag: \"other\"\r\nContent-Length: 65536\r\n"), errc::stale_version},
      {range_head(good + "Content-Length: 65535\r\n"), errc::wrong_payload},
      {range_head(good + "Content-Encoding: br\r\n"), errc::unsupported_layout},
      {"HTTP/1.1 200 OK\r\nETag: \"v2\"\r\nContent-Length: 1\r\n\r\nx", errc::stale_version},
      {"HTTP/1.1 200 OK\r\nETag: \"v1\"\r\nContent-Length: 1\r\n\r\nx", errc::stale_version},
      {"HTTP/1.1 416 Range Not Satisfiable\r\nContent-Range: bytes */10\r\nContent-Length: 0\r\n\r\n",
       errc::stale_version},
      {"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n", errc::not_permitted},  // for ever
  };
  for (const auto& [text, code] : cases) {
    server.instead = [text = text](const http_asked& a, raw_peer& peer) {
      return a.field("range") == "bytes=65536-131071" && peer.say(text);
    };
    const tp::error e = pull({.connections = 4});
    EXPECT_EQ(e, code) << text << "\n" << describe(e).view();
  }
}

TEST_F(HttpHostile, What_is_missing_at_the_end_is_no_end) {
  server.instead = [this](const http_asked&, raw_peer& peer) {  // fewer bytes than it said, each time
    peer.say("HTTP/1.1 200 OK\r\nETag: \"v1\"\r\nContent-Length: " + std::to_string(file.size()) + "\r\n\r\n" +
             file.substr(0, file.size() - 1));
    close_now(peer);
    return true;
  };
  EXPECT_EQ(pull(), errc::connection_lost);
  server.instead = [this](const http_asked&, raw_peer& peer) {  // a whole of another length than its header says
    return peer.say("HTTP/1.1 200 OK\r\nETag: \"v1\"\r\nContent-Length: " + std::to_string(file.size() + 1) +
                    "\r\n\r\n" + file + "x");
  };
  EXPECT_EQ(pull(), errc::bad_file);
}

TEST_F(HttpHostile, Who_says_nothing_or_next_to_nothing_costs_the_time_out_and_no_more) {
  options.per_request_timeout = 200ms;
  options.retry.retries = 0;
  server.instead = [](const http_asked&, raw_peer&) { return true; };
  EXPECT_EQ(pull({.connections = 4}), errc::timed_out);
  server.instead = [](const http_asked&, raw_peer& peer) {  // interim answers for ever
    for (int i = 0; i < 100; ++i)
      if (!peer.say("HTTP/1.1 100 Continue\r\n\r\n")) break;
    return true;
  };
  EXPECT_EQ(pull({.connections = 4}), errc::unexpected_frame);
  server.instead = [this](const http_asked& a, raw_peer& peer) {  // a body that drips: bytes come, and no progress
    std::uint64_t first = 0, last = 0;
    if (!a.range(first, last) || first == 0) return false;
    peer.say("HTTP/1.1 206 Partial Content\r\nETag: \"v1\"\r\nContent-Range: bytes " + std::to_string(first) + "-" +
             std::to_string(last) + "/" + std::to_string(file.size()) + "\r\n\r\n");
    for (int i = 0; i < 100 && peer.say("x"); ++i) be_slow(20ms);
    return true;
  };
  EXPECT_EQ(pull({.connections = 4}), errc::timed_out);
  // a header of 16 MiB that drips
  server.instead = [](const http_asked&, raw_peer& peer) {
    peer.say("HTTP/1.1 200 OK\r\n\r\n" + std::string("\0\0\xf0\0\0\0\0\0{", 9));
    for (int i = 0; i < 100 && peer.say(" "); ++i) be_slow(20ms);
    return true;
  };
  EXPECT_EQ(pull({.connections = 4}), errc::timed_out);
}

TEST_F(HttpHostile, Interim_answers_in_front_of_each_answer_are_passed_over) {
  server.instead = [this](const http_asked& a, raw_peer& peer) {
    peer.say("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n");
    server.serve_file(a, peer);
    return true;
  };
  const auto mine = blank<mlp>();
  const auto done = net::download_tensors(server.url(), tp::ref_id{}, *mine, options);
  ASSERT_TRUE(done) << describe(done.error());
  EXPECT_TRUE(same(*mine, *source));
}

TEST_F(HttpHostile, Bytes_behind_an_answer_are_never_those_of_the_next) {
  // Behind each answer comes what looks like the next one, with other bytes. Its beginning is in one segment with the
  // end of the body, so it is there when the body is.
  server.instead = [this](const http_asked& a, raw_peer& peer) {
    std::uint64_t first = 0, last = 0;
    if (!a.range(first, last)) return false;
    const auto answer = [&](std::uint64_t from, std::uint64_t to, const std::string& body) {
      return "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes " + std::to_string(from) + "-" + std::to_string(to) +
             "/" + std::to_string(file.size()) + "\r\nContent-Length: " + std::to_string(to - from + 1) +
             "\r\nETag: \"v1\"\r\n\r\n" + body;
    };
    const auto bytes = [&](std::uint64_t from) { return std::min<std::uint64_t>(from + 65536, file.size()) - from; };
    last = std::min<std::uint64_t>(last, file.size() - 1);
    std::string said = answer(first, last, file.substr(first, last - first + 1));
    const std::size_t all_but_the_end = said.size() - 10;
    if (const std::uint64_t next = last + 1; next < file.size())
      said += answer(next, next + bytes(next) - 1, std::string(bytes(next), 'X'));
    return peer.say(std::string_view(said).substr(0, all_but_the_end)) &&
           peer.say(std::string_view(said).substr(all_but_the_end));
  };
  options.retry.retries = 0;
  options.unverified = false;
  const auto mine = blank<mlp>();
  tp::xxh3_64 h;
  h.update(std::as_bytes(std::span(file)));
  const std::string url = server.url();
  const auto done = net::download_tensors(tp::http_address{.url = url, .connections = 1},
                                          tp::reference{{}, h.digest(), 0}, *mine, options);
  ASSERT_TRUE(done) << describe(done.error());
  EXPECT_TRUE(same(*mine, *source));
  EXPECT_EQ(server.connections(), server.asked().size());  // none that said more than it was asked for was asked again
}

TEST_F(HttpHostile, A_body_that_goes_on_behind_what_was_asked_for_is_refused) {
  const auto head = [&](std::uint64_t first, std::uint64_t last, std::string_view fields) {
    return "HTTP/1.1 206 Partial Content\r\nETag: \"v1\"\r\nContent-Range: bytes " + std::to_string(first) + "-" +
           std::to_string(last) + "/" + std::to_string(file.size()) + "\r\n" + std::string(fields) + "\r\n";
  };
  const auto pieces = [](std::string_view body) {
    char length[32];
    std::snprintf(length, sizeof length, "%zx\r\n", body.size());
    return length + std::string(body) + "\r\n0\r\n\r\n";
  };
  options.retry.retries = 0;
  for (const bool in_pieces : {false, true}) {
    const std::string fields = in_pieces ? "Transfer-Encoding: chunked\r\n" : "Connection: close\r\n";
    // the whole file without its length, and one that is a header alone
    for (const std::string& body : {file + "x", std::string("\x08\0\0\0\0\0\0\0{}      x", 17)}) {
      const answering while_here(server, [&](const http_asked&, raw_peer& peer) {
        peer.say("HTTP/1.1 200 OK\r\nETag: \"v1\"\r\n" + fields + "\r\n" + (in_pieces ? pieces(body) : body));
        close_now(peer);
        return true;
      });
      EXPECT_EQ(pull({.connections = 4}), errc::wrong_payload) << in_pieces << body.size();
    }
    // the first range, one in the middle, the last one
    for (const std::uint64_t longer :
         {std::uint64_t{0}, std::uint64_t{65536}, std::uint64_t{file.size() / 65536 * 65536}}) {
      const answering while_here(server, [&, longer](const http_asked& a, raw_peer& peer) {
        std::uint64_t first = 0, last = 0;
        if (!a.range(first, last)) return false;
        last = std::min<std::uint64_t>(last, file.size() - 1);
        const std::string body = file.substr(first, last - first + 1) + (first == longer ? "x" : "");
        peer.say(head(first, last, fields) + (in_pieces ? pieces(body) : body));
        close_now(peer);
        return true;
      });
      EXPECT_EQ(pull({.connections = 4}), errc::wrong_payload) << in_pieces << " " << longer;
    }
  }
}

}  // namespace http_hostile_test
