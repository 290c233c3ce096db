// A middle party between an owner and a recipient, each on a thread of its own, over TCP.
#include "support/allocation_counter.hpp"
#include "support/clocks.hpp"

#include "support/frames.hpp"
#include "transports/network.hpp"

#include <tensorpull/satellites/relay/relay.hpp>
#include <tensorpull/transports/over/tcp/tcp_listener.hpp>

#include <functional>
#include <semaphore>
#include <stop_token>

namespace relay_test {

using namespace test;
using net = raw_net<mlp, tp::tcp>;
using link = tp::relay_link<net::parts, tp::posix_stream>;
constexpr std::size_t buffer_bytes = 16'384;

/// A middle party that serves one recipient after the other, each over an upstream connection of its own.
class middle {
 public:
  middle(std::uint16_t origin, const tp::reference& ref, std::size_t buffer = buffer_bytes)
      : listener_(std::move(*tp::tcp_listener::open(any_port))),
        thread_([this, origin, ref, buffer](const std::stop_token& stop) {
          std::vector<std::byte> chunk(buffer);
          while (auto recipient = listener_.accept(60s, stop)) {
            auto up = tp::tcp_connect(local(origin), steady_clock::now() + 10s);
            ASSERT_TRUE(up);
            link upstream(std::move(*up));
            outcomes.push_back(tp::relay<net::parts>(upstream, *recipient, ref, chunk, {30s, stop}));
            relayed_.release();
          }
        }) {}
  std::uint16_t port() const { return listener_.port(); }
  /// Waits until one recipient more has been served to its end.
  bool served() { return relayed_.try_acquire_for(10s); }
  void stop() { thread_.request_stop(), thread_.join(); }
  /// Read after stop().
  std::vector<tp::result<tp::relayed>> outcomes;

