// What a pull over HTTP does with its connections: kept ones that the server has closed, further ones that cannot be
// had, and the goodbye.
#include "http_server.hpp"

#include <tensorpull/consumers/any_schema/safetensors_file.hpp>
#include <tensorpull/core/describe.hpp>
#include <tensorpull/satellites/http/owner/http_owner.hpp>
#include <tensorpull/satellites/http/recipient/http_pull.hpp>

#include <fcntl.h>

#include <random>
#include <set>

namespace http_connections_test {

using namespace test;
using tp::errc;
using net = tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<64_KiB>, tp::http>;

struct HttpConnections : testing::Test {
  std::unique_ptr<mlp> source = random_model<mlp>(17);
  std::string file = file_of<tp::raw_tensors<mlp>>(*source);
  std::unique_ptr<mlp> mine = blank<mlp>();
  /// A try more than the first would succeed, too: none is allowed.
  tp::pull_options options{.per_request_timeout = 60s, .unverified = true, .retry = {.retries = 0, .first_delay = 1ms}};
  http_server server{file};  // the last: its threads use what is above

  tp::result<tp::receipt> pull(std::uint32_t connections = 4) { return pull(server, connections); }
  tp::result<tp::receipt> pull(http_server& from, std::uint32_t connections) {
    const std::string url = from.url("/v1/model/latest");
    mine = blank<mlp>();
    const auto done = net::download_tensors(tp::http_address{.url = url, .connections = connections}, tp::ref_id{},
                                            *mine, options);
    if (done) {
      EXPECT_TRUE(same(*mine, *source));
    }
    return done;
  }
  /// How often this method was asked for.
  std::size_t asked(std::string_view method) {
    std::size_t n = 0;
    for (const auto& a : server.asked()) n += a.method == method ? 1 : 0;
    return n;
  }
};

TEST_F(HttpConnections, A_server_that_closes_behind_each_answer_costs_no_retry_and_no_confirmation) {
  server.fields = stated(xxh3_of(file));
  server.instead = [this](const http_asked& a, raw_peer& peer) {
    if (a.method == "POST") peer.say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    else server.serve_file(a, peer);
    close_now(peer);
    return true;
  };
  for (const std::uint32_t connections : {1u, 4u}) {
    const auto done = pull(connections);
    ASSERT_TRUE(done) << describe(done.error());
    EXPECT_TRUE(done->confirmed) << connections;
  }
}

TEST_F(HttpConnections,
       A_server_that_closes_a_kept_connection_when_it_is_asked_again_costs_no_retry_and_no_confirmation) {
  server.fields = stated(xxh3_of(file));
  server.instead = [this, last = std::map<std::size_t, bool>()](const http_asked& a, raw_peer& peer) mutable {
    static std::mutex one_at_a_time;
    const std::lock_guard lock(one_at_a_time);
    if (std::exchange(last[a.connection], true)) {
      close_now(peer);
      return true;
    }  // each connection has one answer, and does not say so
    if (a.method == "POST") return peer.say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    server.serve_file(a, peer);
    return true;
  };
  for (const std::uint32_t connections : {1u, 4u}) {
    const auto done = pull(connections);
    ASSERT_TRUE(done) << describe(done.error());
    EXPECT_TRUE(done->confirmed) << connections;
  }
}

TEST_F(HttpConnections, The_request_for_a_long_header_is_sent_again_too) {
  const std::string text = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})" + std::string(100'000, ' ');
  std::string content(8, '\0');
  for (std::size_t b = 0; b < 8; ++b) content[b] = static_cast<char>(text.size() >> (8 * b) & 0xff);
  content += text + "abcd";
  const own_folder folder;
  http_server longer(content);
  const answering while_here(longer, [&](const http_asked& a, raw_peer& peer) {
    if (a.connection == 0 && a.number > 0) {
      close_now(peer);
      return true;
    }
    longer.serve_file(a, peer);
    return true;
  });
  const std::string url = longer.url();
  auto to = tp::safetensors_file::create(folder / "model");
  ASSERT_TRUE(to);
  const auto done = net::pull(tp::http_address{.url = url}, {}, *to, options);
  ASSERT_TRUE(done) << describe(done.error());
  EXPECT_EQ(done->bytes, content.size());
}

