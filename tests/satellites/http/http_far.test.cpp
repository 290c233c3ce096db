// How often a pull over HTTP waits for a server that is far away: what it asks for, over how many connections, and
// where it goes on if one breaks.
#include "http_server.hpp"
#include "models.hpp"

#include <tensorpull/consumers/any_schema/published_schema.hpp>
#include <tensorpull/core/describe.hpp>
#include <tensorpull/satellites/http/recipient/http_pull.hpp>

#include <algorithm>
#include <optional>
#include <utility>

namespace http_far_test {

using namespace test;
using tp::errc;
using net = tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<64_KiB>, tp::http>;

struct HttpFar : testing::Test {
  std::unique_ptr<mlp> source = random_model<mlp>(19);
  std::string file = file_of<tp::raw_tensors<mlp>>(*source);
  std::string digest = "xxh3:" + hex(xxh3_of(file));
  std::unique_ptr<mlp> mine = blank<mlp>();
  tp::pull_options options{.per_request_timeout = 60s, .retry = {.retries = 0, .first_delay = 1ms}};
  http_server server{file};  // the last: its threads use what is above

  tp::result<tp::receipt> pull() { return pull(digest); }
  tp::result<tp::receipt> pull(std::string_view states) {
    const std::string url = server.url();
    return net::download_tensors(tp::http_address{.url = url, .digest = states}, tp::ref_id{}, *mine, options);
  }
  void expect_arrived() {
    const auto done = pull();
    ASSERT_TRUE(done) << describe(done.error());
    EXPECT_EQ(done->outcome, tp::outcome::completed);
    EXPECT_TRUE(same(*mine, *source));
  }
  /// What was asked for, a line for each request.
  std::string asked() {
    std::string out;
    for (const auto& a : server.asked()) out += a.field("range") + "\n";
    return out;
  }
  std::string to_the_end(std::uint64_t from) const {
    return "bytes=" + std::to_string(from) + "-" + std::to_string(file.size() - 1) + "\n";
  }
  std::string head(std::uint64_t first, std::uint64_t last) const {
    return "HTTP/1.1 206 Partial Content\r\nETag: \"v1\"\r\nContent-Range: bytes " + std::to_string(first) + "-" +
           std::to_string(last) + "/" + std::to_string(file.size()) + "\r\n";
  }
  /// Answers with at most so many bytes, whatever was asked for.
  void give_at_most(std::uint64_t bytes, std::string_view fields = {}) {
    server.instead = [=, this](const http_asked& a, raw_peer& peer) {
      std::uint64_t first = 0, last = 0;
      if (!a.range(first, last)) return false;
      last = std::min({last, first + bytes - 1, std::uint64_t{file.size() - 1}});
      const std::string length = "Content-Length: " + std::to_string(last - first + 1) + "\r\n";
      return peer.say(head(first, last) + length + std::string(fields) + "\r\n" + file.substr(first, last - first + 1));
    };
  }
};

TEST_F(HttpFar, A_file_costs_one_request_over_one_connection) {
  expect_arrived();
  EXPECT_EQ(asked(), "bytes=0-\n");
  EXPECT_EQ(server.connections(), 1u);
  server.chunked = true;
  expect_arrived();
  server.chunked = false, server.persists = false;
  expect_arrived();
  EXPECT_EQ(asked(), "bytes=0-\nbytes=0-\nbytes=0-\n");
}

TEST_F(HttpFar, A_socket_to_another_machine_may_hold_more_from_its_beginning_and_is_ready_at_the_first_byte) {
  const tp::posix_stream s(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto option = [&](int name) {
    int value = 0;
    socklen_t size = sizeof value;
    EXPECT_EQ(::getsockopt(s.native_handle(), SOL_SOCKET, name, &value, &size), 0);
    return value;
  };
  const int before = option(SO_RCVBUF);
  tp::detail::expect_much(s.native_handle());
  EXPECT_GT(option(SO_RCVBUF), before);
  EXPECT_EQ(option(SO_RCVLOWAT), 1);
}

TEST_F(HttpFar, Who_sets_a_window_has_no_more_than_that_on_its_way) {
  options.window = 1;
  expect_arrived();
  const auto all = server.asked();
  EXPECT_EQ(all.size(), (file.size() + 65535) / 65536);
  for (const auto& a : all) {
    std::uint64_t first = 0, last = 0;
    EXPECT_TRUE(a.range(first, last) && last - first < 64_KiB);
  }
}

TEST_F(HttpFar, A_consumer_that_only_looks_asks_for_the_header_alone) {
  using looking = tp::pipeline<tp::tensor_list, tp::fixed_bytes<64_KiB>, tp::http>;
  tp::published_schema look({});
  const std::string url = server.url();
  (void)looking::pull(tp::http_address{.url = url, .digest = digest}, tp::ref_id{}, look, options);
  EXPECT_EQ(asked(), "bytes=0-65535\n");
}

TEST_F(HttpFar, A_connection_that_breaks_costs_one_request_from_the_first_missing_byte_on) {
  options.retry.retries = 3;
  for (const std::uint64_t at :
       {std::uint64_t{100}, std::uint64_t{70'000}, std::uint64_t{250'000}, std::uint64_t{file.size() - 1}}) {
    const std::size_t before = server.asked().size();
    server.instead = [this, at, before](const http_asked& a, raw_peer& peer) {
      if (a.number != before) return false;
      peer.say(head(0, file.size() - 1) + "\r\n" + file.substr(0, at)), close_now(peer);
      return true;
    };
    mine = blank<mlp>();
    expect_arrived();
    const auto all = server.asked();
    ASSERT_EQ(all.size(), before + 2) << at;
    const std::uint64_t header = tp::load_le64(reinterpret_cast<const std::byte*>(file.data())) + 8;
    const std::string rest = at < header ? "bytes=" + std::to_string(at) + "-\n" : to_the_end(at);
    EXPECT_EQ(all.back().field("range") + "\n", rest) << at;
  }
}

TEST_F(HttpFar, A_second_connection_that_breaks_too_is_gone_on_with_where_it_broke) {
  options.retry.retries = 1;  // in a row without progress
  server.instead = [this](const http_asked& a, raw_peer& peer) {
    std::uint64_t first = 0, last = 0;
    if (!a.range(first, last)) return false;
    peer.say(head(first, last) + "\r\n" + file.substr(first, std::min<std::uint64_t>(last - first + 1, 90'000)));
    close_now(peer);
    return true;
  };
  expect_arrived();
  EXPECT_EQ(asked(),
            "bytes=0-\n" + to_the_end(90'000) + to_the_end(180'000) + to_the_end(270'000) + to_the_end(360'000));
}

TEST_F(HttpFar, A_cursor_costs_a_request_for_the_header_and_one_for_what_is_missing) {
  tp::resume_cursor cursor;
  options.cursor = &cursor;
  server.close_after = 250'000;
  ASSERT_FALSE(pull());
  ASSERT_TRUE(cursor);
  const std::uint64_t at = cursor.offset;
  expect_arrived();
  EXPECT_EQ(asked(), "bytes=0-\nbytes=0-65535\n" + to_the_end(at));
}

TEST_F(HttpFar, A_signed_url_that_runs_out_before_the_rest_is_asked_for_is_had_again_from_the_origin) {
  options.retry.retries = 1;
  server.close_after = 150'000;
  server.instead = [](const http_asked& a, raw_peer& peer) {
    if (!a.target.starts_with("/signed"))
      return peer.say("HTTP/1.1 302 Found\r\nLocation: /signed?" + std::to_string(a.number) +
                      "\r\nContent-Length: 0\r\n\r\n");
    return a.number > 1 && a.target == "/signed?0" && peer.say("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
  };
  expect_arrived();
  const std::string rest = to_the_end(150'000);
  EXPECT_EQ(asked(), "bytes=0-\nbytes=0-\n" + rest + rest);  // led anew, and answered
}

TEST_F(HttpFar, A_server_that_answers_200_and_says_that_it_knows_ranges_is_gone_on_with_like_any_other) {
  options.retry.retries = 1;
  server.instead = [this](const http_asked& a, raw_peer& peer) {
    if (a.number > 0) return false;
    peer.say("HTTP/1.1 200 OK\r\nETag: \"v1\"\r\nAccept-Ranges: bytes\r\nContent-Length: " +
             std::to_string(file.size()) + "\r\n\r\n" + file.substr(0, 150'000));
    close_now(peer);
    return true;
  };
  expect_arrived();
  EXPECT_EQ(asked(), "bytes=0-\n" + to_the_end(150'000));
}

TEST_F(HttpFar, A_server_that_says_so_and_sends_everything_again_is_gone_on_with_too) {
  options.retry.retries = 3;
  server.instead = [this](const http_asked& a, raw_peer& peer) {  // somebody on the way takes the range off
    peer.say("HTTP/1.1 200 OK\r\nETag: \"v1\"\r\nAccept-Ranges: bytes\r\nContent-Length: " +
             std::to_string(file.size()) + "\r\n\r\n" + file.substr(0, a.number == 0 ? 150'000 : file.size()));
    if (a.number == 0) close_now(peer);
    return true;
  };
  expect_arrived();
}

TEST_F(HttpFar, A_redirect_is_followed_in_the_middle_of_a_file) {
  options.retry.retries = 3;
  server.instead = [this](const http_asked& a, raw_peer& peer) {
    if (a.number == 0) {
      peer.say(head(0, file.size() - 1) + "\r\n" + file.substr(0, 150'000));
      close_now(peer);
      return true;
    }
    return a.target != "/other" && peer.say("HTTP/1.1 307 Over there\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n");
  };
  expect_arrived();
}

TEST_F(HttpFar, A_redirect_is_followed_when_a_server_without_ranges_is_asked_again) {
  server.ranges = false;
  server.close_after = 150'000;
  options.retry.retries = 3;
  server.instead = [](const http_asked& a, raw_peer& peer) {
    return a.number > 0 && a.target != "/other" &&
           peer.say("HTTP/1.1 307 Over there\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n");
  };
  expect_arrived();
  EXPECT_EQ(server.asked().back().target, "/other");
}

TEST_F(HttpFar, A_place_that_the_origin_leads_to_anew_may_send_everything_again) {
  options.retry.retries = 3;
  server.instead = [this](const http_asked& a, raw_peer& peer) {
    if (!a.target.starts_with("/signed"))
      return peer.say("HTTP/1.1 302 Found\r\nLocation: /signed?" + std::to_string(a.number) +
                      "\r\nContent-Length: 0\r\n\r\n");
    if (a.number > 1 && a.target == "/signed?0") return peer.say("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
    peer.say("HTTP/1.1 200 OK\r\nETag: \"v1\"\r\nAccept-Ranges: bytes\r\nContent-Length: " +
             std::to_string(file.size()) + "\r\n\r\n" + file.substr(0, a.number == 1 ? 150'000 : file.size()));
    if (a.number == 1) close_now(peer);
    return true;
  };
  expect_arrived();
}

TEST_F(HttpFar, The_origin_is_asked_again_if_what_it_led_to_breaks_before_the_header_has_come) {
  options.retry.retries = 3;
  server.instead = [this](const http_asked& a, raw_peer& peer) {
    if (!a.target.starts_with("/signed"))
      return peer.say("HTTP/1.1 302 Found\r\nLocation: /signed?" + std::to_string(a.number) +
                      "\r\nContent-Length: 0\r\n\r\n");
    if (a.number > 1) return a.target == "/signed?0" && peer.say("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
    peer.say(head(0, file.size() - 1) + "\r\n" + file.substr(0, 20)), close_now(peer);
    return true;
  };
  expect_arrived();
}

TEST_F(HttpFar, The_origin_is_asked_again_if_nobody_is_where_it_led_to) {
  options.retry.retries = 3;
  for (const bool ranges : {true, false}) {
    std::optional<tp::tcp_listener> mirror(std::move(*tp::tcp_listener::open("127.0.0.1:0")));
    const std::string there = "http://" + local(mirror->port()) + "/model";
    joined_thread answers_once([&] {
      raw_peer peer(std::move(*mirror->accept(20s)));
      mirror.reset();
      peer.hear(1);
      peer.say((ranges ? head(0, file.size() - 1)
                       : "HTTP/1.1 200 OK\r\nETag: \"v1\"\r\nContent-Length: " + std::to_string(file.size()) + "\r\n") +
               "\r\n" + file.substr(0, 150'000));
    });
    server.ranges = ranges;
    const answering while_here(server, [&, led = false](const http_asked&, raw_peer& peer) mutable {
      return !std::exchange(led, true) &&
             peer.say("HTTP/1.1 302 Found\r\nLocation: " + there + "\r\nContent-Length: 0\r\n\r\n");
    });
    mine = blank<mlp>();
    expect_arrived();
  }
}

TEST(HttpFarHeader, The_rest_of_a_long_header_comes_in_many_answers_from_elsewhere_and_after_the_server_was_busy) {
  using any = tp::pipeline<tp::tensor_list, tp::fixed_bytes<64_KiB>, tp::http>;
  model from, to;
  for (int i = 0; i < 4000; ++i)
    for (model* m : {&from, &to}) m->add("tensor_number_" + std::to_string(i), tp::dtype::u8, {100});
  from.ready().fill(1);
  to.ready();
  const auto bytes = from.image_bytes();
  const std::string file(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  http_server server(file);
  bool busy = false;
  const answering while_here(server, [&](const http_asked& a, raw_peer& peer) {
    std::uint64_t first = 0, last = 0;
    if (!a.range(first, last)) return false;
    if (first > 0 && !std::exchange(busy, true))
      return peer.say("HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n");
    if (first > 0 && a.target != "/other")
      return peer.say("HTTP/1.1 307 Over there\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n");
    last = std::min({last, first + 99'999, std::uint64_t{file.size() - 1}});
    return peer.say("HTTP/1.1 206 Partial Content\r\nETag: \"v1\"\r\nContent-Range: bytes " + std::to_string(first) +
                    "-" + std::to_string(last) + "/" + std::to_string(file.size()) + "\r\nContent-Length: " +
                    std::to_string(last - first + 1) + "\r\n\r\n" + file.substr(first, last - first + 1));
  });
  tp::land landing(to.destination());
  const std::string url = server.url(), digest = "xxh3:" + hex(xxh3_of(file));
  const auto done = any::pull(tp::http_address{.url = url, .digest = digest}, tp::ref_id{}, landing);
  ASSERT_TRUE(done) << describe(done.error());
  EXPECT_EQ(to.image_bytes(), bytes);
  EXPECT_TRUE(busy);
  tp::land again(to.destination());
  const auto several = any::pull(tp::http_address{.url = url, .digest = digest, .connections = 4}, tp::ref_id{}, again);
  EXPECT_TRUE(several) << describe(several.error());
}

TEST_F(HttpFar, A_server_that_ignores_ranges_after_the_first_sends_everything_again) {
  options.retry.retries = 3;
  server.close_after = 150'000;
  server.instead = [this](const http_asked& a, raw_peer& peer) {
    return a.number > 0 && peer.say("HTTP/1.1 200 OK\r\nETag: \"v1\"\r\nContent-Length: " +
                                    std::to_string(file.size()) + "\r\n\r\n" + file);
  };
  expect_arrived();
  EXPECT_EQ(asked(), "bytes=0-\n" + to_the_end(150'000));
}

TEST_F(HttpFar, A_file_that_is_replaced_before_a_broken_connection_is_gone_on_with_is_stale) {
  options.retry.retries = 3;
  options.unverified = true;
  server.close_after = 150'000;
  server.instead = [this](const http_asked& a, raw_peer&) {
    if (a.number > 0) {
      const std::lock_guard lock(server.changing);
      server.etag = "\"v2\"";
    }
    return false;
  };
  const auto done = pull({});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error(), errc::stale_version);
}

TEST_F(HttpFar, A_server_may_answer_with_fewer_bytes_than_it_was_asked_for) {
  for (const std::uint64_t most : {std::uint64_t{128_KiB}, std::uint64_t{100'000}, std::uint64_t{60'000}}) {
    const std::size_t asks = server.asked().size(), connections = server.connections();
    give_at_most(most);
    expect_arrived();
    EXPECT_EQ(server.asked().size(), asks + (file.size() + most - 1) / most);
    EXPECT_EQ(server.connections(), connections + 1) << "the connection is kept";
  }
}

TEST_F(HttpFar, An_answer_that_is_another_than_was_asked_for_is_refused) {
  const std::string total = std::to_string(file.size());
  const std::uint64_t last = file.size() - 1;
  const std::string rest = std::to_string(last - 149'999), more = std::to_string(last + 1);
  const std::pair<std::string, errc> cases[]{
      {head(150'001, last), errc::wrong_payload},
      {head(149'999, last), errc::wrong_payload},
      {head(150'000, last) + "Content-Length: 1\r\n", errc::wrong_payload},
      {head(150'000, last) + "Content-Length: " + more + "\r\n", errc::wrong_payload},
      {"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 150000-" + more + "/" + more + "1\r\n",
       errc::wrong_payload},
      {"HTTP/1.1 206 Partial Content\r\nETag: \"v2\"\r\nContent-Range: bytes 150000-" + std::to_string(last) + "/" +
           total + "\r\n",
       errc::stale_version},
      {head(150'000, last) + "Content-Encoding: br\r\n", errc::unsupported_layout},
  };
  options.retry.retries = 1;
  options.unverified = true;  // the caller states no digest, which would count more than a tag
  for (const auto& [text, code] : cases) {
    const std::size_t before = server.asked().size();
    const answering while_here(server, [&, before, text = text](const http_asked& a, raw_peer& peer) {
      if (a.number == before) {
        peer.say(head(0, last) + "\r\n" + file.substr(0, 150'000)), close_now(peer);
        return true;
      }
      return peer.say(text + "\r\n" + file);
    });
    EXPECT_EQ(pull({}).error(), code) << text;
  }
}

TEST_F(HttpFar, Bytes_behind_the_last_one_are_refused) {
  const auto pieces = [](std::string_view body) {
    char length[32];
    std::snprintf(length, sizeof length, "%zx\r\n", body.size());
    return length + std::string(body) + "\r\n0\r\n\r\n";
  };
  for (const bool in_pieces : {false, true}) {
    const answering while_here(server, [&](const http_asked&, raw_peer& peer) {
      peer.say(head(0, file.size() - 1) + (in_pieces ? "Transfer-Encoding: chunked\r\n\r\n" + pieces(file + "x")
                                                     : "Connection: close\r\n\r\n" + file + "x"));
      close_now(peer);
      return true;
    });
    EXPECT_EQ(pull().error(), errc::wrong_payload) << in_pieces;
  }
}

TEST_F(HttpFar, A_server_that_stops_before_the_end_costs_the_time_out_and_is_asked_for_the_rest) {
  options.per_request_timeout = 300ms;
  options.retry.retries = 1;
  const std::uint64_t at = file.size() * 99 / 100;
  server.instead = [this, at](const http_asked& a, raw_peer& peer) {
    if (a.number > 0) return false;
    return peer.say(head(0, file.size() - 1) + "Content-Length: " + std::to_string(file.size()) + "\r\n\r\n" +
                    file.substr(0, at));
  };
  expect_arrived();
  EXPECT_EQ(asked(), "bytes=0-\n" + to_the_end(at));
}

TEST_F(HttpFar, A_stop_is_heard_in_the_middle_of_the_answer) {
  std::stop_source stop;
  options.stop = stop.get_token();
  const answering while_here(server, [&](const http_asked&, raw_peer& peer) {
    peer.say(head(0, file.size() - 1) + "\r\n" + file.substr(0, 200'000));
    stop.request_stop();
    return true;
  });
  const auto done = pull();
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error(), errc::cancelled);
}

TEST_F(HttpFar, A_slow_server_is_waited_for_while_bytes_come_and_one_that_drips_is_not) {
  options.per_request_timeout = 1s;
  const auto drip = [&](std::size_t piece) {
    server.instead = [this, piece](const http_asked&, raw_peer& peer) {
      peer.say(head(0, file.size() - 1) + "Content-Length: " + std::to_string(file.size()) + "\r\n\r\n");
      for (std::size_t at = 0; at < file.size() && peer.say(std::string_view(file).substr(at, piece)); at += piece)
        be_slow(150ms);
      return true;
    };
  };
  drip(file.size() / 12 + 1);  // longer than the time-out in all
  expect_arrived();
  drip(100);
  EXPECT_EQ(pull().error(), errc::timed_out);
}

}  // namespace http_far_test
