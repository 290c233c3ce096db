// A machine that pulls and is pulled from over one line at once beside a host; line.test.cpp has two small machines.
#include "support/embedded_link.hpp"

#include <tensorpull/embedded/line.hpp>
#include <tensorpull/embedded/recipient.hpp>

#include <deque>

namespace both_roles_test {

using namespace test;
using state = tp::recipient_state;

constexpr tp::ref_id average{5, 5}, update{1, 2};

bool same(const device_model& a, const device_model& b) { return twin_of(a).image_bytes() == twin_of(b).image_bytes(); }

/// A host that pulls the update, in chunks of at most 1,112 bytes.
struct pulling_host : datagram_party<> {
  explicit pulling_host(std::uint64_t seed) : datagram_party<>(seed, 600) {
    t.fits(600);
    end->begin_pull();
  }
  model got = model_on_a_host();
  tp::land to{got.destination()};
  tp::datagram_transfer<tp::land, tp::bytes_up_to<1112>, tp::image_digest> t{
      to, {.ref = update, .recipient = {9}}, {}, end->next_id()};
};

TEST(EmbeddedBothRoles, A_host_publishes_and_pulls_over_the_same_lossy_link_at_once) {
  // pulls that were both under way; otherwise the first request of one was lost, and the other was over before it came
  // again
  int at_once = 0;
  for (const double noise : {0.0, 0.05, 0.2})
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      generator dice(seed);
      const device_model global = random_model(seed), mine = random_model(seed + 100);
      const model global_on_host = twin_of(global);
      const auto image = twin_of(mine).image_bytes();

      pulling_host host(seed);
      auto& t = host.t;
      host.publish(global_on_host, average, 1);

      device_model landed{};
      tp::model_landing<device_model> landing(landed);
      tp::embedded_recipient<tp::model_landing<device_model>, 512> recipient(
          landing, {.ref = average, .recipient = {77}, .retry_ms = 50}, dice());
      small_owner<> owner;
      owner.publish(mine, update, dice());

      std::vector<std::pair<datagram, std::size_t>> up, down;
      const auto put = [&](auto& line, const datagram& d, std::size_t n) {
        for (int copies = dice.chance(noise) ? 2 : 1; copies > 0; --copies)
          if (!dice.chance(noise)) line.emplace_back(d, n);
      };
      std::uint32_t now = 1000;
      bool together = false;
      for (; now < 200'000 && !(t.ended() && recipient.ended() && host.end->output_idle()); ++now) {
        for (tp::datagram_plan plan;;) {
          host.end->plan_datagram(t, plan, host.room(), std::chrono::milliseconds(now));
          if (plan.bytes == 0) break;
          const byte_vector bytes = bytes_of(plan);
          host.end->sent(t, plan, true);
          put(up, datagram_of(bytes), bytes.size());
        }
        for (const auto& [d, n] : std::exchange(up, {})) {
          const const_byte_span bytes{reinterpret_cast<const std::byte*>(d.data()), n};
          recipient.received(bytes, now);
          const auto said = answer_of(owner, bytes, now);
          read_answers(said, image);
          if (!said.empty()) put(down, datagram_of(said), said.size());
        }
        datagram ask(20);
        if (const std::size_t n = recipient.next(std::as_writable_bytes(std::span(ask)), now); n > 0) put(down, ask, n);
        for (const auto& [d, n] : std::exchange(down, {}))
          (void)host.end->received(t, {reinterpret_cast<const std::byte*>(d.data()), n},
                                   std::chrono::milliseconds(now));
        host.references.advance(std::chrono::milliseconds(now));
        together = together ||
                   (t.landed_bytes() > 0 && !t.ended() && recipient.landed_bytes() > 0 && !recipient.ended());
      }
      ASSERT_TRUE(t.ended() && recipient.ended())
          << noise << ' ' << seed << ' ' << t.landed_bytes() << ' ' << recipient.landed_bytes();
      at_once += together;
      ASSERT_TRUE(confirmed(t.outcome()));
      EXPECT_EQ(host.got.image_bytes(), image);
      EXPECT_EQ(owner.state(), state::completed);
      ASSERT_TRUE(confirmed(recipient.outcome()));
      EXPECT_TRUE(same(landed, global));
      EXPECT_EQ(host.references.status_of(average)->completed, 1u);
    }
  EXPECT_GE(at_once, 8) << "neither waits for the other";
}