 private:
  tp::tcp_listener listener_;
  std::counting_semaphore<> relayed_{0};
  joined_thread thread_;
};

struct origin {
  explicit origin(std::uint32_t recipients = 1, const tp::connection_budgets& budgets = {})
      : model(random_model<mlp>(7)) {
    auto opened = net::downloader::open({.host = {.budgets = budgets}});
    EXPECT_TRUE(opened);
    owner.emplace(std::move(*opened));
    ref = *owner->add_tensors(*model, {.recipients = recipients});
    run.emplace(*owner);
  }
  std::unique_ptr<mlp> model;
  std::optional<net::downloader> owner;
  tp::reference ref;
  std::optional<serving> run;
};

TEST(Relay, The_recipient_gets_the_origins_bytes_in_chunks_of_the_buffer) {
  origin o;
  middle m(o.owner->port(), o.ref);
  const auto mine = blank<mlp>();
  const auto done = net::download_tensors(local(m.port()), o.ref, *mine);
  ASSERT_TRUE(done) << to_string(done.error().code);
  EXPECT_EQ(done->outcome, tp::outcome::completed);
  EXPECT_EQ(done->version, o.ref.version);
  EXPECT_EQ(done->digest, o.ref.version);
  EXPECT_EQ(done->chunks, (done->bytes + buffer_bytes - 1) / buffer_bytes) << "no chunk is longer than the buffer";
  EXPECT_TRUE(same(*mine, *o.model));
  o.run->stop();
  const auto status = *o.owner->status_of(o.ref);
  EXPECT_EQ(status.completed, 1u);
  EXPECT_EQ(status.final(), 1u);
  EXPECT_TRUE(m.served());
  m.stop();
  ASSERT_EQ(m.outcomes.size(), 1u);
  ASSERT_TRUE(m.outcomes[0]) << to_string(m.outcomes[0].error().code);
  EXPECT_EQ(m.outcomes[0]->completed, 1u);
  EXPECT_EQ(m.outcomes[0]->bytes, done->bytes);
  EXPECT_EQ(m.outcomes[0]->chunks, done->chunks);
}

TEST(Relay, Every_recipient_counts_at_the_origin) {
  origin o(3);
  middle m(o.owner->port(), o.ref);
  for (int i = 0; i < 3; ++i) {
    const auto mine = blank<mlp>();
    ASSERT_TRUE(net::download_tensors(local(m.port()), o.ref, *mine));
    EXPECT_TRUE(same(*mine, *o.model));
  }
  o.run->stop();
  EXPECT_TRUE(o.owner->settled(o.ref));
  EXPECT_EQ(o.owner->status_of(o.ref)->completed, 3u);
}

TEST(Relay, The_origin_hears_of_a_recipient_that_vanished) {
  origin o;
  middle m(o.owner->port(), o.ref, 1024);
  std::stop_source stop;
  struct impatient : tp::land {
    impatient(const tp::destination_view& to, std::stop_source& s) : land(to), stop(s) {}
    tp::result<void> chunk(std::uint64_t, std::uint64_t) noexcept {
      return ++n == 5 ? tp::failure(tp::errc::disk_full) : tp::result<void>{};
    }
    std::stop_source& stop;
    int n = 0;
  };
  const auto mine = blank<mlp>();
  impatient to(tp::raw_tensors<mlp>::destination(*mine), stop);
  EXPECT_EQ(net::pull(local(m.port()), o.ref, to).error().code, tp::errc::disk_full);
  EXPECT_TRUE(m.served()) << "the farewell passes on";
  m.stop();
  o.run->stop();
  tp::publication_status status;
  EXPECT_TRUE(runs_until("the origin has heard it, too", *o.owner, [&] {
    status = *o.owner->status_of(o.ref);
    return status.cancelled + status.lost > 0;
  }));
  EXPECT_EQ(status.completed, 0u);
  EXPECT_EQ(status.cancelled + status.lost, 1u);
}

TEST(Relay, Ends_well_if_the_origin_has_ended_what_the_recipient_was_served) {
  const auto other = random_model<mlp>(8);
  for (const bool replaced : {false, true}) {
    origin o;
    middle m(o.owner->port(), o.ref, 1024);
    struct calling : tp::land {
      calling(const tp::destination_view& to, std::function<void()> f) : land(to), call(std::move(f)) {}
      tp::result<void> chunk(std::uint64_t, std::uint64_t) noexcept {
        if (++n == 5) call();
        return {};
      }
      std::function<void()> call;
      int n = 0;
    };
    const auto mine = blank<mlp>();
    calling to(tp::raw_tensors<mlp>::destination(*mine), [&] {
      o.run->stop();
      EXPECT_TRUE(replaced ? o.owner->add_tensors(*other, {.id = o.ref.id}).has_value()
                           : o.owner->withdraw(o.ref, 7).has_value());
      o.run.emplace(*o.owner);
    });
    const auto done = net::pull(local(m.port()), o.ref, to, {.retry = {.retries = 0}});
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, replaced ? tp::errc::stale_version : tp::errc::withdrawn);
    ASSERT_TRUE(m.served());
    m.stop();
    ASSERT_EQ(m.outcomes.size(), 1u);
    ASSERT_TRUE(m.outcomes[0]) << to_string(m.outcomes[0].error().code) << ": nothing is left to tell the origin";
    EXPECT_GT(m.outcomes[0]->bytes, 0u);
    EXPECT_EQ(m.outcomes[0]->completed, 0u);
  }
}

TEST(Relay, A_refusal_is_the_origins_and_another_reference_is_none) {
  origin o(0);
  middle m(o.owner->port(), o.ref);
  const auto mine = blank<mlp>();
  EXPECT_EQ(net::download_tensors(local(m.port()), {{9, 9}, 0, 0}, *mine).error().code, tp::errc::unknown_reference);
  EXPECT_EQ(net::download_tensors(local(m.port()), {o.ref.id, 5, 0}, *mine).error().code, tp::errc::stale_version);
  using other_net = raw_net<tiny, tp::tcp>;
  const auto other = blank<tiny>();
  const auto differs = other_net::download_tensors(local(m.port()), o.ref, *other);
  EXPECT_EQ(differs.error().code, tp::errc::schema_mismatch);
  EXPECT_FALSE(differs.error().name.empty()) << "schema pages pass too";
  const std::string_view names[] = {"hidden.b"};
  const std::uint64_t shape[] = {128};
  float b[128];
  const tp::mutable_tensor_view view{"hidden.b", tp::dtype::f32, shape, reinterpret_cast<std::byte*>(b)};
  auto image = tp::dynamic_image::make(std::span(&view, 1));
  tp::land to(image->destination());
  const auto part = net::pull(local(m.port()), o.ref, to, {.tensors = names});
  ASSERT_TRUE(part) << to_string(part.error().code);
  EXPECT_EQ(std::memcmp(b, o.model->hidden.b, sizeof b), 0);
}