TEST_F(HttpConnections, One_that_closes_every_connection_without_an_answer_is_an_error_and_not_asked_for_ever) {
  server.instead = [](const http_asked& a, raw_peer& peer) { return a.number > 2 ? (close_now(peer), true) : false; };
  const auto done = pull();
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error(), errc::connection_lost);
  EXPECT_LT(server.asked().size(), 40u);
}

/// Connects until the kernel swallows it: nobody else gets a connection then. Empty: this kernel takes any number.
std::vector<tp::posix_stream> fill(std::uint16_t port) {
  std::vector<tp::posix_stream> held;
  sockaddr_in to{};
  to.sin_family = AF_INET, to.sin_addr.s_addr = htonl(INADDR_LOOPBACK), to.sin_port = htons(port);
  while (held.size() < 64) {
    held.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    (void)::connect(held.back().native_handle(), reinterpret_cast<const sockaddr*>(&to), sizeof to);
    if (!held.back().wait(false, true, 500ms).write) return held;
  }
  return {};
}

TEST_F(HttpConnections, A_further_connection_that_is_swallowed_holds_nobody_up) {
  http_server narrow(file, 0);
  narrow.accepts = 1;
  std::vector<tp::posix_stream> held;
  const answering while_here(narrow, [&](const http_asked& a, raw_peer&) {
    if (a.number == 0) held = fill(narrow.port());
    return false;
  });
  options.per_request_timeout = 600s;  // as it is by default
  const auto began = std::chrono::steady_clock::now();
  const auto done = pull(narrow, 4);
  ASSERT_TRUE(done) << describe(done.error());
  if (held.empty()) GTEST_SKIP() << "this kernel takes more connections than there is room for";
  EXPECT_LT(std::chrono::steady_clock::now() - began, 100s);
  EXPECT_EQ(narrow.connections(), 1u);
}

TEST_F(HttpConnections, The_first_range_does_not_wait_for_a_connection_that_is_swallowed) {
  // Two connections at a time. The first is closed instead of an answer, while the other has a later range: a third one
  // comes only when that has ended.
  std::vector<tp::posix_stream> held;
  std::atomic<bool> full{false};
  std::atomic<std::size_t> second{0}, ends{0};
  http_server narrow(file, 0);  // its threads end before what they count in
  narrow.accepts = 2;
  const answering while_here(narrow, [&](const http_asked& a, raw_peer& peer) {
    if (a.connection == 1 && second++ == 0) {
      held = fill(narrow.port());
      full = true;
    } else if (a.connection == 0 && full.exchange(false)) {
      const std::size_t before = second;
      // the other has had what it still has before this
      for (const auto soon = within(1s); second == before && !soon.stop_requested();) look_again_soon();
      close_now(peer);
      return true;
    }
    return false;
  });
  narrow.ended = [&](std::size_t) {
    if (++ends == 2) held.clear(), narrow.accepts = 80;
  };
  options.per_request_timeout = 20s;
  const auto done = pull(narrow, 2);
  ASSERT_TRUE(done) << describe(done.error());
  EXPECT_GE(narrow.connections(), 2u);
}

TEST_F(HttpConnections, A_server_that_serves_one_connection_at_a_time_is_asked_over_one) {
  // the kernel takes further connections, and the server accepts them only when the first has ended
  http_server single(file);
  single.accepts = 1;
  single.ended = [&](std::size_t) { single.accepts = single.connections() + 1; };
  options.per_request_timeout = 8s;
  const auto done = pull(single, 4);
  ASSERT_TRUE(done) << describe(done.error());
}

TEST_F(HttpConnections, Who_waits_without_end_gives_up_no_connection) {
  options.per_request_timeout = std::chrono::milliseconds::max();
  // a further connection says nothing while the first range waits for it, and the others are there
  server.instead = [](const http_asked& a, raw_peer&) {
    be_slow(a.connection == 0 ? 20ms : 300ms);
    return false;
  };
  const auto done = pull(4);
  ASSERT_TRUE(done) << describe(done.error());
  EXPECT_LE(server.connections(), 4u);
  std::set<std::string> ranges;
  for (const auto& a : server.asked()) EXPECT_TRUE(ranges.insert(std::string(a.field("range"))).second);
}

