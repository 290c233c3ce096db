// Sessions over UDP: both ends own, pull and send messages over one socket each.
#include "support/clocks.hpp"
#include "udp_network.hpp"

#include <tensorpull/consumers/any_schema/published_schema.hpp>

#include <optional>

namespace udp_session_test {

using namespace test;

TEST(UdpSession, Pulls_from_an_owner_of_many_again_and_again) {
  owner_at_work<udp_net> o;
  auto session = udp_net::session::connect(local(o.owner->port()));
  for (int i = 0; i < 5; ++i) {
    const auto mine = blank<mlp>();
    const auto done = session->download_tensors(o.ref, *mine);
    ASSERT_TRUE(succeeded(done));
    EXPECT_TRUE(same(*mine, *o.source));
  }
  o.server.stop();
  EXPECT_EQ(o.owner->peers(), 1u);
}

TEST(UdpSession, A_look_that_is_said_three_times_ends_no_named_recipient) {
  auto owner = udp_net::downloader::open();
  const auto source = random_model<mlp>(3);
  const tp::recipient_id ada{11}, names[] = {ada};
  const auto ref = *owner->add_tensors(*source, {.named = names});
  serving server(*owner);
  auto session = udp_net::session::connect(local(owner->port()));
  tp::published_schema seen({});
  const auto looked = session->pull(ref, seen, {.window = 1, .recipient = ada});
  EXPECT_EQ(code_of(looked), errc::cancelled);
  EXPECT_TRUE(seen.complete());
  EXPECT_EQ(code_of(session->receive(500ms)), errc::timed_out);  // meanwhile the second and the third copy leave
  server.stop();
  EXPECT_EQ(owner->recipient_of(ref, ada)->state, tp::recipient_state::unseen);
  EXPECT_FALSE(owner->settled(ref));
  serving again(*owner);
  const auto mine = blank<mlp>();
  const auto done = session->download_tensors(ref, *mine, {.recipient = ada});
  ASSERT_TRUE(confirmed(done));
  EXPECT_TRUE(same(*mine, *source));
}

TEST(UdpSession, The_longest_messages_arrive_whole_and_once_through_loss) {
  using net = tp::pipeline<tp::raw_tensors<mlp>, fit, troubled_udp>;
  troubled_udp::faults = {.lost = 30, .doubled = 50, .overtaken = 50};
  auto far = net::session::open(any_port);
  ASSERT_TRUE(far);
  auto near = net::session::connect(local(far->port()));
  const fast_clock fast(10);
  byte_vector body(64 * 1024);
  generator(1).fill(body);
  joined_thread other([&] {
    for (std::uint32_t i = 0; i < 3; ++i) EXPECT_TRUE(near->send(i, {}, std::span(body).first(body.size() - i), 60s));
    (void)near->serve([](const auto&) { return false; }, 300ms);
  });
  for (std::uint32_t i = 0; i < 3; ++i) {
    const auto m = far->receive(60s);
    ASSERT_TRUE(succeeded(m));
    EXPECT_EQ(m->kind, i);
    ASSERT_EQ(m->body.size(), body.size() - i);
    EXPECT_EQ(std::memcmp(m->body.data(), body.data(), m->body.size()), 0);
  }
  EXPECT_EQ(code_of(far->receive(200ms)), errc::timed_out);
  other.join();
}

TEST(UdpSession, A_called_session_listens_to_nobody_else) {
  auto far = udp_net::session::open(any_port);
  const auto port = far->port();
  joined_thread serving_thread(
      [&](const std::stop_token& stop) { (void)far->serve([](const auto&) { return false; }, ample_time, stop); });
  stranger s(port);
  const auto word = s.word();
  ASSERT_NE(word, 0u);
  auto near = udp_net::session::connect(local(port));
  ASSERT_TRUE(near->send(1, {}, {}, 5s));
  s.say(word, describe_of(tp::reference{{1, 2}, 0, 0}).bytes());
  EXPECT_TRUE(s.hear(300ms).empty());
}

// A firewall forgets a path that carries nothing, often after 30 s: what was sent to a client that waited for its next
// task was lost.
TEST(UdpSession, An_end_that_waits_keeps_the_path_known_in_both_directions) {
  constexpr int minutes = 3;
  const auto waits = [](auto& session) {
    for (int i = 0; i < 6 * minutes; ++i) {
      EXPECT_EQ(code_of(session.receive(1ms)), errc::timed_out);
      pass_time(10s);
    }
  };
  const auto is_spoken_to = [](auto& hears) {
    int heard = 0;
    while (!hears(1ms).empty()) ++heard;
    EXPECT_GE(heard, 3 * minutes - 1);
    EXPECT_LE(heard, 3 * minutes + 1);
  };
  auto far = udp_net::session::open(any_port);
  stranger client(far->port());
  std::uint64_t word = 0;
  {
    const joined_thread tells([&](const std::stop_token& stop) { (void)far->receive(ample_time, stop); });
    word = client.word();
  }
  client.say(word, describe_of(tp::reference{{1, 2}, 0, 0}).bytes());
  (void)far->receive(50ms);
  while (!client.hear(1ms).empty()) {
    // the answer
  }
  waits(*far);
  const auto client_hears = [&](std::chrono::milliseconds time) { return client.hear(time); };
  is_spoken_to(client_hears);

  auto door = *tp::udp_link::open(any_port);
  auto near = udp_net::session::connect(local(door.port()));
  waits(*near);
  const auto door_hears = [&](std::chrono::milliseconds time) {
    alignas(8) std::byte memory[9000];
    tp::udp_address from;
    (void)door.wait(true, false, time);
    const auto io = door.receive(memory, from);
    return byte_vector(io.status == tp::io_status::ok ? io.bytes : 0);
  };
  is_spoken_to(door_hears);
}

TEST(UdpSession, Both_ends_know_within_a_minute_that_nobody_is_there_any_more) {
  const auto knows = [](auto& waits) {
    EXPECT_EQ(code_of(waits.receive(1ms)), errc::timed_out);
    for (auto waited = 0s; waited < 55s; waited += 5s) {
      pass_time(5s);
      if (code_of(waits.receive(1ms)) == errc::connection_lost) return true;
    }
    return false;
  };
  for (const std::string_view address : {any_port, std::string_view(":0")}) {
    for (const bool opened_goes : {true, false}) {
      std::optional far(std::move(*udp_net::session::open(address)));
      std::optional near(std::move(*udp_net::session::connect(local(far->port()))));
      {
        const joined_thread hears([&](const std::stop_token& stop) {
          EXPECT_TRUE(succeeded(far->receive(ample_time)));
          (void)far->serve([](const auto&) { return false; }, ample_time, stop);
        });
        EXPECT_TRUE(succeeded(near->send(1, {}, {}, ample_time)));
      }
      if (opened_goes) {
        far.reset();
        EXPECT_TRUE(knows(*near));
      } else {
        near.reset();
        EXPECT_TRUE(knows(*far)) << address;
      }
    }
  }
}

// The first proved address had the only seat for ever.
TEST(UdpSession, An_address_without_a_frame_that_counts_takes_no_seat) {
  std::array<std::byte, 1088> piece{};  // the first of a message whose rest never comes
  tp::detail::piece_prefix::write({tp::frame_kind::piece, 5, 0, 0, 5000, 1008},
                                  std::span(piece).first<tp::detail::piece_prefix::bytes>());
  const frame guess = describe_of(tp::reference{{1, 2}, 0, 0});
  const std::array<std::byte, 1> rubbish{std::byte{7}};
  for (const const_byte_span frames : {const_byte_span(rubbish), guess.bytes(), const_byte_span(piece)}) {
    auto far = udp_net::session::open(any_port);
    const auto port = far->port();
    joined_thread server([&] {
      const auto m = far->receive(10s);
      ASSERT_TRUE(succeeded(m));
      EXPECT_EQ(m->kind, 5u);
      (void)far->serve([](const auto&) { return false; }, 300ms);  // so that the other end hears that it has come
    });
    stranger s(port);
    s.say(s.word(), frames);
    s.say(0, std::array<std::byte, 16>{});
    while (s.hear().size() > tp::cookie_bytes) {
      // the door tells its word once more when it has taken what was sent before
    }
    auto near = udp_net::session::connect(local(port));
    EXPECT_TRUE(succeeded(near->send(5, {}, {}, 5s))) << frames.size();
  }
}

TEST(UdpSession, A_peer_that_takes_all_buffers_does_not_hold_a_sender_for_ever) {
  using net = tp::pipeline<tp::raw_tensors<large>, fit, tp::udp>;
  auto far = net::session::open(any_port);
  const auto source = random_model<large>(1);
  const auto ref = *far->add_tensors(*source);
  stranger s(far->port());
  const auto once = [&](int steps) { (void)far->serve([&](const auto&) { return --steps < 0; }, 1s); };
  s.say(0, std::array<std::byte, 16>{});
  once(2);
  const auto answer = s.hear();
  ASSERT_EQ(answer.size(), tp::cookie_bytes);
  const auto word = tp::cookie_in(answer);
  s.say(word, describe_of(ref).bytes());
  once(2);
  std::array<std::byte, 1088> begun{};  // the first piece of a message, which takes one of the two buffers
  tp::detail::piece_prefix::write({tp::frame_kind::piece, 5, 0, 0, 5000, 1008},
                                  std::span(begun).first<tp::detail::piece_prefix::bytes>());
  s.say(word, begun);
  const std::string_view name = "w";
  tp::frame locate;  // whose digest takes a while: the other one
  locate.kind = tp::frame_kind::locate;
  locate.id = 2;
  locate.ref = ref.id;
  locate.names = std::span(&name, 1);
  s.say(word, encode(locate).bytes());
  once(1);
  EXPECT_EQ(code_of(far->send(1, {}, {}, 500ms)), errc::timed_out) << "nobody takes it";
}

TEST(UdpSession, Messages_that_nobody_reads_do_not_block_a_pull) {
  auto far = udp_net::session::open(any_port);
  auto near = udp_net::session::connect(local(far->port()));
  const auto source = random_model<mlp>(1), mine = blank<mlp>();
  const auto ref = *far->add_tensors(*source, {.recipients = 1});
  joined_thread other([&] {
    EXPECT_TRUE(far->receive(10s));
    const byte_vector longest(64 * 1024);
    for (std::uint32_t kind = 1; kind <= 4; ++kind) EXPECT_TRUE(far->send(kind, {}, longest, 60s));
  });
  EXPECT_TRUE(near->send(1, {}, {}, 10s));
  EXPECT_EQ(code_of(near->serve([](const auto&) { return false; }, 500ms)), errc::timed_out);
  const auto done = near->download_tensors(ref, *mine);
  EXPECT_TRUE(succeeded(done));
  EXPECT_TRUE(same(*mine, *source));
  for (std::uint32_t kind = 1; kind <= 4; ++kind) {
    const auto got = near->receive(10s);
    ASSERT_TRUE(succeeded(got));
    EXPECT_EQ(got->kind, kind);
  }
  (void)near->serve([](const auto&) { return false; }, 300ms);  // so that the other end hears that it has come
  other.join();
}

}  // namespace udp_session_test