TEST(Relay, An_owner_behind_nat_is_reached_over_its_own_connection) {
  const auto model = random_model<mlp>(3);
  auto outside = tp::tcp_listener::open(any_port), inside = tp::tcp_listener::open(any_port);
  ASSERT_TRUE(outside && inside);
  joined_thread owner([&] {
    auto s = net::session::connect(local(inside->port()));
    ASSERT_TRUE(s);
    const auto ref = s->add_tensors(*model, {.recipients = 2});
    ASSERT_TRUE(ref);
    ASSERT_TRUE(s->send(1, {&*ref, 1}, {}));
    EXPECT_TRUE(s->serve(tp::until_settled(*ref), 60s));
    EXPECT_EQ(s->status_of(*ref)->completed, 2u) << "the middle party and whom it relays to are two recipients";
    (void)s->receive(60s);  // until the middle party hangs up
  });
  auto accepted = inside->accept(60s);
  ASSERT_TRUE(accepted);
  auto up = net::session::over(std::move(*accepted));
  const auto said = up->receive(60s);
  ASSERT_TRUE(said);
  const tp::reference ref = said->references[0];

  const auto mine = blank<mlp>();
  joined_thread recipient([&] {
    const auto done = net::download_tensors(local(outside->port()), ref, *mine);
    ASSERT_TRUE(done) << to_string(done.error().code);
    EXPECT_EQ(done->outcome, tp::outcome::completed);
  });
  auto stream = outside->accept(60s);
  ASSERT_TRUE(stream);
  std::vector<std::byte> chunk(buffer_bytes);
  const auto done = tp::relay<net::parts>(*up, *stream, ref, chunk, {30s, {}});
  ASSERT_TRUE(done) << to_string(done.error().code);
  EXPECT_EQ(done->completed, 1u);
  recipient.join();
  EXPECT_TRUE(same(*mine, *model));
  // the same session still pulls for itself: answers to the relay's requests and to its own are told apart
  const auto own = blank<mlp>();
  const auto again = up->download_tensors(ref, *own);
  ASSERT_TRUE(again) << to_string(again.error().code);
  EXPECT_TRUE(same(*own, *model));
}

tp::frame answer_to(const tp::frame& asked, tp::frame_kind kind) {
  tp::frame m;
  m.kind = kind;
  m.id = asked.id;
  m.ref = {1, 2};
  m.version = 3;
  m.nonce = 4;
  return m;
}

/// An origin that answers the first description well, and the pull that came with it as `lie` says.
tp::result<tp::relayed> relay_from_liar(std::function<std::vector<std::byte>(std::uint32_t pull_id)> lie) {
  raw_listener origin, outside;
  auto up = tp::tcp_connect(local(origin.port()), steady_clock::now() + 10s);
  link upstream(std::move(*up));
  raw_peer liar = origin.accept();
  auto recipient = tp::tcp_connect(local(outside.port()), steady_clock::now() + 10s);
  raw_peer stream = outside.accept();
  joined_thread pulling([&] {
    const auto mine = blank<mlp>();
    EXPECT_FALSE((tp::pull_over<net::parts, tp::posix_stream>(
        *recipient, tp::reference{{1, 2}, 0, 0},
        *std::make_unique<tp::land>(tp::raw_tensors<mlp>::destination(*mine)))));
  });
  joined_thread lying([&] {
    std::vector<std::byte> asked = liar.hear(1);
    const auto more = liar.hear(16 + 8 * 8 - 1);
    tp::frame first;
    first.id = 1;
    auto d = answer_to(first, tp::frame_kind::description);
    const auto& schema = tp::raw_tensors<mlp>::schema();
    d.fingerprint = schema.fingerprint, d.image_bytes = schema.image_bytes, d.data_start = schema.header_bytes,
    d.tensors = schema.tensor_count;
    d.length = 1 << 20, d.window = 4, d.flag = true;
    liar.say(encode(d).bytes());
    liar.say(lie(2));
  });
  std::vector<std::byte> chunk(buffer_bytes);
  auto done = tp::relay<net::parts>(upstream, stream.stream(), {{1, 2}, 0, 0}, chunk, {20s, {}});
  stream.reset();
  return done;
}
std::vector<std::byte> chunk_frame(std::uint32_t id, std::uint32_t length) {
  tp::frame asked;
  asked.id = id;
  auto m = answer_to(asked, tp::frame_kind::chunk);
  m.length = length;
  std::vector<std::byte> frame(static_cast<std::size_t>(tp::detail::payload_prefix::frame_bytes(length)));
  tp::detail::payload_prefix::write(m, std::span(frame).first<80>());
  return frame;
}