TEST_F(HttpConnections, The_first_range_takes_a_connection_of_a_later_one_if_there_is_no_other) {
  // three connections at most; the second request on the first of them is closed without an answer, and all others are
  // busy with later ranges then
  std::mutex mutex;
  std::size_t closed = 0;
  const answering while_here(server, [&](const http_asked& a, raw_peer& peer) {
    const std::lock_guard lock(mutex);
    if (a.connection == 0 && a.number > 3 && closed++ == 0) {
      close_now(peer);
      return true;
    }
    if (a.connection != 3 || closed > 0) {
      server.serve_file(a, peer);
      return true;
    }
    return peer.say("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n");
  });
  options.per_request_timeout = 30s;
  const auto done = pull();
  ASSERT_TRUE(done) << describe(done.error());
}

TEST_F(HttpConnections, A_cache_that_is_busy_at_the_last_byte_is_asked_again_and_not_for_ever) {
  const std::string last = "-" + std::to_string(file.size() - 1);
  std::atomic<int> refusals{0};
  std::optional<answering> refusing;
  const auto refuse_last = [&](int times, const std::string& status, const std::string& fields) {
    refusals = 0;
    refusing.emplace(server, [&, times, status, fields](const http_asked& a, raw_peer& peer) {
      if (!a.field("range").ends_with(last) || refusals.fetch_add(1) >= times) return false;
      return peer.say("HTTP/1.1 " + status + "\r\n" + fields + "Content-Length: 4\r\n\r\nbusy");
    });
  };
  for (const std::string status : {"503 Service Unavailable", "429 Too Many Requests"})
    for (const std::uint32_t connections : {1u, 4u}) {
      refuse_last(3, status, "Retry-After: 0\r\n");
      const auto done = pull(connections);
      ASSERT_TRUE(done) << status << " " << describe(done.error());
      EXPECT_GT(refusals, 3);
    }
  // one connection: it is left alone for as long as it asks
  refuse_last(1, "503 Service Unavailable", "Retry-After: 1\r\n");
  const auto began = std::chrono::steady_clock::now();
  ASSERT_TRUE(pull(1));
  EXPECT_GE(std::chrono::steady_clock::now() - began, 1s);
  // what is asked for again begins where the bytes that have landed end
  std::size_t whole = 0;
  for (const auto& a : server.asked()) whole += a.field("range") == "bytes=0-65535" ? 1 : 0;
  EXPECT_LE(whole, 5u);
  options.per_request_timeout = 2s;
  refuse_last(1'000'000, "503 Service Unavailable", "Retry-After: 0\r\n");
  const auto never = pull(1);
  ASSERT_FALSE(never);
  EXPECT_EQ(never.error(), errc::busy);
  EXPECT_GT(never.error().at, 0u);
  refuse_last(1'000'000, "503 Service Unavailable", "Retry-After: 3600\r\n");
  EXPECT_EQ(pull(4).error(), errc::busy);
}

