// The line of small machines: the same frames as the links of hosts have, in place; steps; and what noise does to a
// pull.
#include "embedded/small_pair.hpp"

#include <tensorpull/embedded/line.hpp>
#include <tensorpull/embedded/owner.hpp>
#include <tensorpull/links/serial/serial_link.hpp>

#include <deque>

namespace line_test {

using namespace test;
using bytes = byte_vector;

static_assert(tp::crc32c_small::of({}) == tp::crc32c_fast::of({}));
static_assert([] {
  std::array<std::byte, 40> text{};
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::byte>(7 * i * i + 200);
  for (std::size_t n = 0; n < text.size(); ++n)
    if (tp::crc32c_small::of({text.data(), n}, 5) != tp::crc32c_fast::of({text.data(), n}, 5)) return false;
  return true;
}());

/// Two directions of a wire. Each takes `most` bytes in a call.
struct wire {
  std::deque<std::byte> to_small, to_host;
  std::size_t most = 1'000'000;
};
struct end_of_wire {
  std::deque<std::byte>* in;
  std::deque<std::byte>* out;
  const std::size_t* most;
  tp::io_result read(byte_span memory) noexcept {
    std::size_t n = 0;
    while (n < memory.size() && n < *most && !in->empty()) memory[n++] = in->front(), in->pop_front();
    return {n > 0 ? tp::io_status::ok : tp::io_status::would_block, 0, n};
  }
  tp::io_result write(const_byte_span b) noexcept {
    const std::size_t n = std::min(b.size(), *most);
    out->insert(out->end(), b.begin(), b.begin() + static_cast<std::ptrdiff_t>(n));
    return {n > 0 ? tp::io_status::ok : tp::io_status::would_block, 0, n};
  }
  tp::io_ready wait(bool, bool, std::chrono::milliseconds) noexcept { return {}; }
};
static_assert(tp::byte_device<end_of_wire> && tp::embedded_device<end_of_wire>);

/// An embedded line and the link of a host at the ends of a wire.
struct both_ends {
  wire between;
  end_of_wire small_end{&between.to_small, &between.to_host, &between.most};
  tp::embedded_line<end_of_wire, 592, 700> line{small_end};
  tp::serial_link<end_of_wire, 700> host{end_of_wire{&between.to_host, &between.to_small, &between.most}};
  void send(const_byte_span d) {
    const auto room = line.room();
    ASSERT_EQ(room.size(), 700u);
    std::copy(d.begin(), d.end(), room.begin());
    line.send(d.size());
  }
  bytes at_host() {
    bytes d(800);
    tp::only_peer from;
    d.resize(host.receive(d, from).bytes);
    return d;
  }
  bytes at_small() {
    const auto d = line.receive();
    return {d.begin(), d.end()};
  }
};

bytes some(generator& random, std::size_t n) {
  bytes d(n);
  random.fill(d);
  const auto kind = random() % 4;
  for (auto& b : d)
    if (kind == 0 || (kind == 1 && random() % 2 == 0)) b = std::byte{0};
    else if (kind == 2 && b == std::byte{0}) b = std::byte{1};
  return d;
}

TEST(EmbeddedLine, Datagrams_of_every_length_pass_in_both_directions) {
  generator random(3);
  for (const std::size_t most : {std::size_t{1'000'000}, std::size_t{1}, std::size_t{13}}) {
    both_ends e;
    e.between.most = most;
    for (std::size_t n = 1; n <= 700; n += n < 300 ? 1 : 7) {
      const bytes d = some(random, n);
      e.send(d);
      while (!e.line.idle()) {
      }
      bytes came;
      for (int i = 0; i < 2'000 && came.empty(); ++i) came = e.at_host();
      ASSERT_EQ(came, d) << n;
      if (n > 592) continue;
      const std::array<const_byte_span, 2> parts{std::span(d).first(n / 2), std::span(d).subspan(n / 2)};
      while (e.host.send(parts, {}).status == tp::io_status::would_block) (void)e.host.wait(false, true, {});
      came.clear();
      for (int i = 0; i < 2'000 && came.empty(); ++i) (void)e.host.wait(false, true, {}), came = e.at_small();
      ASSERT_EQ(came, d) << n;
    }
  }
}
TEST(EmbeddedLine, While_the_device_takes_nothing_there_is_no_room) {
  both_ends e;
  e.between.most = 0;
  e.send(bytes(80, std::byte{1}));
  EXPECT_FALSE(e.line.idle());
  EXPECT_TRUE(e.line.room().empty());
  e.between.most = 1'000;
  EXPECT_FALSE(e.line.room().empty());
  EXPECT_EQ(e.at_host(), bytes(80, std::byte{1}));
  e.line.send(0);
  e.line.send(701);
  EXPECT_TRUE(e.between.to_host.empty());
}
TEST(EmbeddedLine, Behind_any_noise_it_is_in_step_again_with_the_next_frame_but_one) {
  generator random(9);
  both_ends e;
  for (int round = 0; round < 400; ++round) {
    for (std::size_t n = random() % 1'500; n > 0; --n)
      e.between.to_small.push_back(static_cast<std::byte>(random() % (round % 2 == 0 ? 256 : 4)));
    const bytes first = some(random, 592), second = some(random, 80);
    for (const bytes* d : {&first, &second}) {
      const std::array<const_byte_span, 1> all{*d};
      ASSERT_EQ(e.host.send(all, {}).status, tp::io_status::ok);
    }
    bytes last;
    while (!e.between.to_small.empty())
      if (bytes came = e.at_small(); !came.empty()) {
        ASSERT_TRUE(came == first || came == second) << "noise is no datagram";
        last = came;
      }
    ASSERT_EQ(last, second);
  }
}
TEST(EmbeddedLine, It_holds_one_datagram_that_comes_and_one_frame_that_goes) {
  // here with pointers of 8 bytes
  EXPECT_LE(sizeof(tp::embedded_line<end_of_wire, 592, 80>) + sizeof(landed_net<512>::recipient), 512 + 1'024);
  EXPECT_LE(sizeof(tp::embedded_line<end_of_wire, 592, 80>), 592 + 4 + tp::cobs_frame_bytes(80) + 8 * sizeof(void*));
}

/// A pull over the wire; the host is an endpoint behind its serial_link, in virtual time.
struct pulled_over_a_line {
  template <class Spoil>
  tp::result<tp::receipt> pull(Spoil spoil, std::uint64_t seed) {
    tp::no_transfer idle;
    datagram_party<> left(seed, 640);
    left.publish(source, {1, 2}, 1);
    wire between;
    end_of_wire small_end{&between.to_small, &between.to_host, &between.most};
    tp::embedded_line<end_of_wire, 592, 80> line(small_end);
    tp::serial_link<end_of_wire, 640> host(end_of_wire{&between.to_host, &between.to_small, &between.most});
    landed_net<> small(of, seed * 0x9e37'79b9'7f4a'7c15);
    std::uint32_t now = 0;
    const auto result = tp::pull(line, small.recipient, [&] {
      const std::chrono::milliseconds time(1'000 + ++now);
      spoil(between.to_host);
      left.references.advance(time);
      std::array<std::uint64_t, 100> memory;
      const auto room = std::as_writable_bytes(std::span(memory));
      tp::only_peer from;
      for (tp::io_result io = host.receive(room, from); io.status == tp::io_status::ok; io = host.receive(room, from))
        (void)left.end->received(idle, room.first(io.bytes), time);
      for (tp::datagram_plan plan;;) {
        left.end->plan_datagram(idle, plan, left.room(), time);
        if (plan.bytes == 0) break;
        const bool sent = host.send(std::span(plan.spans).first(plan.span_count), {}).status == tp::io_status::ok;
        left.end->sent(idle, plan, sent);
        if (!sent) break;
      }
      spoil(between.to_small);
      return now;
    });
    EXPECT_TRUE(small.guards_intact());
    if (result) {
      EXPECT_EQ(data_of(small.target), data_of(source));
    }
    ticks = now;
    return result;
  }
  model source = fill(list_of<net>(), 6);
  tp::embedded_pull of = net_pull;
  std::uint32_t ticks = 0;
};

TEST(EmbeddedLine, A_pull_over_a_clean_line_needs_no_time_out) {
  pulled_over_a_line p;
  const auto done = p.pull([](auto&) {}, 1);
  ASSERT_TRUE(done);
  EXPECT_TRUE(done->confirmed);
  EXPECT_LT(p.ticks, net_pull.retry_ms);
}
TEST(EmbeddedLine, A_line_that_flips_loses_and_inserts_costs_time_and_nothing_else) {
  std::uint64_t spoilt = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    pulled_over_a_line p;
    p.of.timeout_ms = 60'000;
    generator random(seed);
    const std::uint64_t rate = seed % 2 == 0 ? 300 : 1'000;
    const auto done = p.pull(
        [&](std::deque<std::byte>& d) {
          for (std::size_t i = 0; i < d.size(); ++i) {
            if (random() % rate != 0) continue;
            ++spoilt;
            const auto how = random() % 3;
            if (how == 0) d[i] ^= static_cast<std::byte>(1 << random() % 8);
            else if (how == 1) d.erase(d.begin() + static_cast<std::ptrdiff_t>(i));
            else d.insert(d.begin() + static_cast<std::ptrdiff_t>(i), static_cast<std::byte>(random()));
          }
        },
        seed);
    ASSERT_TRUE(confirmed(done));
  }
  EXPECT_GT(spoilt, 20u);
}
TEST(EmbeddedLine, A_line_of_nothing_but_noise_times_out_by_name_and_goes_on_behind_it) {
  pulled_over_a_line p;
  generator random(8);
  const auto all = p.pull(
      [&](std::deque<std::byte>& d) {
        d.clear();
        for (std::size_t n = random() % 100; n > 0; --n) d.push_back(static_cast<std::byte>(random()));
      },
      3);
  EXPECT_EQ(code_of(all), errc::timed_out);
  std::uint32_t calls = 0;
  const auto some_time = p.pull(
      [&](std::deque<std::byte>& d) {
        if (++calls > 2 * 1'000) return;  // a second of noise
        d.clear();
        for (std::size_t n = random() % 100; n > 0; --n) d.push_back(static_cast<std::byte>(random()));
      },
      4);
  ASSERT_TRUE(succeeded(some_time));
  EXPECT_LT(p.ticks, 1'000 + 3 * net_pull.retry_ms) << "it goes on within a time-out";
}

/// A UART: it takes as much as its FIFO has room for. What reads the other end of the wire empties the FIFO.
struct uart_with_fifo {
  std::deque<std::byte>* in;
  std::deque<std::byte>* out;
  std::size_t fifo;
  std::size_t written = 0;
  tp::io_result read(byte_span memory) noexcept {
    std::size_t n = 0;
    while (n < memory.size() && !in->empty()) memory[n++] = in->front(), in->pop_front();
    return {n > 0 ? tp::io_status::ok : tp::io_status::would_block, 0, n};
  }
  tp::io_result write(const_byte_span b) noexcept {
    const std::size_t n = std::min(b.size(), fifo - std::min(fifo, out->size()));
    out->insert(out->end(), b.begin(), b.begin() + static_cast<std::ptrdiff_t>(n));
    written += n;
    return {n > 0 ? tp::io_status::ok : tp::io_status::would_block, 0, n};
  }
};
TEST(EmbeddedLine, An_owner_alone_sends_the_rest_of_an_answer_although_nothing_comes) {
  for (const std::size_t fifo : {1u, 16u, 64u, 592u}) {
    SCOPED_TRACE(fifo);
    std::deque<std::byte> up, down;
    uart_with_fifo owner_end{&up, &down, fifo}, recipient_end{&down, &up, 1'000};
    tp::embedded_line<uart_with_fifo, 80, 592> owner_line(owner_end);
    tp::embedded_line<uart_with_fifo, 592, 80> recipient_line(recipient_end);
    auto source = std::make_unique<net>();
    tp::embedded_image<net>::write(*source, 0, data_of(fill(list_of<net>(), 6)));
    tp::embedded_owner<net, 512> owner;
    owner.publish(*source, {1, 2}, 77);
    tp::embedded_pull of = net_pull;
    of.retry_ms = 2'000;  // no request is repeated, so nothing but the rest of an answer can go on
    landed_net<> small(of);
    tp::no_role none;
    std::uint32_t now = 0;
    for (; now < 20'000 && !(small.recipient.ended() && owner_line.idle()); ++now) {
      (void)tp::step(recipient_line, small.recipient, none, now);
      (void)tp::step(owner_line, none, owner, now);
    }
    ASSERT_TRUE(small.recipient.ended());
    const auto done = small.recipient.outcome();
    ASSERT_TRUE(confirmed(done));
    EXPECT_EQ(owner.state(), tp::recipient_state::completed);
    EXPECT_EQ(data_of(small.target), data_of(*source));
    EXPECT_LE(now, owner_end.written / fifo + 3 * (done->chunks + 2)) << "each step fills the FIFO";
  }
}

/// Whatever the devices take and give in a call, between 1 and 16 bytes, each end completes what it pulls and serves
/// what it owns: one that only owns, one that only pulls, and two that do both.
TEST(EmbeddedLine, From_seeds_every_kind_of_end_goes_on_over_devices_that_take_1_to_16_bytes) {
  for (std::uint64_t seed = 1; seed <= 100 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    generator dice(seed);
    const bool both = dice() % 2 == 0;
    std::deque<std::byte> up, down;
    uart_with_fifo a{&up, &down, 1 + dice() % 16}, b{&down, &up, 1 + dice() % 16};
    tp::embedded_line<uart_with_fifo, 592, 592> at_a(a), at_b(b);
    const auto first = std::make_unique<net>(), second = std::make_unique<net>();
    tp::embedded_image<net>::write(*first, 0, data_of(fill(list_of<net>(), seed)));
    tp::embedded_image<net>::write(*second, 0, data_of(fill(list_of<net>(), seed + 1'000)));
    tp::embedded_owner<net, 512> owner, other_owner;
    owner.publish(*first, {1, 2}, dice());
    other_owner.publish(*second, {1, 2}, dice());
    tp::embedded_pull of = net_pull;
    of.retry_ms = both ? 2'000 : 1'000'000;  // a request that comes while its line is busy is lost
    landed_net<> of_first(of), of_second(of);
    tp::no_role none;
    const auto ended = [&] {
      return of_first.recipient.ended() && at_a.idle() && (!both || (of_second.recipient.ended() && at_b.idle()));
    };
    for (std::uint32_t now = 0; now < 500'000 && !ended(); ++now) {
      if (both) {
        (void)tp::step(at_a, of_second.recipient, owner, now);
        (void)tp::step(at_b, of_first.recipient, other_owner, now);
      } else {
        (void)tp::step(at_a, none, owner, now);
        (void)tp::step(at_b, of_first.recipient, none, now);
      }
    }
    ASSERT_TRUE(ended()) << a.fifo << " and " << b.fifo << (both ? " bytes, both roles" : " bytes");
    const auto expect = [](auto& pulled, const net& source) {
      const auto done = pulled.recipient.outcome();
      EXPECT_TRUE(succeeded(done));
      EXPECT_TRUE(data_of(pulled.target) == data_of(source));
    };
    expect(of_first, *first);
    if (both) expect(of_second, *second);
  }
}

}  // namespace line_test