TEST(Relay, An_origin_cannot_write_behind_the_buffer_nor_answer_what_was_not_asked) {
  const auto longer = relay_from_liar([](std::uint32_t id) { return chunk_frame(id, buffer_bytes + 1); });
  EXPECT_EQ(to_string(longer.error().code), to_string(tp::errc::wrong_payload));
  const auto empty = relay_from_liar([](std::uint32_t id) { return chunk_frame(id, 0); });
  EXPECT_EQ(to_string(empty.error().code), to_string(tp::errc::wrong_payload));
  const auto unasked = relay_from_liar([](std::uint32_t id) { return chunk_frame(id + 50, 64); });
  EXPECT_EQ(to_string(unasked.error().code), to_string(tp::errc::unexpected_frame));
  const auto to_description = relay_from_liar([](std::uint32_t) {
    tp::frame first;
    first.id = 1;
    const auto f = encode(answer_to(first, tp::frame_kind::confirmed));
    return std::vector<std::byte>(f.bytes().begin(), f.bytes().end());
  });
  EXPECT_EQ(to_string(to_description.error().code), to_string(tp::errc::unexpected_frame)) << "answered already";
}

struct short_frames : tp::default_limits {
  static constexpr std::size_t control_frame_bytes = 512;
};
TEST(Relay, No_longer_requests_are_stated_than_it_takes_itself) {
  for (const std::uint16_t stated : std::initializer_list<std::uint16_t>{0, 40, 64, 100}) {
    std::vector<std::byte> chunk(buffer_bytes);
    tp::relay_machine<tp::basic_word_framing<short_frames>, short_frames> machine(chunk, {1, 2}, 1);
    tp::frame asks;
    asks.kind = tp::frame_kind::describe;
    asks.id = 1, asks.ref = {1, 2};
    const auto request = encode(asks);
    std::memcpy(machine.room().data(), request.bytes().data(), request.bytes().size());
    machine.received(request.bytes().size());
    tp::frame passed_on;
    ASSERT_TRUE(machine.next(passed_on));
    auto d = answer_to(passed_on, tp::frame_kind::description);
    d.length = 1, d.window = 4, d.request_words = stated;
    machine.on(d);
    std::array<std::span<const std::byte>, 3> out;
    ASSERT_EQ(machine.to_write(out), 1u);
    const decoded back(frame{std::span(out[0])});
    ASSERT_TRUE(back.outcome);
    EXPECT_EQ(back.m.request_words, stated == 40 ? 40 : 64) << stated;
  }
}

TEST(Relay, A_recipient_can_only_ask) {
  origin o;
  tp::frame letter;
  letter.kind = tp::frame_kind::application;
  letter.ref = o.ref.id;
  tp::frame asked;
  asked.ref = o.ref.id;
  const auto text = encode(letter), answer = encode(answer_to(asked, tp::frame_kind::description));
  const std::vector<std::byte> garbage(64, std::byte{0xff});
  const auto ends_with = [&](std::span<const std::byte> said) {
    raw_listener outside;
    auto client = tp::tcp_connect(local(outside.port()), steady_clock::now() + 10s);
    raw_peer peer(std::move(*client)), stream = outside.accept();
    peer.say(said);
    auto up = tp::tcp_connect(local(o.owner->port()), steady_clock::now() + 10s);
    link upstream(std::move(*up));
    std::vector<std::byte> chunk(buffer_bytes);
    const auto done = tp::relay<net::parts>(upstream, stream.stream(), o.ref, chunk, {20s, {}});
    return std::string_view(done ? "nothing" : to_string(done.error().code));
  };
  EXPECT_EQ(ends_with(text.bytes()), to_string(tp::errc::unexpected_frame));
  EXPECT_EQ(ends_with(answer.bytes()), to_string(tp::errc::unexpected_frame));
  EXPECT_EQ(ends_with(garbage), to_string(tp::errc::bad_frame));
  o.run->stop();
  EXPECT_EQ(o.owner->status_of(o.ref)->acquired, 0u);
}

