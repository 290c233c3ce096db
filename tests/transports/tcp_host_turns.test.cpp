// A connection of a host moves a bounded amount each time that it has its turn. What its last read made it say must not
// wait for more to read.
#include "four_answers.hpp"

namespace tcp_host_turns_test {

using namespace test;
using net = raw_net<tiny, tp::tcp>;

/// Takes so many bytes a read, so that a pull takes a number of reads that a test can choose.
struct small_bites : tp::land {
  std::uint64_t most;
  small_bites(tiny& m, std::uint64_t bytes) : tp::land(tp::raw_tensors<tiny>::destination(m)), most(bytes) {}
  tp::prepared prepare(std::uint64_t offset, std::uint64_t length, std::span<byte_span> out) noexcept {
    return tp::land::prepare(offset, std::min(length, most), out);
  }
};

struct puller {
  tiny* to = nullptr;
  std::uint64_t bytes = 0;
  std::optional<tp::result<tp::receipt>> outcome;
  template <class C> void connected(C&) {}
  template <class C> void message(C& c, const tp::message& m) {
    ASSERT_EQ(m.references.size(), 1u);
    EXPECT_TRUE(c.pull(m.references[0], {}, *to, bytes));
  }
  template <class C> void pulled(C& c, const tp::result<tp::receipt>& r) { outcome = r, c.close(); }
  template <class C> void closed(C&, const tp::error&) {}
};

// A participant calls, and its update is pulled over the same connection, which has never waited to write.
TEST(TcpHostTurns, A_pull_whose_last_bytes_end_a_turn_confirms_at_once) {
  const auto source = random_model<tiny>(1);
  const std::uint64_t image = tp::raw_tensors<tiny>::schema().image_bytes;
  std::vector<std::uint64_t> reads;
  for (std::uint64_t bytes = 8; bytes <= 200; ++bytes) {  // 60 to 3 reads: every length of a turn is among them
    if (!reads.empty() && reads.back() == (image + bytes - 1) / bytes) continue;
    reads.push_back((image + bytes - 1) / bytes);
    const auto mine = blank<tiny>();
    puller handler{mine.get(), bytes, {}};
    tp::event_loop io;
    net::host<puller, small_bites> host(io, handler);
    const auto port = host.listen(any_port);
    ASSERT_TRUE(port);
    joined_thread participant([&](const std::stop_token& stop) {
      auto session = *net::session::connect(local(*port));
      const auto ref = *session.add_tensors(*source, {.recipients = 1});
      (void)session.send(1, {&ref, 1}, {});  // the pull may be over, and the connection closed, before it returns
      (void)session.serve([&](const auto& s) { return s.settled(ref); }, 60s, stop);
    });
    const auto end = steady_clock::now() + 60s;
    while (!handler.outcome && steady_clock::now() < end) io.run_one_for(10ms);
    ASSERT_TRUE(handler.outcome) << "nothing was said any more after about " << reads.back() << " reads";
    ASSERT_TRUE(*handler.outcome) << to_string(handler.outcome->error().code);
    EXPECT_TRUE(same(*mine, *source));
  }
  EXPECT_GT(reads.size(), 20u);
}

// So that the recipient works on it while the rest is collected.
TEST(TcpHostTurns, Of_several_answers_the_first_goes_alone) {
  const auto source = random_model<tiny>(1);
  tp::event_loop io;
  tp::detail::silent_handler handler;
  net::host<tp::detail::silent_handler, tp::no_consumer> host(io, handler);
  const auto port = host.listen(any_port);
  ASSERT_TRUE(port);
  const auto ref = *host.published().add_tensors(*source);
  raw_peer peer(*port);
  if (!segments_received(peer)) GTEST_SKIP() << "this kernel does not count them";
  EXPECT_EQ(segments_of_four_answers(peer, ref.id, [&] { io.run_for(50ms); }), 2u);
}

}  // namespace tcp_host_turns_test
