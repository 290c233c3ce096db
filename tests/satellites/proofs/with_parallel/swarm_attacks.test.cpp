// Members of a swarm among hostile ones, and owners whose doors tell them anything.
#include "../proved_model.hpp"

#include "../../parallel/swarm_in_hand.hpp"
#include "support/clocks.hpp"
#include "support/own_folder.hpp"
#include "transports/network.hpp"

#include <tensorpull/consumers/any_schema/digest.hpp>
#include <tensorpull/consumers/any_schema/safetensors_file.hpp>
#include <tensorpull/satellites/parallel/swarm/swarm_member.hpp>

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

namespace swarm_attacks_test {

using namespace test;
using namespace test::proved;
using attacked_net = tp::pipeline<tp::tensor_list, tp::fixed_bytes<64_KiB>, tp::tcp>;
constexpr std::uint64_t image = 4 * 1024 * 1024;

swarm::member_entry entry(std::uint64_t number, std::string_view address,
                          swarm::member_state state = swarm::member_state::pulls) {
  return {number, state, *swarm::address_text::of(address)};
}

/// An owner whose door lists whatever the test wants.
class any_door {
  using publisher = std::remove_reference_t<decltype(std::declval<attacked_net::downloader&>().publications())>;
  using parts = tp::detail::swarm::door_parts<attacked_net::parts, tp::tcp, publisher>;
  struct handler {
    any_door& all;
    template <class C> void connected(C&) { ++all.made; }
    template <class C> void pulled(C&, const tp::result<tp::receipt>&) {}
    template <class C> void closed(C&, const tp::error&) {}
    template <class C> void message(C& c, const tp::message& m) {
      if (m.kind != swarm::join_kind) return;
      ++all.asked;
      const std::scoped_lock hold(all.lock_);
      swarm::list l = all.list_;
      std::byte body[swarm::list::most_bytes];
      (void)c.send(swarm::list_kind, m.references, {body, encode(l, body)});
    }
  };

 public:
  explicit any_door(const published& of, std::uint64_t rate = 0) : owner_(*attacked_net::downloader::open({})) {
    of.publish_at(owner_);
    tp::host_options options;
    options.limits.owner_bytes_per_second = rate;
    host_.emplace(owner_.event_loop(), handler_, options, &owner_.publications());
    port_ = *host_->listen(any_port);
    server_.emplace(owner_);
  }
  ~any_door() { server_.reset(); }
  std::string address() const { return local(port_); }
  void list(std::initializer_list<swarm::member_entry> others, std::uint64_t self = 1) {
    const std::scoped_lock hold(lock_);
    list_.number += 1;
    list_.self = self;
    list_.count = 0;
    for (const auto& m : others) list_.others[list_.count++] = m;
  }
  void stop() {
    server_.reset();
    host_.reset();
  }
  /// Until members have asked so often, about ten times a second each.
  void wait_for_questions(unsigned more, const std::stop_token& stop) const {
    for (const unsigned before = asked; asked < before + more && !stop.stop_requested();) look_again_soon();
  }
  std::atomic<unsigned> made{0}, asked{0};

 private:
  attacked_net::downloader owner_;
  std::mutex lock_;
  swarm::list list_{.number = 1, .self = 1};
  handler handler_{*this};
  std::optional<tp::host<parts, handler, tp::no_consumer>> host_;
  std::uint16_t port_ = 0;
  std::optional<serving> server_;
};

/// Others that give the image, or another one under its reference, without a door.
class fellow {
 public:
  explicit fellow(const published& of, const model* with = nullptr)
      : owner_(*attacked_net::downloader::open({.listen = any_port})) {
    tp::publish_options how;
    how.id = of.ref.model.id;
    how.version = of.ref.model.version;
    EXPECT_TRUE(succeeded(owner_.add_image((with != nullptr ? *with : of.now).source(), how)));
    server_.emplace(owner_);
  }
  std::uint16_t port() const { return owner_.port(); }