TEST(Relay, F17_a_request_of_an_unknown_kind_is_refused) {
  std::vector<std::byte> chunk(buffer_bytes);
  tp::relay_machine<tp::word_framing> between(chunk, {1, 2}, 1);
  const frame newer = single_segment(static_cast<tp::frame_kind>(17), {0});
  std::memcpy(between.room().data(), newer.bytes().data(), newer.size());
  between.received(newer.size());
  tp::frame asked;
  EXPECT_FALSE(between.next(asked)) << "the origin need not know";
  EXPECT_FALSE(between.ended());
  std::array<const_byte_span, 3> out;
  ASSERT_EQ(between.to_write(out), 1u);
  const decoded answer{frame(out[0])};
  EXPECT_EQ(std::tuple(answer.m.kind, answer.m.status, answer.m.id),
            std::tuple(tp::frame_kind::refused, tp::status::unsupported, 1u));
}

// One byte a second of a request for another reference kept the owner's one connection without end.
TEST(Relay, A_stranger_does_not_keep_the_owners_connection_by_what_is_no_request_for_the_reference) {
  origin o(2, {.accept = 600s});
  auto up = tp::tcp_connect(local(o.owner->port()), steady_clock::now() + 10s);
  ASSERT_TRUE(up);
  link upstream(std::move(*up));
  std::vector<std::byte> chunk(buffer_bytes);
  tp::frame describe;
  describe.kind = tp::frame_kind::describe;
  describe.id = 1;
  describe.ref = o.ref.id;
  const auto request = encode(describe);
  describe.ref = {9, 9};
  const auto other = encode(describe);
  struct {
    bool asks;
    std::size_t at_a_time;
    std::chrono::seconds idle;
  } const cases[]{{false, 0, 600s}, {false, 1, 600s}, {false, other.bytes().size(), 600s}, {true, 1, 20s}};
  for (const auto& c : cases) {
    raw_listener outside;
    auto client = tp::tcp_connect(local(outside.port()), steady_clock::now() + 10s);
    ASSERT_TRUE(client);
    raw_peer stranger(std::move(*client)), served = outside.accept();
    if (c.asks) {
      ASSERT_TRUE(stranger.say(request.bytes()));
    }
    std::stop_source stop;
    joined_thread talking([&](const std::stop_token& over) {
      const auto end = within(10s);
      for (std::size_t i = 0; !over.stop_requested() && !end.stop_requested(); i += c.at_a_time) {
        if (c.at_a_time > 0) (void)stranger.say(other.bytes().subspan(i % other.bytes().size(), c.at_a_time));
        look_again_soon();
      }
      stop.request_stop();
    });
    const fast_clock fast(50);
    const auto done = tp::relay<net::parts>(upstream, served.stream(), o.ref, chunk, {c.idle, stop.get_token()});
    talking.request_stop();
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, tp::errc::timed_out) << &c - cases;
  }
  raw_listener outside;
  const auto mine = blank<mlp>();
  joined_thread recipient([&] { EXPECT_TRUE(net::download_tensors(local(outside.port()), o.ref, *mine)); });
  raw_peer served = outside.accept();
  EXPECT_TRUE(tp::relay<net::parts>(upstream, served.stream(), o.ref, chunk, {30s, {}}));
}

