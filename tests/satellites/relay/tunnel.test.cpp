// A middle party that passes the bytes of two connections on to each other, whatever they are, over TCP.
#include "support/allocation_counter.hpp"
#include "support/clocks.hpp"

#include "transports/network.hpp"

#include <tensorpull/satellites/relay/tunnel.hpp>
#include <tensorpull/transports/over/tcp/tcp_connect.hpp>
#include <tensorpull/transports/over/tcp/tcp_listener.hpp>

#include <optional>
#include <random>
#include <stop_token>

namespace tunnel_test {

using namespace test;
using net = raw_net<mlp, tp::tcp>;
using bytes = std::vector<std::byte>;

/// Two ends, and a tunnel between them on a thread of its own.
class between {
 public:
  explicit between(const tp::tunnel_options& options = {}, std::size_t memory = 16'384)
      : listener_(std::move(*tp::tcp_listener::open(any_port))), first(dial()), near_(accepted()), second(dial()),
        far_(accepted()), thread_([this, options, memory] {
          bytes room(memory);
          outcome.emplace(tp::tunnel(*near_, *far_, room, options));
          near_.reset();
          far_.reset();
        }) {}
  ~between() {
    first.reset();
    second.reset();
  }
  tp::result<tp::tunnelled> ended() {
    thread_.join();
    return *outcome;
  }

 private:
  std::optional<tp::posix_stream> dial() {
    return std::move(*tp::tcp_connect(local(listener_.port()), steady_clock::now() + 10s));
  }
  std::optional<tp::posix_stream> accepted() { return std::move(*listener_.accept(10s)); }
  tp::tcp_listener listener_;

 public:
  std::optional<tp::posix_stream> first;
  std::optional<tp::result<tp::tunnelled>> outcome;

 private:
  std::optional<tp::posix_stream> near_;

 public:
  std::optional<tp::posix_stream> second;

 private:
  std::optional<tp::posix_stream> far_;
  joined_thread thread_;
};

bytes random_bytes(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  bytes all(n);
  for (auto& b : all) b = static_cast<std::byte>(random());
  return all;
}
void send_all(tp::posix_stream& to, std::span<const std::byte> all) {
  while (!all.empty()) {
    const std::array<std::span<const std::byte>, 1> out{all};
    const auto io = to.write_some(out);
    ASSERT_FALSE(tp::is_end(io.status));
    all = all.subspan(io.bytes);
    if (io.bytes == 0) to.wait(false, true, 100ms);
  }
}
/// What arrives until there are `n` bytes, or the end.
bytes receive(tp::posix_stream& from, std::size_t n) {
  bytes all;
  std::array<std::byte, 4096> some;
  while (all.size() < n) {
    const std::array<std::span<std::byte>, 1> in{std::span(some)};
    const auto io = from.read_some(in);
    all.insert(all.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(io.bytes));
    if (tp::is_end(io.status)) break;
    if (io.bytes == 0) from.wait(true, false, 100ms);
  }
  return all;
}

TEST(Tunnel, All_bytes_of_both_directions_arrive_in_order) {
  between t;
  const bytes there = random_bytes(1'000'003, 1), back = random_bytes(300'007, 2);
  joined_thread a([&] { send_all(*t.first, there); }), b([&] { send_all(*t.second, back); });
  bytes got_back;
  joined_thread c([&] { got_back = receive(*t.first, back.size()); });
  EXPECT_EQ(receive(*t.second, there.size()), there);
  a.join(), b.join(), c.join();
  EXPECT_EQ(got_back, back);
  t.second.reset();
  const auto passed = t.ended();
  ASSERT_TRUE(passed) << to_string(passed.error().code);
  EXPECT_EQ(passed->forth, there.size());
  EXPECT_EQ(passed->back, back.size());
}

TEST(Tunnel, What_an_end_has_sent_before_it_hangs_up_still_leaves) {
  for (const bool first : {true, false}) {
    between t({}, 64);
    auto &from = first ? t.first : t.second, &to = first ? t.second : t.first;
    const bytes last = random_bytes(50'000, 3);
    send_all(*from, last);
    from.reset();
    EXPECT_EQ(receive(*to, last.size() + 1), last) << "and then the end";
    EXPECT_TRUE(t.ended());
  }
}

TEST(Tunnel, A_pull_and_its_confirmation_pass) {
  const auto model = random_model<mlp>(7);
  between t;
  joined_thread owner([&] {
    auto s = net::session::over(std::move(*t.first));
    const auto ref = s->add_tensors(*model, {.recipients = 1});
    ASSERT_TRUE(s->receive(10s));
    ASSERT_TRUE(s->send(1, std::span(&*ref, 1), {}));
    EXPECT_TRUE(s->serve(tp::until_settled(*ref), 10s));
    EXPECT_EQ(s->status_of(*ref)->completed, 1u);
  });
  auto s = net::session::over(std::move(*t.second));
  ASSERT_TRUE(s->send(1, {}, {}));
  const auto message = s->receive(10s);
  ASSERT_TRUE(message);
  const auto mine = blank<mlp>();
  const auto done = s->download_tensors(message->references[0], *mine);
  ASSERT_TRUE(done) << to_string(done.error().code);
  EXPECT_EQ(done->outcome, tp::outcome::completed);
  EXPECT_TRUE(same(*mine, *model));
}

TEST(Tunnel, It_ends_by_time_if_nothing_moves) {
  between t({.idle_timeout = 200ms});
  send_all(*t.first, random_bytes(10, 4));
  EXPECT_EQ(receive(*t.second, 10).size(), 10u);
  const auto passed = t.ended();
  ASSERT_FALSE(passed);
  EXPECT_EQ(passed.error().code, tp::errc::timed_out);
  EXPECT_EQ(passed.error().at, 10u);
}

TEST(Tunnel, It_ends_when_it_is_told) {
  std::stop_source stop;
  between t({.stop = stop.get_token()});
  stop.request_stop();
  EXPECT_EQ(t.ended().error().code, tp::errc::cancelled);
}

TEST(Tunnel, No_more_leaves_in_a_second_than_the_rate_says) {
  between t({.bytes_per_second = 400'000});
  const bytes there = random_bytes(800'000, 5), back = random_bytes(800'000, 6);
  const auto began = steady_clock::now();
  joined_thread a([&] { send_all(*t.first, there); }), b([&] { send_all(*t.second, back); });
  bytes got_back;
  joined_thread c([&] { got_back = receive(*t.first, back.size()); });
  EXPECT_EQ(receive(*t.second, there.size()), there);
  EXPECT_GE(steady_clock::now() - began, 900ms);
  c.join();
  EXPECT_EQ(got_back, back);
}

TEST(Tunnel, It_allocates_nothing) {
  bytes room(4096);
  auto listener = tp::tcp_listener::open(any_port);
  auto a = tp::tcp_connect(local(listener->port()), steady_clock::now() + 10s);
  auto near = listener->accept(10s);
  auto b = tp::tcp_connect(local(listener->port()), steady_clock::now() + 10s);
  auto far = listener->accept(10s);
  send_all(*a, random_bytes(100, 8));
  a = tp::failure(tp::errc::cancelled);
  const auto before = allocations_so_far();
  const auto passed = tp::tunnel(*near, *far, room);
  EXPECT_EQ(allocations_so_far(), before);
  ASSERT_TRUE(passed);
  EXPECT_EQ(passed->forth, 100u);
}

TEST(Tunnel, Memory_for_less_than_a_byte_each_way_is_refused) {
  between t({}, 3);
  EXPECT_EQ(t.ended().error().code, tp::errc::invalid_argument);
}

}  // namespace tunnel_test