 private:
  attacked_net::downloader owner_;
  std::optional<serving> server_;
};

byte_vector parts_bytes(const tp::reference& of, const swarm::parts& has) {
  std::byte body[swarm::parts::bytes];
  return message_bytes(swarm::parts_kind, {&of, 1}, {body, encode(has, body)});
}
swarm::parts all_parts(std::uint8_t shift) {
  swarm::parts p{.shift = shift};
  p.proved.fill(0xff);
  return p;
}

/// Carries what a member asks to a fellow, as far as `passes(kind)`, and the answers back. `tells()`: bytes to say
/// besides.
template <class Passes, class Tells>
void carry(raw_peer& client, std::uint16_t to, const std::stop_token& stop, Passes passes, Tells tells) {
  raw_peer owner(to);
  byte_vector got, piece(65536);
  while (!stop.stop_requested()) {
    const auto asked = read_some(client.stream(), piece);
    if (tp::is_end(asked.status)) return;
    got.insert(got.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(asked.bytes));
    for (;;) {
      const auto size = tp::detail::measure_frame(got, 100'000, 16);
      if (!size || !*size || got.size() < **size) break;
      const auto end = got.begin() + static_cast<std::ptrdiff_t>(**size);
      const frame f(byte_vector(got.begin(), end));
      got.erase(got.begin(), end);
      const decoded d(f);
      if (d.outcome && passes(d.m) && !owner.say(f.bytes())) return;
    }
    const auto answered = read_some(owner.stream(), piece);
    if (answered.bytes > 0 && !client.say(std::span(piece).first(answered.bytes))) return;
    if (const byte_vector more = tells(); !more.empty() && !client.say(more)) return;
    if (tp::is_end(answered.status)) return;
    if (asked.bytes + answered.bytes == 0) client.stream().wait(true, false, 1ms);
  }
}

struct end_of_pull {
  std::optional<tp::result<tp::proved_receipt>> done;
  bool right = false;
};
tp::pull_options once() {
  tp::pull_options o;
  o.retry.retries = 0;
  o.per_request_timeout = 20s;
  return o;
}
end_of_pull pull_by(tp::swarm_member<attacked_net>& me, const published& p, const tp::pull_options& how = once()) {
  end_of_pull e;
  model into = bytes_model(data(p.now).size(), 9);
  tp::land to(into.destination());
  e.done = tp::pull_proved<attacked_net>(me, p.ref, to, {}, how);
  e.right = into.image_bytes() == p.now.image_bytes();
  return e;
}

TEST(SwarmAttacks, A_stranger_at_a_member_learns_no_reference) {
  const published p(bytes_model(image, 3));
  any_door door(p);
  auto me = tp::swarm_member<attacked_net>::open("127.0.0.1:0", door.address());
  ASSERT_TRUE(succeeded(me));
  model into = bytes_model(image, 9);
  tp::land to(into.destination());
  raw_peer stranger(me->port());
  const auto done = tp::pull_proved<attacked_net>(*me, p.ref, to);
  ASSERT_TRUE(succeeded(done));
  (void)me->serve(300ms);
  byte_vector piece(4096);
  EXPECT_EQ(read_some(stranger.stream(), piece).bytes, 0u);
}

TEST(SwarmAttacks, A_member_that_tells_of_everything_and_is_silent_does_not_hold_up_a_pull) {
  const published p(bytes_model(image, 3));
  fellow f(p);
  std::atomic<unsigned> pulls{0};
  each_connection silent([&](raw_peer& c, std::size_t, const std::stop_token& stop) {
    bool told = false;
    carry(
        c, f.port(), stop,
        [&](const tp::frame& m) {
          pulls += m.kind == tp::frame_kind::pull;
          return m.kind == tp::frame_kind::describe;
        },
        [&] { return std::exchange(told, true) ? byte_vector() : parts_bytes(p.ref.model, all_parts(16)); });
  });
  any_door door(p, 8'000'000);
  door.list({entry(2, silent.address())});
  auto me = tp::swarm_member<attacked_net>::open("127.0.0.1:0", door.address());
  ASSERT_TRUE(succeeded(me));
  const auto e = pull_by(*me, p);
  EXPECT_TRUE(succeeded(*e.done));
  EXPECT_TRUE(e.right);
}

TEST(SwarmAttacks, A_member_that_always_tells_something_new_does_not_hold_up_a_pull) {
  const published p(bytes_model(image, 3));
  fellow f(p);
  each_connection restless([&](raw_peer& c, std::size_t, const std::stop_token& stop) {
    auto next = steady_clock::now();
    swarm::parts has{.shift = 16};
    unsigned n = 0;
    carry(
        c, f.port(), stop, [&](const tp::frame& m) { return m.kind == tp::frame_kind::describe; },
        [&] {
          if (steady_clock::now() < next) return byte_vector();
          next = steady_clock::now() + 50ms;
          has.proved = {};
          has.add(400 + n++ % 100);
          return parts_bytes(p.ref.model, has);
        });
  });
  any_door door(p, 8'000'000);
  door.list({entry(2, restless.address())});
  auto me = tp::swarm_member<attacked_net>::open("127.0.0.1:0", door.address());
  ASSERT_TRUE(succeeded(me));
  const auto e = pull_by(*me, p);
  EXPECT_TRUE(succeeded(*e.done));
  EXPECT_TRUE(e.right);
}

TEST(SwarmAttacks, The_seat_of_one_that_has_lied_does_not_make_another_a_liar) {
  const published p(bytes_model(2 * image, 3));
  model wrong = bytes_model(2 * image, 3);
  for (auto& b : data(wrong)) b ^= std::byte{1};
  fellow bad(p, &wrong), good(p);
  std::atomic<unsigned> lies{0}, gives{0};
  const auto member_of = [&](std::uint16_t to, std::atomic<unsigned>& pulls) {
    return [&, to](raw_peer& c, std::size_t, const std::stop_token& stop) {
      bool told = false;
      carry(
          c, to, stop,
          [&](const tp::frame& m) {
            pulls += m.kind == tp::frame_kind::pull;
            return true;
          },
          [&] { return std::exchange(told, true) ? byte_vector() : parts_bytes(p.ref.model, all_parts(16)); });
    };
  };
  each_connection liar(member_of(bad.port(), lies)), honest(member_of(good.port(), gives));
  any_door door(p, 2'000'000);
  door.list({entry(2, liar.address())});
  auto me = tp::swarm_member<attacked_net>::open("127.0.0.1:0", door.address());
  ASSERT_TRUE(succeeded(me));
  joined_thread changes([&](const std::stop_token& stop) {
    while (lies == 0 && !stop.stop_requested()) look_again_soon();
    door.wait_for_questions(3, stop);
    door.list({entry(3, honest.address())});
  });
  const auto e = pull_by(*me, p);
  EXPECT_TRUE(succeeded(*e.done));
  EXPECT_TRUE(e.right);
  EXPECT_GE(lies, 1u);
  EXPECT_GE(gives, 1u);
}

TEST(SwarmAttacks, A_second_pull_makes_no_connections_to_members_of_the_first) {
  const published p(bytes_model(image, 3));
  fellow f(p);
  any_door door(p);
  std::string where = local(f.port());
  door.list({entry(2, where), entry(3, where), entry(4, where), entry(5, where), entry(6, where)});
  auto me = tp::swarm_member<attacked_net>::open("127.0.0.1:0", door.address());
  ASSERT_TRUE(succeeded(me));
  EXPECT_TRUE(succeeded(*pull_by(*me, p).done));
  const unsigned first = door.made;
  EXPECT_EQ(first, 3u) << "for the tree, the image, and the door";
  door.list({entry(2, where)});
  EXPECT_TRUE(succeeded(*pull_by(*me, p).done));
  EXPECT_LE(door.made - first, 2u);
}

/// Overwrites the model when it is abandoned, as one that frees its memory would.
class vanishing : public tp::land {
 public:
  explicit vanishing(model& m) : tp::land(m.destination()), model_(m) {}
  void abandon(const tp::error& e) noexcept {
    tp::land::abandon(e);
    std::memset(data(model_).data(), 0xee, data(model_).size());
    gone = true;
  }
  std::atomic<bool> gone{false};

 private:
  model& model_;
};

TEST(SwarmAttacks, An_abandoned_consumer_serves_nobody) {
  model zeros = bytes_model(image, 3);
  std::memset(data(zeros).data(), 0x11, data(zeros).size());
  const published p(std::move(zeros));
  for (int i = 0; i < 8; ++i) {
    any_door door(p, 4'000'000);
    auto me = tp::swarm_member<attacked_net>::open("127.0.0.1:0", door.address());
    ASSERT_TRUE(succeeded(me));
    model into = bytes_model(image, 9);
    vanishing to(into);
    std::atomic<bool> wrong{false};
    std::atomic<unsigned> chunks{0};
    const std::uint16_t port = me->port();
    joined_threads takes(8, [&](std::size_t, const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        model mine = bytes_model(image, 9);
        std::memset(data(mine).data(), 0x22, data(mine).size());
        tp::land there(mine.destination());
        tp::pull_options how;
        how.retry.retries = 0;
        how.stop = stop;
        how.progress = [&](const tp::progress_event&) {
          chunks += 1;
          for (auto& b : data(mine).subspan(65536, 4096)) wrong = wrong || b == std::byte{0xee};
        };
        how.progress_interval = 1ms;
        (void)attacked_net::pull(local(port), p.ref.model, there, how);
        for (auto& b : data(mine))
          if (b == std::byte{0xee}) {
            wrong = true;
            break;
          }
      }
    });
    joined_thread ends([&](const std::stop_token& stop) {
      door.wait_for_questions(4, stop);
      door.stop();
    });
    const auto done = tp::pull_proved<attacked_net>(*me, p.ref, to, {}, once());
    EXPECT_FALSE(done);
    EXPECT_TRUE(to.gone);
    takes.request_stop();
    takes.join();
    EXPECT_FALSE(wrong);
  }
}


TEST(SwarmAttacks, A_list_of_names_or_that_nobody_asked_for_is_not_followed) {
  const published p(bytes_model(image, 3));
  fellow f(p);
  any_door door(p, 2'000'000);
  each_connection named([&](raw_peer&, std::size_t, const std::stop_token&) {});
  door.list({entry(2, "localhost:" + std::to_string(named.port())), entry(3, "no.such.name.example:80"),
             entry(4, "127.1:" + std::to_string(named.port())), entry(5, "/tmp/x"),
             entry(6, ":" + std::to_string(named.port())), entry(7, "0.0.0.0:" + std::to_string(named.port()))});
  auto me = tp::swarm_member<attacked_net>::open("127.0.0.1:0", door.address());
  ASSERT_TRUE(succeeded(me));
  const auto e = pull_by(*me, p);
  EXPECT_TRUE(succeeded(*e.done));
  EXPECT_TRUE(e.right);
  EXPECT_EQ(named.count(), 0u);
}

TEST(SwarmAttacks, What_is_asked_of_one_pull_is_not_answered_from_the_next_before_it_is_proved) {
  model ones = bytes_model(16 * image, 3);
  std::memset(data(ones).data(), 0x11, data(ones).size());
  const published p(std::move(ones));
  any_door fast(p);
  auto me = tp::swarm_member<attacked_net>::open("127.0.0.1:0", fast.address());
  ASSERT_TRUE(succeeded(me));
  EXPECT_TRUE(succeeded(*pull_by(*me, p).done));
  model first = bytes_model(16 * image, 9);
  tp::land to(first.destination());
  ASSERT_TRUE(succeeded(tp::pull_proved<attacked_net>(*me, p.ref, to)));
  // a recipient that asks for much and reads nothing
  raw_peer slow(me->port());
  EXPECT_TRUE(slow.say(request(tp::frame_kind::describe, 1, p.ref.model.id, 0, 0)));
  (void)me->serve(200ms);
  for (std::uint32_t i = 0; i < 4; ++i)
    EXPECT_TRUE(slow.say(request(tp::frame_kind::pull, 2 + i, p.ref.model.id, (12 - i) * image, 16 * 1024 * 1024)));
  (void)me->serve(300ms);
  // the same again, into other memory
  model second = bytes_model(16 * image, 9);
  std::memset(data(second).data(), 0x99, data(second).size());
  tp::land other(second.destination());
  std::size_t wrong = 0, heard = 0;
  std::atomic<bool> begun{false};
  joined_thread reads([&](const std::stop_token& stop) {
    while (!begun && !stop.stop_requested()) look_again_soon();
    byte_vector piece(1 << 20);
    while (!stop.stop_requested()) {
      const auto io = read_some(slow.stream(), piece);
      if (tp::is_end(io.status)) return;
      heard += io.bytes;
      for (std::size_t i = 0; i < io.bytes; ++i) wrong += piece[i] == std::byte{0x99};
      if (io.bytes == 0) slow.stream().wait(true, false, 10ms);
    }
  });
  tp::pull_options how;
  how.progress = [&](const tp::progress_event& e) { begun = begun || e.bytes_done > 200'000; };
  how.progress_interval = 1ms;
  EXPECT_TRUE(succeeded(tp::pull_proved<attacked_net>(*me, p.ref, other, {}, how)));
  (void)me->serve(300ms);
  reads.request_stop();
  reads.join();
  EXPECT_LT(wrong, 100u) << heard;
}

TEST(SwarmAttacks, One_that_may_not_have_it_hears_the_same_as_of_an_unknown_reference) {
  const published p(bytes_model(image, 3));
  any_door door(p, 2'000'000);
  tp::swarm_options options;
  options.host.authorise = [](const tp::access_request&) { return false; };
  auto me = tp::swarm_member<attacked_net>::open("127.0.0.1:0", door.address(), options);
  ASSERT_TRUE(succeeded(me));
  raw_peer made(me->port());
  member_in_hand<tp::posix_stream> stranger(std::move(made.stream()));
  std::atomic<unsigned> told{0}, busy{0};
  joined_thread asks([&](const std::stop_token& stop) {
    for (std::uint32_t id = 1; !stop.stop_requested(); ++id) {
      stranger.say(request(tp::frame_kind::pull, id, p.ref.model.id, 3 * image / 4, 1000));
      for (int i = 0; i < 20; ++i) {
        if (const auto f = stranger.next()) {
          const decoded d(*f);
          told += d.outcome && d.m.kind != tp::frame_kind::refused;
          busy += d.outcome && d.m.kind == tp::frame_kind::refused && d.m.status == tp::status::busy;
        } else look_again_soon();
      }
    }
  });
  const auto e = pull_by(*me, p);
  asks.request_stop();
  asks.join();
  EXPECT_TRUE(succeeded(*e.done));
  EXPECT_EQ(told, 0u);
  EXPECT_EQ(busy, 0u);
}


TEST(SwarmAttacks, Nobody_is_served_from_the_consumer_of_the_pull_before) {
  const published p(bytes_model(image, 3));
  any_door door(p);
  auto me = tp::swarm_member<attacked_net>::open("127.0.0.1:0", door.address());
  ASSERT_TRUE(succeeded(me));
  EXPECT_TRUE(succeeded(*pull_by(*me, p).done));
  tp::digest in_order;
  ASSERT_TRUE(succeeded(tp::pull_proved<attacked_net>(*me, p.ref, in_order)));
  raw_peer asks(me->port());
  EXPECT_TRUE(asks.say(request(tp::frame_kind::describe, 1, p.ref.model.id, 0, 0)));
  EXPECT_TRUE(me->serve(500ms)) << "it serves nobody";
  byte_vector piece(4096);
  EXPECT_EQ(read_some(asks.stream(), piece).bytes, 0u);
}

TEST(SwarmAttacks, A_file_gives_what_is_behind_its_header) {
  const published p(bytes_model(image, 3));
  any_door door(p);
  auto me = tp::swarm_member<attacked_net>::open("127.0.0.1:0", door.address());
  ASSERT_TRUE(succeeded(me));
  const own_folder folder;
  const std::string path = folder / "model";
  auto file = tp::safetensors_file::create(path, {.fsync = false});
  ASSERT_TRUE(succeeded(file));
  ASSERT_TRUE(succeeded(tp::pull_proved<attacked_net>(*me, p.ref, *file)));
  EXPECT_EQ(file_root(path), p.ref.root);
  raw_peer made(me->port());
  member_in_hand<tp::posix_stream> asks(std::move(made.stream()));
  EXPECT_TRUE(asks.say(request(tp::frame_kind::describe, 1, p.ref.model.id, 0, 0)));
  EXPECT_TRUE(asks.say(request(tp::frame_kind::pull, 2, p.ref.model.id, 0, 64)));
  (void)me->serve(500ms);
  bool gave = false;
  while (const auto f = asks.next()) {
    const decoded d(*f);
    gave = gave || d.m.kind == tp::frame_kind::chunk;
  }
  byte_vector rest(4096);
  EXPECT_FALSE(gave);
}


TEST(SwarmAttacks, Members_without_the_metadata_of_the_owner_are_no_liars) {
  const tp::metadata_entry metadata[] = {{"format", "pt"}};
  model with;
  with.add("w", tp::dtype::u8, {image}).ready(metadata);
  const published p(std::move(with.fill(3)));
  any_door door(p, 8'000'000);
  std::vector<tp::swarm_member<attacked_net>> members;
  for (int i = 0; i < 2; ++i) members.push_back(*tp::swarm_member<attacked_net>::open("127.0.0.1:0", door.address()));
  // each is told of the other one, under any number
  door.list({entry(2, local(members[0].port())), entry(3, local(members[1].port()))});
  std::array<end_of_pull, 2> ends;
  {
    joined_threads pulls(2, [&](std::size_t i, const std::stop_token&) {
      model into = bytes_model(image, 9);
      tp::land to(into.destination());
      ends[i].done = tp::pull_proved<attacked_net>(members[i], p.ref, to, {}, once());
      ends[i].right = std::ranges::equal(data(into), data(p.now));
      (void)members[i].serve(1s);
    });
  }
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(succeeded(*ends[i].done));
    EXPECT_TRUE(ends[i].right);
    EXPECT_EQ(members[i].wrong(), 0u);
  }
}

}  // namespace swarm_attacks_test