TEST(Relay, A_recipient_whose_requests_come_while_it_is_told_to_go_is_relayed_to) {
  origin o;
  auto outside = tp::tcp_listener::open(any_port);
  ASSERT_TRUE(outside);
  auto dialled = tp::tcp_connect(local(outside->port()), steady_clock::now() + 10s);
  auto accepted = outside->accept(60s);
  ASSERT_TRUE(dialled && accepted);
  auto session = net::session::over(std::move(*accepted));
  ASSERT_TRUE(session);
  // the request is there before the message is sent, as that of a quick recipient may be
  tp::frame early;
  early.kind = tp::frame_kind::describe;
  early.id = 1;
  early.ref = o.ref.id;
  raw_peer recipient(std::move(*dialled));
  ASSERT_TRUE(recipient.say(encode(early).bytes()));
  session->stream().wait(true, false, 10s);
  EXPECT_TRUE(session->between_frames());
  ASSERT_TRUE(session->send(5, {&o.ref, 1}, {}, 10s));
  EXPECT_TRUE(session->between_frames()) << "nothing was read";

  auto up = tp::tcp_connect(local(o.owner->port()), steady_clock::now() + 10s);
  ASSERT_TRUE(up);
  link upstream(std::move(*up));
  std::vector<std::byte> chunk(buffer_bytes);
  std::stop_source stop;
  joined_thread hearing([&] {
    // the message, and then the description: 96 bytes or more
    EXPECT_GE(recipient.hear(200, 5s).size(), 150u);
    recipient.reset();
  });
  const auto done = tp::relay<net::parts>(upstream, session->stream(), o.ref, chunk, {30s, stop.get_token()});
  EXPECT_FALSE(done) << "it had begun, and hung up";
  EXPECT_EQ(done.error().code, tp::errc::connection_lost);
}

TEST(Relay, A_session_that_has_read_something_is_not_between_frames) {
  auto outside = tp::tcp_listener::open(any_port);
  ASSERT_TRUE(outside);
  auto dialled = tp::tcp_connect(local(outside->port()), steady_clock::now() + 10s);
  auto accepted = outside->accept(60s);
  ASSERT_TRUE(dialled && accepted);
  auto session = net::session::over(std::move(*accepted)), other = net::session::over(std::move(*dialled));
  ASSERT_TRUE(session && other);
  ASSERT_TRUE(other->send(1, {}, {}, 10s));
  ASSERT_TRUE(other->send(2, {}, {}, 10s));
  EXPECT_TRUE(session->receive(10s));
  if (session->between_frames()) {  // the second may have come later than the first
    (void)session->serve([](const auto&) { return false; }, 1s);
  }
  EXPECT_FALSE(session->between_frames()) << "a message is unread";
  EXPECT_TRUE(session->receive(10s));
  EXPECT_TRUE(session->between_frames());
  other = tp::failure(tp::errc::cancelled);
  EXPECT_EQ(session->receive(10s).error().code, tp::errc::connection_lost);
  EXPECT_FALSE(session->between_frames());
}

TEST(Relay, The_recipient_is_sent_no_more_in_a_second_than_the_limit) {
  // three seconds' worth, of which one second's leaves at once at most
  origin o;
  const std::uint64_t rate = sizeof(mlp) / 3;
  raw_listener outside;
  joined_thread recipient([&] {
    const auto mine = blank<mlp>();
    const auto done = net::download_tensors(local(outside.port()), o.ref, *mine);
    EXPECT_TRUE(done) << to_string(done.error().code);
    EXPECT_TRUE(same(*mine, *o.model));
  });
  raw_peer stream = outside.accept();
  auto up = tp::tcp_connect(local(o.owner->port()), steady_clock::now() + 10s);
  ASSERT_TRUE(up);
  link upstream(std::move(*up));
  std::vector<std::byte> chunk(buffer_bytes);
  tp::relay_options slow{300s, {}};
  slow.bytes_per_second = rate;
  const fast_clock fast(5);
  const auto began = steady_clock::now();
  const auto done = tp::relay<net::parts>(upstream, stream.stream(), o.ref, chunk, slow);
  ASSERT_TRUE(done) << to_string(done.error().code);
  EXPECT_EQ(done->completed, 1u);
  EXPECT_GE(steady_clock::now() - began, 1900ms);
}

