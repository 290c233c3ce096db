// Sessions over UDP: both ends own, pull and send messages over one socket each.
#include "udp_network.hpp"

#include <stop_token>

namespace {

using namespace test;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST(UdpSession, both_ends_own_pull_and_talk) {
  auto far = udp_net::session::open("127.0.0.1:0");
  ASSERT_TRUE(far) << describe(far.error());
  const auto port = far->port();
  const auto there = random_model<mlp>(1), here = random_model<mlp>(2);
  const auto got_there = blank<mlp>(), got_here = blank<mlp>();
  const auto ref_there = *far->add_tensors(*there, {.recipients = 1});
  std::thread other([&] {
    const auto task = far->receive(10s);
    ASSERT_TRUE(task) << describe(task.error());
    EXPECT_EQ(task->kind, 5u);
    ASSERT_EQ(task->references.size(), 1u);
    const tp::reference wanted = task->references[0];
    ASSERT_TRUE(far->download_tensors(wanted, *got_there));
    const std::array references{ref_there};
    EXPECT_TRUE(far->send(6, references, bytes_of("yours"), 10s));
    EXPECT_TRUE(far->serve(tp::until_settled(ref_there), 10s));
  });
  auto near = udp_net::session::connect(local(port));
  ASSERT_TRUE(near);
  const auto ref_here = *near->add_tensors(*here, {.recipients = 1});
  const std::array references{ref_here};
  EXPECT_TRUE(near->send(5, references, bytes_of("mine"), 10s));
  const auto answer = near->receive(10s);
  ASSERT_TRUE(answer) << describe(answer.error());
  EXPECT_EQ(answer->kind, 6u);
  EXPECT_EQ(answer->body.size(), 5u);
  const tp::reference wanted = answer->references[0];
  ASSERT_TRUE(near->download_tensors(wanted, *got_here));
  other.join();
  EXPECT_TRUE(near->settled(ref_here));
  EXPECT_TRUE(same(*got_here, *there));
  EXPECT_TRUE(same(*got_there, *here));
}

TEST(UdpSession, pulls_from_an_owner_of_many_again_and_again) {
  auto owner = udp_net::downloader::open();
  const auto source = random_model<mlp>(3);
  const auto ref = *owner->add_tensors(*source);
  serving server(*owner);
  auto session = udp_net::session::connect(local(owner->port()));
  for (int i = 0; i < 5; ++i) {
    const auto mine = blank<mlp>();
    const auto done = session->download_tensors(ref, *mine);
    ASSERT_TRUE(done) << describe(done.error());
    EXPECT_TRUE(same(*mine, *source));
  }
  server.stop();
  EXPECT_EQ(owner->peers(), 1u);
}

TEST(UdpSession, the_longest_messages_arrive_whole_and_once_through_loss) {
  using net = tp::pipeline<tp::raw_tensors<mlp>, fit, troubled_udp>;
  troubled_udp::faults = {.lost = 30, .doubled = 50, .overtaken = 50};
  auto far = net::session::open("127.0.0.1:0");
  ASSERT_TRUE(far);
  auto near = net::session::connect(local(far->port()));
  std::vector<std::byte> body(64 * 1024);
  generator(1).fill(body);
  std::thread other([&] {
    for (std::uint32_t i = 0; i < 3; ++i) EXPECT_TRUE(near->send(i, {}, std::span(body).first(body.size() - i), 60s));
    (void)near->serve([](const auto&) { return false; }, 300ms);
  });
  for (std::uint32_t i = 0; i < 3; ++i) {
    const auto m = far->receive(60s);
    ASSERT_TRUE(m) << describe(m.error());
    EXPECT_EQ(m->kind, i);
    ASSERT_EQ(m->body.size(), body.size() - i);
    EXPECT_EQ(std::memcmp(m->body.data(), body.data(), m->body.size()), 0);
  }
  EXPECT_EQ(far->receive(200ms).error().code, tp::errc::timed_out);
  other.join();
}

TEST(UdpSession, a_called_session_listens_to_nobody_else) {
  auto far = udp_net::session::open("127.0.0.1:0");
  const auto port = far->port();
  std::thread serving_thread(
      [&] { (void)far->serve([](const auto& s) { return static_cast<void>(s), false; }, 1500ms); });
  auto near = udp_net::session::connect(local(port));
  ASSERT_TRUE(near->send(1, {}, {}, 5s));
  stranger s(port);
  const auto word = s.word();
  ASSERT_NE(word, 0u);
  s.say(word, describe_of(tp::reference{{1, 2}, 0, 0}).bytes());
  EXPECT_TRUE(s.hear(300ms).empty());
  serving_thread.join();
}

TEST(UdpSession, a_peer_that_takes_all_buffers_does_not_hold_a_sender_for_ever) {
  using net = tp::pipeline<tp::raw_tensors<large>, fit, tp::udp>;
  auto far = net::session::open("127.0.0.1:0");
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
  EXPECT_EQ(far->send(1, {}, {}, 500ms).error().code, tp::errc::timed_out) << "nobody takes it";
}

TEST(UdpSession, an_abort_ends_every_wait) {
  auto far = udp_net::session::open("127.0.0.1:0");
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(far->receive(60s, stop.get_token()).error().code, tp::errc::cancelled);
  EXPECT_EQ(far->send(1, {}, {}, 60s, stop.get_token()).error().code, tp::errc::cancelled);
  EXPECT_EQ(far->serve([](const auto&) { return false; }, 60s, stop.get_token()).error().code, tp::errc::cancelled);
  const auto mine = blank<mlp>();
  EXPECT_EQ(far->download_tensors(tp::reference{{1, 2}, 0, 0}, *mine, {.stop = stop.get_token()}).error().code,
            tp::errc::cancelled);
}

}  // namespace