TEST_F(HttpConnections, Whatever_fails_between_right_answers_the_bytes_are_right_at_the_end) {
  options.retry = {.retries = 1000, .first_delay = 1ms, .longest_delay = 2ms};
  options.unverified = false;
  server.fields = stated(xxh3_of(file));
  std::mutex mutex;
  std::mt19937 random;
  const answering while_here(server, [&](const http_asked& a, raw_peer& peer) {
    unsigned what = 0, how_much = 0;
    {
      const std::lock_guard lock(mutex);
      what = static_cast<unsigned>(random() % 24), how_much = static_cast<unsigned>(random());
    }
    std::uint64_t first = 0, last = 0;
    if (what == 0) {
      close_now(peer);
      return true;
    }
    if (what == 1) {
      peer.reset();
      return true;
    }
    if (what == 2) return peer.say("HTTP/1.1 503 Service Unavailable\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n");
    if (what == 3) {
      peer.say("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 502 Bad Gateway\r\nConnection: close\r\n\r\nX"), close_now(peer);
      return true;
    }
    if (what == 4) {
      peer.say("HTTP/1.1 206 Part"), close_now(peer);
      return true;
    }
    if (a.method == "POST") return peer.say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    if (!a.range(first, last)) return false;
    last = std::min<std::uint64_t>(last, file.size() - 1);
    const std::string body = file.substr(first, last - first + 1);
    std::string head = "HTTP/1.1 206 Partial Content\r\nETag: \"v1\"\r\n" + server.fields + "Content-Range: bytes " +
                       std::to_string(first) + "-" + std::to_string(last) + "/" + std::to_string(file.size()) + "\r\n";
    const std::string length = "Content-Length: " + std::to_string(body.size()) + "\r\n";
    if (what == 5) {
      peer.say(head + length + "\r\n" + body.substr(0, how_much % body.size())), close_now(peer);
      return true;
    }  // cut
    if (what == 6) {
      peer.say(head + "Connection: close\r\n\r\n" + body), close_now(peer);
      return true;
    }  // without a length
    if (what == 7) {
      peer.say(head + length + "Connection: close\r\n\r\n" + body), close_now(peer);
      return true;
    }
    if (what == 8) {
      peer.say(head + length + "\r\n" + body), close_now(peer);
      return true;
    }  // without a word
    if (what == 9)
      return peer.say(head + length + "\r\n" + body + "HTTP/1.1 200 OK\r\n");  // bytes that nobody has asked for
    if (what == 10) {
      peer.say(head + length + "\r\n" + body.substr(0, how_much % body.size())), peer.reset();
      return true;
    }
    return false;
  });
  for (std::uint32_t seed = 1; seed <= 40; ++seed) {
    {
      const std::lock_guard lock(mutex);
      random.seed(seed);
    }
    const auto done = pull(1 + seed % 8);
    ASSERT_TRUE(done) << "seed " << seed << " " << describe(done.error());
    EXPECT_EQ(done->outcome, tp::outcome::completed);
  }
}

TEST_F(HttpConnections, Without_a_name_the_owner_counts_one_recipient_that_confirms_and_one_that_gives_up) {
  using owning = tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<64_KiB>, tp::http_only<tp::tcp>>;
  auto owner = owning::downloader::open();
  ASSERT_TRUE(owner);
  const auto ref = *owner->add_tensors(*source, {.recipients = 2});
  serving thread(*owner);
  const auto digits = to_digits(ref.id);
  const std::string_view key(digits.data(), digits.size());
  const std::string url = "http://" + local(owner->port()) + "/v1/model/" + hex(ref.version);
  options.unverified = false;
  for (const std::uint64_t wrong : {0u, 1u}) {
    const std::string text = "xxh3:" + hex(ref.version + wrong);
    mine = blank<mlp>();
    const auto done = net::download_tensors(
        tp::http_address{.url = url, .digest = text, .bearer = key, .connections = 4}, tp::ref_id{}, *mine, options);
    ASSERT_EQ(done.has_value(), wrong == 0) << describe(done.error());
    if (done) {
      EXPECT_TRUE(done->confirmed);
    } else {
      EXPECT_EQ(done.error(), errc::digest_mismatch);
    }
  }
  thread.stop();
  const auto status = owner->status_of(ref);
  ASSERT_TRUE(status);
  EXPECT_EQ(status->acquired, 2u);
  EXPECT_EQ(status->completed, 1u);
  EXPECT_EQ(status->cancelled, 1u);
}

TEST_F(HttpConnections, An_owner_of_this_library_is_told_that_the_digest_was_another) {
  server.fields = stated(xxh3_of(file) + 1);
  server.instead = [](const http_asked& a, raw_peer& peer) {
    return a.method == "POST" && peer.say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  };
  options.unverified = false;
  for (const std::uint32_t connections : {1u, 4u}) {
    const auto done = pull(connections);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error(), errc::digest_mismatch);
    const auto last = server.asked().back();
    EXPECT_EQ(last.method, "POST");
    EXPECT_EQ(last.target, "/v1/model/latest/cancel");
  }
  // nobody else is told anything
  const std::size_t before = asked("POST");
  server.fields.clear();
  const std::string url = server.url();
  const std::string text = "xxh3:" + hex(xxh3_of(file) + 1);
  EXPECT_EQ(net::download_tensors(tp::http_address{.url = url, .digest = text}, tp::ref_id{}, *mine, options).error(),
            errc::digest_mismatch);
  EXPECT_EQ(asked("POST"), before);
}