TEST(Relay, An_owner_that_leaves_once_it_has_the_confirmation_ends_it_well) {
  const auto model = random_model<mlp>(3);
  auto inside = tp::tcp_listener::open(any_port);
  raw_listener outside;
  ASSERT_TRUE(inside);
  joined_thread owner([&] {
    auto s = net::session::connect(local(inside->port()));
    ASSERT_TRUE(s);
    const auto ref = s->add_tensors(*model, {.recipients = 1});
    ASSERT_TRUE(ref);
    ASSERT_TRUE(s->send(1, {&*ref, 1}, {}));
    EXPECT_TRUE(s->serve(tp::until_settled(*ref), 60s));
  });
  auto accepted = inside->accept(60s);
  ASSERT_TRUE(accepted);
  auto up = net::session::over(std::move(*accepted));
  const auto said = up->receive(60s);
  ASSERT_TRUE(said);
  const tp::reference ref = said->references[0];
  std::binary_semaphore left{0};
  joined_thread recipient([&] {
    auto stream = tp::tcp_connect(local(outside.port()), steady_clock::now() + 10s);
    const auto mine = blank<mlp>();
    auto s = net::session::over(std::move(*stream));
    const auto done = s->download_tensors(ref, *mine);
    ASSERT_TRUE(done) << to_string(done.error().code);
    EXPECT_TRUE(done->confirmed);
    EXPECT_TRUE(left.try_acquire_for(ample_time));  // it has not hung up when the owner does
  });
  raw_peer stream = outside.accept();
  std::vector<std::byte> chunk(buffer_bytes);
  const auto done = tp::relay<net::parts>(*up, stream.stream(), ref, chunk, {30s, {}});
  left.release();
  ASSERT_TRUE(done) << to_string(done.error().code);
  EXPECT_EQ(done->completed, 1u);
}

TEST(Relay, An_owner_that_leaves_before_is_lost) {
  raw_listener origin_, outside;
  auto up = tp::tcp_connect(local(origin_.port()), steady_clock::now() + 10s);
  link upstream(std::move(*up));
  origin_.accept().reset();
  auto recipient = tp::tcp_connect(local(outside.port()), steady_clock::now() + 10s);
  raw_peer stream = outside.accept();
  std::vector<std::byte> chunk(buffer_bytes);
  const auto done = tp::relay<net::parts>(upstream, stream.stream(), {{1, 2}, 0, 0}, chunk, {20s, {}});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, tp::errc::connection_lost);
}

TEST(Relay, Memory_is_one_chunk_buffer_and_nothing_is_allocated) {
  using big = tp::pipeline<tp::raw_tensors<large>, tp::fixed_bytes<1_MiB>, tp::tcp>;
  static_assert(sizeof(tp::relay_machine<tp::word_framing>) <= 24 * 1024);
  static_assert(sizeof(link) <= 8 * 1024);
  auto opened = big::downloader::open();
  const auto model = random_model<large>(1), mine = blank<large>();
  const auto ref = opened->add_tensors(*model, {.recipients = 2});
  serving run(*opened);
  auto listener = tp::tcp_listener::open(any_port);
  std::vector<std::byte> chunk(64 * 1024);
  for (int i = 0; i < 2; ++i) {
    auto up = tp::tcp_connect(local(opened->port()), steady_clock::now() + 10s);
    ASSERT_TRUE(up);
    link upstream(std::move(*up));
    joined_thread recipient([&] {
      const auto done = big::download_tensors(local(listener->port()), *ref, *mine);
      EXPECT_TRUE(done);
    });
    auto stream = listener->accept(60s);
    ASSERT_TRUE(stream);
    const allocation_watch watch;
    const auto done = tp::relay<big::parts>(upstream, *stream, *ref, chunk);
    ASSERT_TRUE(done);
    EXPECT_EQ(done->chunks, (done->bytes + chunk.size() - 1) / chunk.size());
    // the owner's thread accepts and keeps one connection, which is not the relay's; 192 chunks would make 192
    EXPECT_LE(watch.count(), 100u);
    if (i == 1) {
      EXPECT_LE(watch.count(), 8u);
    }
    recipient.join();
  }
  EXPECT_TRUE(same(*mine, *model));
}

}  // namespace relay_test