/// A wire that carries eleven bytes in a millisecond each way, as 115,200 baud do, between a large buffer at one end
/// and a queue of 64 bytes that overflows.
struct slow_wire {
  std::deque<std::byte> waiting, there;
  std::size_t most = ~std::size_t{0};
  std::uint64_t lost = 0;
  void pass_a_millisecond() {
    for (int i = 0; i < 11 && !waiting.empty(); ++i) {
      if (there.size() < most) there.push_back(waiting.front());
      else ++lost;
      waiting.pop_front();
    }
  }
};
struct slow_device {
  slow_wire &in, &out;
  std::size_t room;
  tp::io_result read(byte_span to) noexcept {
    tp::io_result r;
    for (; r.bytes < to.size() && !in.there.empty(); ++r.bytes) to[r.bytes] = in.there.front(), in.there.pop_front();
    if (r.bytes == 0) r.status = tp::io_status::would_block;
    return r;
  }
  tp::io_result write(const_byte_span from) noexcept {
    tp::io_result r;
    for (; r.bytes < from.size() && out.waiting.size() < room; ++r.bytes) out.waiting.push_back(from[r.bytes]);
    if (r.bytes == 0) r.status = tp::io_status::would_block;
    return r;
  }
};

TEST(EmbeddedBothRoles, A_host_that_asks_faster_than_the_line_answers_is_served_at_the_speed_of_the_line) {
  for (const std::uint64_t queue : {std::uint64_t{64}, std::uint64_t{1} << 30}) {
    const device_model mine = random_model(3);
    const auto image = twin_of(mine).image_bytes();
    pulling_host host(5);
    auto& t = host.t;
    small_owner<> owner;
    owner.publish(mine, update, 77);
    slow_wire up, down;
    up.most = queue;
    slow_device at_host{down, up, 4096}, at_device{up, down, 64};
    tp::embedded_line<slow_device, 600, 600> host_line(at_host);
    tp::embedded_line<slow_device, 600, 600> line(at_device);
    tp::no_role none;
    std::uint32_t now = 1000, requests = 0;
    for (; now < 100'000 && !(t.ended() && host.end->output_idle()); ++now) {
      for (;;) {
        const auto room = host_line.room();
        if (room.empty()) break;
        tp::datagram_plan plan;
        host.end->plan_datagram(t, plan, host.room(), std::chrono::milliseconds(now));
        if (plan.bytes == 0) break;
        const byte_vector bytes = bytes_of(plan);
        std::memcpy(room.data(), bytes.data(), bytes.size());
        host.end->sent(t, plan, true);
        host_line.send(plan.bytes);
        ++requests;
      }
      (void)host_line.idle();
      while (tp::step(line, none, owner, now)) {
      }
      (void)line.idle();
      up.pass_a_millisecond(), down.pass_a_millisecond();
      alignas(8) std::byte whole[600];
      for (auto d = host_line.receive(); !d.empty(); d = host_line.receive()) {
        std::memcpy(whole, d.data(), d.size());
        (void)host.end->received(t, {whole, d.size()}, std::chrono::milliseconds(now));
      }
    }
    ASSERT_TRUE(t.ended() && t.outcome()) << t.landed_bytes();
    EXPECT_EQ(host.got.image_bytes(), image);
    // milliseconds: each request and its answer, one after the other
    const std::uint64_t ideal = (image.size() + 511) / 512 * (597 + 85) / 11;
    std::printf(
        "queue %llu: %u ms (%llu if nothing is lost), %u requests for %zu chunks, %llu bytes of %zu sent, %llu bytes lost\n",
        static_cast<unsigned long long>(queue), now - 1000, static_cast<unsigned long long>(ideal), requests,
        (image.size() + 511) / 512, static_cast<unsigned long long>(owner.bytes_served()), image.size(),
        static_cast<unsigned long long>(up.lost));
    EXPECT_LT(now - 1000, 2 * ideal);
    EXPECT_LT(owner.bytes_served(), image.size() * 3 / 2);
  }
}

}  // namespace both_roles_test