/// An owner of this library that is started again over the same content, at the same address.
template <class Model>
struct started_again {
  using owning = tp::pipeline<tp::raw_tensors<Model>, tp::fixed_bytes<64_KiB>, tp::http_only<tp::tcp>>;
  using pulling = tp::pipeline<tp::raw_tensors<Model>, tp::fixed_bytes<64_KiB>, tp::http>;
  const std::unique_ptr<Model> source = random_model<Model>(5);
  const std::unique_ptr<Model> mine = blank<Model>();
  std::optional<typename owning::downloader> owner;
  std::optional<serving> thread;
  tp::reference ref{{7, 8}, 0, 0};
  own_port port;

  started_again() { start(); }
  void start() {
    stop();
    owner.reset();
    const std::array named{tp::recipient_named("site-1")};
    owner.emplace(std::move(*owning::downloader::open({.listen = local(port)})));
    ref = *owner->add_tensors(*source, {.named = named, .id = ref.id});
    thread.emplace(*owner);
  }
  void stop() {
    if (thread) thread->stop();
    thread.reset();
  }
  template <class Consumer>
  tp::result<tp::receipt> pull(Consumer& to, tp::resume_cursor* cursor) {
    const auto digits = to_digits(ref.id);
    const std::string url = "http://" + local(port) + "/v1/model/" + hex(ref.version);
    return pulling::pull(tp::http_address{.url = url, .bearer = {digits.data(), digits.size()}, .recipient = "site-1"},
                         ref, to,
                         {.per_request_timeout = 30s, .retry = {.retries = 3, .first_delay = 1ms}, .cursor = cursor});
  }
  void expect_completed(const tp::result<tp::receipt>& done) {
    ASSERT_TRUE(done) << describe(done.error());
    EXPECT_TRUE(same(*mine, *source));
    EXPECT_TRUE(done->confirmed) << to_string(done->unconfirmed_because);
    stop();
    EXPECT_EQ(owner->status_of(ref)->completed, 1u);
    EXPECT_EQ(owner->settlement_of(ref)->verdict, tp::verdict::completed);
  }
};
/// Starts the owner again when all has landed, before it hears of that.
template <class Model>
struct restarts_at_the_end : tp::land {
  explicit restarts_at_the_end(started_again<Model>& of)
      : land(tp::raw_tensors<Model>::destination(*of.mine)), with(of) {}
  tp::result<void> finish(const tp::receipt&) noexcept {
    with.start();
    return {};
  }
  started_again<Model>& with;
};
struct stops_half_way : tp::land {
  using land::land;
  tp::result<void> chunk(std::uint64_t, std::uint64_t) noexcept {
    return ++chunks == 100 ? tp::result<void>(tp::failure(errc::disk_full)) : tp::result<void>{};
  }
  int chunks = 0;
};

TEST(HttpStartedAgain, An_owner_that_was_started_again_goes_on_where_the_one_before_stopped) {
  started_again<large> with;
  tp::resume_cursor cursor;
  stops_half_way first(tp::raw_tensors<large>::destination(*with.mine));
  ASSERT_FALSE(with.pull(first, &cursor));
  ASSERT_GT(cursor.offset, 64_KiB);
  const std::uint64_t left = file_of<tp::raw_tensors<large>>(*with.source).size() - cursor.offset;
  with.start();
  tp::land second(tp::raw_tensors<large>::destination(*with.mine));
  with.expect_completed(with.pull(second, &cursor));
  EXPECT_LE(with.owner->status_of(with.ref)->bytes_sent, left + 64_KiB) << "what has landed does not come again";
}

TEST(HttpStartedAgain, An_owner_that_was_started_again_when_everything_had_come_hears_of_it) {
  started_again<large> with;
  restarts_at_the_end<large> to(with);
  with.expect_completed(with.pull(to, nullptr));
  EXPECT_LE(with.owner->status_of(with.ref)->bytes_sent, 64_KiB + 1);
  started_again<tiny> shorter;  // than what the first request asks for
  restarts_at_the_end<tiny> all(shorter);
  shorter.expect_completed(shorter.pull(all, nullptr));
}

}  // namespace http_connections_test
