// What an owner that answers HTTP gives away when it is used otherwise than it was meant: memory that others need,
// connections, confirmations that nobody has earned.
#include "http_client.hpp"
#include "support/frames.hpp"

#include <tensorpull/protocol/owner/owner.hpp>

namespace http_owner_abuse_test {

using namespace test;
using net = tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<64_KiB>, tp::http_only<tp::tcp>>;
using frames_net = tp::pipeline<tp::raw_tensors<large>, tp::fixed_bytes<64_KiB>, tp::tcp>;
using big_net = tp::pipeline<tp::raw_tensors<large>, tp::fixed_bytes<64_KiB>, tp::http_only<tp::tcp>>;

constexpr std::uint32_t hello = 1, news = 2;

/// Hears messages, and trusts every peer that says hello.
struct listening {
  int hellos = 0, heard = 0;
  template <class C> void connected(C&) {}
  template <class C> void message(C& c, const tp::message& m) {
    if (m.kind == hello) ++hellos, c.trust();
    else ++heard;
  }
  template <class C> void pulled(C&, const tp::result<tp::receipt>&) {}
  template <class C> void closed(C&, const tp::error&) {}
};

template <class Done>
bool turn_until(tp::event_loop& io, Done done, std::chrono::milliseconds patience = 30s) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!done() && std::chrono::steady_clock::now() < end) io.run_one_for(5ms);
  return done();
}
frame application(std::uint32_t kind, std::size_t bytes) {
  static const std::vector<std::byte> body(60'000);
  tp::frame m;
  m.kind = tp::frame_kind::application;
  m.application = kind;
  m.body = std::span(body).first(bytes);
  return encode(m);
}
/// Says as much of it as the system takes without waiting.
std::size_t say_some(http_client& c, std::string_view text) {
  std::size_t said = 0;
  while (said < text.size()) {
    const std::array<std::span<const std::byte>, 1> out{std::as_bytes(std::span(text.substr(said)))};
    const auto io = c.peer().stream().write_some(out);
    if (io.bytes == 0) break;
    said += io.bytes;
  }
  return said;
}

TEST(HttpOwnerAbuse, Who_asks_and_does_not_read_stands_in_no_queue_for_the_memory_of_others) {
  tp::event_loop io;
  listening handler;
  frames_net::host<listening, tp::no_consumer> host(io, handler, {.message_buffers = 1});
  const auto port = *host.listen("127.0.0.1:0");
  using door_type = tp::http_door<frames_net, tp::tcp, std::remove_reference_t<decltype(host.published())>>;
  auto door = door_type::open(io, host.published(), std::string_view("127.0.0.1:0"));
  ASSERT_TRUE(door);
  const auto source = random_model<large>(1);
  const auto ref = *host.published().add_tensors(*source);
  const frame message = application(news, 60'000), greeting = application(hello, 0);
  raw_peer first(port), second(port);
  for (raw_peer* p : {&first, &second}) ASSERT_TRUE(p->say(greeting.bytes()));
  ASSERT_TRUE(turn_until(io, [&] { return handler.hellos == 2; }));
  ASSERT_TRUE(first.say(message.bytes().first(600)));  // has the buffer
  for (int i = 0; i < 20; ++i) io.run_one_for(5ms);
  std::string requests;
  for (int i = 0; i < 200; ++i) requests += http_client::request("GET", path_of(ref), ref);
  std::vector<std::unique_ptr<http_client>> crowd;
  for (int i = 0; i < 300; ++i) {
    crowd.push_back(std::make_unique<http_client>(door->port()));
    say_some(*crowd.back(), requests);
  }
  ASSERT_TRUE(turn_until(io, [&] { return door->counts().open() == 300; }));
  for (int i = 0; i < 200; ++i) io.run_one_for(5ms);  // until the sockets are full
  joined_thread talking([&] { (void)second.say(message.bytes()); });  // waits for the buffer
  for (int i = 0; i < 20; ++i) io.run_one_for(5ms);
  EXPECT_EQ(handler.heard, 0);
  ASSERT_TRUE(first.say(message.bytes().subspan(600)));
  EXPECT_TRUE(turn_until(io, [&] { return handler.heard == 2; }))
      << "it waits behind those that want no memory: five a second";
}

/// Connections without a stream, over one pool.
struct HttpOwnerPages : testing::Test {
  struct shared_handler {
    tp::http_shared<tp::no_lock, 16> of_all{};
    auto& shared() noexcept { return of_all; }
  };
  using owner_type = tp::owner<tp::xxhash_digest, tp::default_limits>;
  using end_type = tp::detail::owner_endpoint<owner_type, shared_handler>;
  static void say(end_type& end, std::string_view text) {
    tp::no_transfer none;
    std::array<std::span<std::byte>, 32> room;
    ASSERT_EQ(end.plan_read(none, room, 1), 1u);
    std::memcpy(room[0].data(), text.data(), text.size());
    ASSERT_TRUE(end.received(none, room, text.size()));
  }
  tp::owner_storage<4, 16> storage;
  owner_type references{storage, [n = std::uint64_t{0}]() mutable { return ++n; }};
  alignas(64) std::byte memory[8 * 8192];
  tp::buffer_pool<tp::no_lock> pool{memory, 8192};
  shared_handler handler;
};

// Two connections that did not read kept everybody else from the page.
TEST_F(HttpOwnerPages, A_page_of_metrics_that_nobody_reads_takes_no_memory_and_is_one_although_counts_grow) {
  handler.of_all.options.metrics = true;
  const std::string asks = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
  tp::no_transfer none;
  byte_vector scratch(64 * 1024);
  std::vector<std::unique_ptr<end_type>> ends;
  std::string text;
  const auto take = [&](end_type& end, std::size_t most) {
    end_type::plan_type plan;
    ASSERT_TRUE(end.plan_write(none, plan, scratch, 1));
    std::size_t taken = 0;
    for (std::size_t k = 0; k < plan.span_count; ++k) {
      const auto part = plan.spans[k].first(std::min(plan.spans[k].size(), most - taken));
      text.append(reinterpret_cast<const char*>(part.data()), part.size());
      taken += part.size();
    }
    ASSERT_TRUE(end.written(none, plan, taken));
  };
  for (int i = 0; i < 20; ++i) {
    ends.push_back(std::make_unique<end_type>(references, pool, handler));
    say(*ends.back(), asks);
    take(*ends.back(), 7);
  }
  EXPECT_EQ(pool.available(), 8u);
  EXPECT_EQ(handler.of_all.counts.answers(200), 20u);
  text.clear();
  end_type slow(references, pool, handler);
  for (say(slow, asks); slow.output_ready(); take(slow, 11)) handler.of_all.counts.answered(404);
  const std::size_t body = text.find("\r\n\r\n") + 4, length = text.find("Content-Length: ") + 16;
  EXPECT_EQ(std::stoul(text.substr(length)), text.size() - body);
  EXPECT_NE(text.find("tensorpull_http_responses_total{code=\"404\"} 0\n"), text.npos);
}

/// An owner with one model, on a thread of its own. A test may ask it meanwhile.
struct HttpOwnerSettles : testing::Test {
  void publish(const tp::publish_options& options) {
    ref = *owner->add_tensors(*source, options);
    thread.emplace(*owner);
  }
  std::string confirm(std::string_view name, std::string_view body, std::string_view fields = {}) const {
    return http_client::request("POST", path_of(ref) + "/confirm", ref,
                                "Content-Length: " + std::to_string(body.size()) +
                                    "\r\nTensorpull-Recipient: " + std::string(name) + "\r\n" + std::string(fields)) +
           std::string(body);
  }
  using owning = tp::pipeline<tp::raw_tensors<mlp>, tp::fixed_bytes<64_KiB>, tp::http_only<tp::tcp_on_threads>>;
  tp::result<owning::downloader> owner = owning::downloader::open();
  const std::unique_ptr<mlp> source = random_model<mlp>(1);
  tp::reference ref;
  std::optional<serving> thread;
};

TEST_F(HttpOwnerSettles, A_confirmation_that_is_cut_anywhere_confirms_nothing_and_the_whole_one_does) {
  publish({.recipients = 1});
  const auto who = tp::recipient_named("site");
  ASSERT_EQ(http_client(owner->port()).ask("GET", ref, "Tensorpull-Recipient: site\r\n").status, 200);
  const auto state = [&] { return owner->recipient_of(ref, who)->state; };
  // its last bytes may be here before the owner knows that they have left
  ASSERT_TRUE(eventually("all bytes have left", [&] { return state() == tp::recipient_state::provisional; }));
  for (const char* fields : {"", "Expect: 100-continue\r\n"}) {
    const std::string whole = confirm("site", "digest=" + hex(ref.version), fields);
    for (std::size_t n = 1; n < whole.size(); ++n) {
      http_client c(owner->port());
      c.say(whole.substr(0, n));
      c.peer().half_close();
      EXPECT_TRUE(c.peer().hear_end());
      ASSERT_EQ(state(), tp::recipient_state::provisional) << n;
    }
  }
  http_client c(owner->port());
  const std::string whole = confirm("site", "digest=" + hex(ref.version), "Expect: 100-continue\r\n");
  for (const char one : whole) c.say(std::string_view(&one, 1));
  auto a = c.hear();
  if (a.status == 100) a = c.hear();  // or the body was there before it was asked for
  EXPECT_EQ(a.body, "completed\n");
}

TEST_F(HttpOwnerSettles, A_confirmation_that_is_said_again_counts_once_and_settles_nobody_else) {
  publish({.recipients = 2});
  http_client c(owner->port());
  EXPECT_EQ(c.ask("GET", ref, "Tensorpull-Recipient: one\r\n").status, 200);
  const std::string mine = confirm("one", "digest=" + hex(ref.version)),
                    other = confirm("two", "digest=" + hex(ref.version)),
                    wrong = confirm("one", "digest=0000000000000001");
  for (int i = 0; i < 5; ++i) {
    c.say(mine);
    EXPECT_EQ(c.hear().body, "completed\n");
    c.say(other);
    EXPECT_EQ(c.hear().status, 409);
  }
  c.say(wrong);
  EXPECT_EQ(c.hear().body, "digest_mismatch\n");  // and what was settled stays
  EXPECT_EQ(c.ask("GET", ref, "Tensorpull-Recipient: two\r\nRange: bytes=0-9\r\n").status, 206);
  c.say(other);
  EXPECT_EQ(c.hear().status, 409);
  thread->stop();
  EXPECT_EQ(owner->status_of(ref)->completed, 1u);
  EXPECT_FALSE(owner->settled(ref));
}

TEST_F(HttpOwnerSettles, A_confirmation_that_is_said_again_gets_its_answer_although_another_version_was_published) {
  const auto other = random_model<mlp>(2), later = random_model<mlp>(3);
  const std::array named{tp::recipient_named("one")};
  const auto both = *owner->open_transaction({.named = named});
  ref = *owner->add_tensors(*source, {.transaction = both});
  ASSERT_TRUE(owner->add_tensors(*other, {.transaction = both}));  // the transaction goes on with it
  owner->seal(both);
  thread.emplace(*owner);
  const std::string mine = confirm("one", "digest=" + hex(ref.version));
  const auto says = [&](const std::string& text) {
    http_client c(owner->port());
    c.say(text);
    return c.hear();
  };
  const auto post = [&](const std::string& path) {
    return http_client::request("POST", path, ref, "Content-Length: 0\r\nTensorpull-Recipient: one\r\n");
  };
  EXPECT_EQ(http_client(owner->port()).ask("GET", ref, "Tensorpull-Recipient: one\r\n").status, 200);
  EXPECT_EQ(says(mine).body, "completed\n");
  thread->stop();
  const auto newer = *owner->add_tensors(*later, {.named = named, .id = ref.id});
  thread.emplace(*owner);
  EXPECT_EQ(says(mine).body, "completed\n");
  EXPECT_EQ(says(post("/v1/model/latest/cancel")).status, 409) << "it has fetched nothing of what there is now";
  EXPECT_EQ(says(post(path_of(newer) + "/confirm")).status, 409);
  EXPECT_EQ(http_client(owner->port()).ask("GET", newer, "Tensorpull-Recipient: one\r\n").status, 200);
  EXPECT_EQ(says(mine).body, "completed\n");
  EXPECT_EQ(says(post("/v1/model/latest/confirm")).body, "completed_unverified\n");
  EXPECT_EQ(says(mine).body, "completed\n");
  thread->stop();
  EXPECT_EQ(owner->settlement_of(newer)->verdict, tp::verdict::completed_unverified);
}

TEST_F(HttpOwnerSettles, A_connection_without_a_name_confirms_each_reference_that_it_was_sent) {
  publish({.recipients = 1});
  thread->stop();
  const auto other = random_model<mlp>(2);
  const auto second = *owner->add_tensors(*other, {.recipients = 1});
  thread.emplace(*owner);
  http_client c(owner->port()), stranger(owner->port());
  const auto settle = [](http_client& over, const tp::reference& r, std::string_view how, const std::string& body) {
    over.say(http_client::request("POST", path_of(r) + std::string(how), r,
                                  "Content-Length: " + std::to_string(body.size()) + "\r\n") +
             body);
    return over.hear();
  };
  EXPECT_EQ(c.ask("GET", ref).status, 200);
  EXPECT_EQ(c.ask("GET", second).status, 200);
  EXPECT_EQ(settle(stranger, ref, "/confirm", "digest=" + hex(ref.version)).status, 409) << "it is another connection";
  EXPECT_EQ(settle(c, ref, "/confirm", "digest=" + hex(ref.version)).body, "completed\n");
  EXPECT_EQ(settle(c, second, "/cancel", "").status, 200);
  EXPECT_EQ(settle(c, ref, "/confirm", "digest=" + hex(ref.version)).body, "completed\n");
  thread->stop();
  EXPECT_EQ(owner->settlement_of(ref)->verdict, tp::verdict::completed);
  EXPECT_EQ(owner->status_of(second)->cancelled, 1u);
}

TEST_F(HttpOwnerSettles, Who_comes_over_a_connection_that_another_has_confirmed_on_is_served_too) {
  publish({.recipients = 3});
  http_client proxy(owner->port());
  const std::string digest = "digest=" + hex(ref.version),
                    confirms = http_client::request("POST", path_of(ref) + "/confirm", ref,
                                                    "Content-Length: " + std::to_string(digest.size()) + "\r\n") +
                               digest;
  const std::string image = image_of(*source);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(proxy.ask("GET", ref).body == image) << i;
    proxy.say(confirms);
    EXPECT_EQ(proxy.hear().body, "completed\n");
  }
  EXPECT_TRUE(proxy.ask("GET", ref, "Tensorpull-Recipient: a\r\n").body == image);
  proxy.say(
      http_client::request("POST", path_of(ref) + "/cancel", ref, "Content-Length: 0\r\nTensorpull-Recipient: a\r\n"));
  EXPECT_EQ(proxy.hear().status, 200);
  EXPECT_TRUE(proxy.ask("GET", ref, "Tensorpull-Recipient: a\r\n").body == image);
}

TEST_F(HttpOwnerSettles, What_nobody_knows_cannot_be_cancelled) {
  publish({.recipients = 1});
  tp::reference unknown = ref;
  unknown.id.low ^= 1;
  http_client c(owner->port());
  EXPECT_EQ(c.ask("GET", ref, "Tensorpull-Recipient: one\r\n").status, 200);
  c.say(http_client::request("POST", path_of(ref) + "/cancel", unknown,
                             "Content-Length: 0\r\nTensorpull-Recipient: one\r\n"));
  EXPECT_EQ(c.hear().status, 404);
  c.say(http_client::request("POST", "/v1/model/" + hex(ref.version + 1) + "/cancel", ref,
                             "Content-Length: 0\r\nTensorpull-Recipient: one\r\n"));
  EXPECT_EQ(c.hear().status, 404);
  EXPECT_EQ(owner->recipient_of(ref, tp::recipient_named("one"))->state, tp::recipient_state::provisional);
}

TEST_F(HttpOwnerSettles, An_old_client_that_keeps_its_connection_is_told_so) {
  publish({});
  http_client c(owner->port());
  const std::string old = "HEAD " + path_of(ref) + " HTTP/1.0\r\nAuthorization: Bearer " + key_of(ref) + "\r\n";
  for (int i = 0; i < 2; ++i) {
    c.say(old + "Connection: Keep-Alive\r\n\r\n");
    const auto a = c.hear(true);
    EXPECT_EQ(a.status, 200);
    EXPECT_EQ(a.at("Connection"), "keep-alive");
  }
  c.say(old + "Connection: keep-alive, close\r\n\r\n");
  EXPECT_EQ(c.hear(true).at("Connection"), "close");
  EXPECT_TRUE(c.hear_end());
  http_client without(owner->port());
  without.say(old + "\r\n");
  EXPECT_EQ(without.hear(true).at("Connection"), "close");
  EXPECT_TRUE(without.hear_end());
}

TEST(HttpOwnerAbuse, Who_takes_a_byte_now_and_then_is_ended_as_who_takes_none) {
  auto owner = big_net::downloader::open({.host = {.budgets = {.stall = 1s}}});
  const auto source = random_model<large>(1);
  const auto ref = *owner->add_tensors(*source);
  serving thread(*owner);
  http_client drips(owner->port());
  drips.say(http_client::request("GET", path_of(ref), ref));
  const auto end = std::chrono::steady_clock::now() + 30s;
  std::size_t taken = 0;
  while ((owner->shared().counts.open() > 0 || owner->shared().counts.accepted() == 0) &&
         std::chrono::steady_clock::now() < end) {
    taken += drips.peer().hear(1, 1s).size();
    be_slow(20ms);
  }
  EXPECT_EQ(owner->shared().counts.open(), 0u);
  EXPECT_GT(taken, 0u);
}

TEST(HttpOwnerAbuse, Who_only_asks_after_the_health_does_not_keep_a_connection) {
  auto owner = big_net::downloader::open({.host = {.budgets = {.accept = 300ms}}});
  serving thread(*owner);
  http_client c(owner->port());
  const auto end = std::chrono::steady_clock::now() + 30s;  // only a connection that is kept takes so long
  while (std::chrono::steady_clock::now() < end &&
         (owner->shared().counts.accepted() == 0 || owner->shared().counts.open() > 0)) {
    if (!c.peer().say("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")) break;
    be_slow(20ms);
  }
  EXPECT_EQ(owner->shared().counts.open(), 0u);
  EXPECT_GT(owner->shared().counts.answers(200), 0u);
}

TEST(HttpOwnerAbuse, What_an_owner_may_send_in_a_second_holds_for_answers_too_and_cuts_none_short) {
  constexpr std::uint64_t rate = 1_MiB;
  auto owner = net::downloader::open(
      {.host = {.limits = {.owner_bytes_per_second = rate, .recipient_bytes_per_second = rate}}});
  owner->shared().options.metrics = true;
  const auto source = random_model<mlp>(1);
  const auto ref = *owner->add_tensors(*source);
  const std::string image = image_of(*source);
  serving thread(*owner);
  const auto begun = std::chrono::steady_clock::now();
  on_threads(3, [&](std::size_t i) {
    http_client c(owner->port());
    if (i == 2) {  // closes behind the answer
      c.say(http_client::request("GET", path_of(ref), ref, "Connection: close\r\n"));
      EXPECT_TRUE(c.hear().body == image);
      EXPECT_TRUE(c.hear_end());
      return;
    }
    for (int n = 0; n < 2; ++n) EXPECT_TRUE(c.ask("GET", ref).body == image);
    c.say("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    EXPECT_EQ(c.hear().status, 200);
    c.say("nonsense\r\n");
    EXPECT_EQ(c.hear().status, 400);
    EXPECT_TRUE(c.hear_end());
  });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  EXPECT_LE(static_cast<double>(5 * image.size()), (seconds + 1) * static_cast<double>(rate))
      << "they hold over any second";
}

}  // namespace http_owner_abuse_test
