// Members of a swarm over TCP: they take a model from its owner and from each other, beside members that lie, leave or
// are silent.
#include "../proved_model.hpp"
#include "satellites/parallel/swarm_in_hand.hpp"
#include "support/allocation_counter.hpp"
#include "support/own_folder.hpp"
#include "support/process_entries.hpp"

#include <tensorpull/consumers/any_schema/digest.hpp>
#include <tensorpull/consumers/any_schema/safetensors_file.hpp>
#include <tensorpull/satellites/parallel/swarm/swarm_member.hpp>

#include <malloc.h>

#include <atomic>
#include <optional>
#include <thread>

namespace swarm_test {

using namespace test;
using namespace test::proved;
using swarm_net = tp::pipeline<tp::tensor_list, tp::fixed_bytes<256_KiB>, tp::tcp>;
using member_type = tp::swarm_member<swarm_net>;
constexpr std::uint64_t parts = 40, model_bytes = parts * group - 100;  // the header fits in as well

const published& swarm_model() {
  static const published one(bytes_model(model_bytes, 3));
  return one;
}

auto opened(swarm_net::downloader& owner, std::uint64_t rate) {
  tp::host_options options;
  options.limits.owner_bytes_per_second = rate;
  return *tp::open_swarm_door(owner, any_port, options);
}

/// An owner of a model and its tree behind a door, which may send so many bytes a second (0: any).
class crowd_owner {
 public:
  explicit crowd_owner(std::uint32_t recipients, std::uint64_t rate = 0, const published& of = swarm_model())
      : of_(of), owner_(*swarm_net::downloader::open({})), door_(opened(owner_, rate)) {
    of.publish_at(owner_, recipients);
    server_.emplace(owner_);
  }
  std::uint16_t port() const { return door_.port(); }
  std::string address() const { return local(port()); }
  void stop() { server_.reset(); }
  tp::publication_status counts() {
    stop();
    return *owner_.status_of(of_.ref.model);
  }
  std::size_t seats() {
    server_.reset();
    const std::size_t n = door_.members();
    server_.emplace(owner_);
    return n;
  }

 private:
  const published& of_;
  swarm_net::downloader owner_;
  decltype(opened(std::declval<swarm_net::downloader&>(), 0)) door_;
  std::optional<serving> server_;
};

tp::posix_stream connected(const std::string& address) { return std::move(*tp::tcp::connect(address, 10s, {})); }

/// A member that pulls on a thread of its own, and then serves until everybody has what they want.
class member_at_work {
 public:
  member_at_work(const std::string& owner, std::atomic<int>& left, const published& of = swarm_model(),
                 std::uint64_t rate = 0, tp::pull_options how = {})
      : of_(of), left_(left), into_(bytes_model(data(of.now).size(), 9)),
        member_(*member_type::open(any_port, owner, options_at(rate))), how_(how), thread_([this] { run(); }) {}
  void join() { thread_.join(); }
  const tp::result<tp::proved_receipt>& done() const { return *done_; }
  bool is_right() const { return into_.image_bytes() == of_.now.image_bytes(); }
  std::uint64_t sent() { return member_.bytes_sent(); }

 private:
  static tp::swarm_options options_at(std::uint64_t rate) {
    tp::swarm_options options;
    options.host.limits.owner_bytes_per_second = rate;
    return options;
  }
  void run() {
    tp::land to(into_.destination());
    done_.emplace(tp::pull_proved<swarm_net>(member_, of_.ref, to, {}, how_));
    --left_;
    while (*done_ && left_ > 0) (void)member_.serve(20ms);
  }

  const published& of_;
  std::atomic<int>& left_;
  model into_;
  member_type member_;
  tp::pull_options how_;
  std::optional<tp::result<tp::proved_receipt>> done_;
  joined_thread thread_;
};

void expect_it_has_all(member_at_work& m, std::uint64_t wrong = 0) {
  m.join();
  ASSERT_TRUE(succeeded(m.done()));
  EXPECT_TRUE(m.is_right());
  EXPECT_EQ(m.done()->wrong, wrong);
  EXPECT_EQ(m.done()->last.outcome, tp::outcome::completed);
}

TEST(Swarm, Members_take_about_one_image_from_the_owner_and_it_counts_each) {
  constexpr int members = 8;
  crowd_owner owner(members, 5'000'000);
  std::atomic<int> left{members};
  std::deque<member_at_work> all;
  for (int i = 0; i < members; ++i) all.emplace_back(owner.address(), left);
  std::uint64_t sent = 0;
  for (auto& m : all) {
    expect_it_has_all(m);
    EXPECT_TRUE(m.done()->last.confirmed);
    sent += m.sent();
  }
  const auto counts = owner.counts();
  EXPECT_EQ(counts.completed, static_cast<std::uint32_t>(members));
  EXPECT_LE(counts.bytes_sent, 3 * model_bytes) << "a star takes " << members;
  EXPECT_GE(sent, (members - 3) * model_bytes);
}
TEST(Swarm, One_alone_and_one_whose_owner_knows_no_swarm_pull_from_the_owner) {
  std::atomic<int> left{1};
  crowd_owner owner(1);
  member_at_work alone(owner.address(), left);
  expect_it_has_all(alone);
  EXPECT_EQ(owner.counts().completed, 1u);

  left = 1;
  auto plain = swarm_net::downloader::open({.listen = any_port});
  ASSERT_TRUE(plain);
  swarm_model().publish_at(*plain);
  const serving server(*plain);
  member_at_work other(local(plain->port()), left);
  expect_it_has_all(other);
}

/// A member that tells others that it has everything.
enum class bad : std::uint8_t {
  lies,
  is_busy,
  has_nothing,
  tells_nonsense,
  publishes_another
};
class bad_member {
  struct handler {
    bad how;
    generator random{5};
    template <class C> void connected(C& c) noexcept {
      swarm::parts all{.shift = 16, .proved = {}};
      for (std::size_t i = 0; i < swarm::most_parts; ++i) all.add(i);
      byte_vector body(swarm::parts::bytes);
      (void)swarm::encode(all, body);
      if (how == bad::tells_nonsense) body.resize(random.below(200));
      (void)c.send(swarm::parts_kind, {&swarm_model().ref.model, 1}, body);
    }
    template <class C> void message(C&, const tp::message&) noexcept {}
    template <class C> void pulled(C&, const tp::result<tp::receipt>&) noexcept {}
    template <class C> void closed(C&, const tp::error&) noexcept {}
  };
  struct bad_parts : tp::owner_parts_of<swarm_net::parts> {
    using transport = tp::detail::arriving<tp::tcp>;
  };

 public:
  bad_member(const std::string& owner, bad how)
      : handler_{how}, lie_(bytes_model(how == bad::publishes_another ? model_bytes + 8 : model_bytes, 77)),
        to_(connected(owner)) {
    const auto port = connections_.listen(any_port);
    EXPECT_TRUE(port);
    tp::publish_options as;
    as.id = swarm_model().ref.model.id, as.version = swarm_model().ref.model.version;
    if (how != bad::has_nothing) {
      EXPECT_TRUE(connections_.published().add_image(lie_.source(), as));
    }
    if (how == bad::is_busy) connections_.published().machine().arrives(as.id, &nothing_, 0);
    EXPECT_TRUE(to_.join(swarm_model().ref.model, local(*port)));
    thread_.emplace([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) (void)io_.run_one_for(20ms);
    });
  }

 private:
  tp::event_loop io_;
  handler handler_;
  tp::host<bad_parts, handler, tp::no_consumer> connections_{io_, handler_};
  model lie_;
  swarm::parts nothing_{.shift = 16, .proved = {}};
  member_in_hand<tp::posix_stream> to_;
  std::optional<joined_thread> thread_;
};

TEST(Swarm, Members_that_lie_are_named_and_others_that_give_nothing_cost_no_byte) {
  for (const bad how : {bad::lies, bad::is_busy, bad::has_nothing, bad::tells_nonsense, bad::publishes_another}) {
    SCOPED_TRACE(static_cast<int>(how));
    crowd_owner owner(2, 5'000'000);
    std::deque<bad_member> others;
    for (int i = 0; i < 3; ++i) others.emplace_back(owner.address(), how);
    EXPECT_TRUE(eventually("they have seats", [&] { return owner.seats() == 3; }));
    std::atomic<int> left{2};
    member_at_work first(owner.address(), left), second(owner.address(), left);
    for (auto* m : {&first, &second}) {
      m->join();
      ASSERT_TRUE(succeeded(m->done()));
      EXPECT_TRUE(m->is_right());
      EXPECT_TRUE(m->done()->last.confirmed);
      EXPECT_EQ(m->done()->wrong & 1, 0u) << "the owner is honest";
      if (how == bad::lies) {
        EXPECT_NE(m->done()->wrong, 0u);
      } else if (how != bad::publishes_another) {
        EXPECT_EQ(m->done()->wrong, 0u);
      }
      EXPECT_LE(std::popcount(m->done()->wrong), 3) << "the other member is honest";
    }
    EXPECT_EQ(owner.counts().completed, 2u);
  }
}
TEST(Swarm, Silent_members_and_those_that_leave_do_not_matter) {
  crowd_owner owner(3, 5'000'000);
  const each_connection silent([](raw_peer& peer, std::size_t, const std::stop_token& stop) {
    swarm::parts all{.shift = 16, .proved = {}};
    for (std::size_t i = 0; i < swarm::most_parts; ++i) all.add(i);
    byte_vector body(swarm::parts::bytes);
    (void)swarm::encode(all, body);
    (void)peer.say(message_bytes(swarm::parts_kind, {&swarm_model().ref.model, 1}, body));
    while (!stop.stop_requested()) peer.stream().wait(true, false, 20ms);
  });
  member_in_hand<tp::posix_stream> listed(connected(owner.address())), not_there(connected(owner.address()));
  ASSERT_TRUE(listed.join(swarm_model().ref.model, silent.address()));
  ASSERT_TRUE(not_there.join(swarm_model().ref.model, local(own_port())));
  EXPECT_TRUE(eventually("they have seats", [&] { return owner.seats() == 2; }));
  std::stop_source gone;
  std::atomic<int> left{2};
  std::atomic<bool> begun{false};
  tp::pull_options leaves;
  leaves.stop = gone.get_token();
  const auto note = [&](const tp::progress_event& e) { begun = begun || e.bytes_done > model_bytes / 4; };
  leaves.progress = note;
  leaves.progress_interval = 1ms;
  member_at_work first(owner.address(), left), second(owner.address(), left);
  std::atomic<int> one{1};
  member_at_work leaver(owner.address(), one, swarm_model(), 0, leaves);
  EXPECT_TRUE(eventually("it has something", [&] { return begun.load(); }));
  gone.request_stop();
  leaver.join();
  EXPECT_EQ(code_of(leaver.done()), errc::cancelled);
  expect_it_has_all(first);
  expect_it_has_all(second);
  EXPECT_EQ(owner.counts().completed, 2u);
}
TEST(Swarm, If_the_owner_is_lost_one_takes_the_rest_from_another_and_nobody_has_confirmed_that) {
  std::optional<crowd_owner> owner(std::in_place, 2, 5'000'000);
  std::atomic<int> left{2};
  member_at_work first(owner->address(), left);
  std::atomic<bool> begun{false};
  tp::pull_options how;
  const auto note = [&](const tp::progress_event& e) { begun = begun || e.bytes_done > 4 * group; };
  how.progress = note;
  how.progress_interval = 1ms;
  how.retry = {.retries = 2, .first_delay = 5ms, .longest_delay = 20ms};
  EXPECT_TRUE(eventually("the first has everything", [&] { return left == 1; }));
  member_at_work second(owner->address(), left, swarm_model(), 0, how);
  EXPECT_TRUE(eventually("the second has begun", [&] { return begun.load(); }));
  owner.reset();
  expect_it_has_all(first);
  expect_it_has_all(second);
  EXPECT_TRUE(first.done()->last.confirmed);
}
TEST(Swarm, Images_of_one_byte_of_one_group_and_of_one_more) {
  for (const std::uint64_t size : {std::uint64_t{1}, group - 72, group - 71, 2 * group}) {
    const published p(bytes_model(size, 4));
    crowd_owner owner(3, 0, p);
    std::atomic<int> left{3};
    member_at_work a(owner.address(), left, p), b(owner.address(), left, p), c(owner.address(), left, p);
    for (auto* m : {&a, &b, &c}) expect_it_has_all(*m);
    EXPECT_EQ(owner.counts().completed, 3u);
  }
}
TEST(Swarm, A_member_pulls_one_version_after_another_into_memory_and_a_file) {
  const own_folder here;
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    const published p(bytes_model(6 * group, seed));
    crowd_owner owner(2, 0, p);
    auto member = member_type::open(any_port, owner.address());
    ASSERT_TRUE(member);
    const std::string path = (here.path() / "model.safetensors").string();
    auto file = tp::safetensors_file::create(path);
    ASSERT_TRUE(file);
    EXPECT_TRUE(succeeded(tp::pull_proved<swarm_net>(*member, p.ref, *file)));
    EXPECT_EQ(file_root(path), p.ref.root);
    model into = bytes_model(6 * group, 9);
    tp::land to(into.destination());
    tp::pull_options another;
    another.recipient = {5};
    EXPECT_TRUE(succeeded(tp::pull_proved<swarm_net>(*member, p.ref, to, {}, another)));
    EXPECT_EQ(into.image_bytes(), p.now.image_bytes());
    EXPECT_TRUE(member->serve(5s)) << "nobody else pulls";
    EXPECT_EQ(owner.counts().completed, 2u);
  }
}
TEST(Swarm, A_plain_recipient_waits_for_a_member_that_does_not_have_everything_yet) {
  crowd_owner owner(1, 2'000'000);
  auto me = member_type::open(any_port, owner.address());
  ASSERT_TRUE(me);
  const std::string where = local(me->port());
  model into = bytes_model(model_bytes, 9), other = bytes_model(model_bytes, 8);
  std::atomic<bool> begun{false}, over{false};
  std::optional<tp::result<tp::receipt>> plain;
  joined_threads thread(1, [&](std::size_t, const std::stop_token&) {
    (void)eventually("the member has something", [&] { return begun.load(); });
    tp::land to(other.destination());
    tp::pull_options how;
    how.retry.retries = 100;
    plain.emplace(swarm_net::pull(where, swarm_model().ref.model, to, how));
    over = true;
  });
  tp::land to(into.destination());
  tp::pull_options how;
  const auto note = [&](const tp::progress_event& e) { begun = begun || e.bytes_done > 4 * group; };
  how.progress = note;
  how.progress_interval = 1ms;
  EXPECT_TRUE(succeeded(tp::pull_proved<swarm_net>(*me, swarm_model().ref, to, {}, how)));
  while (!over) (void)me->serve(20ms);
  thread.join();
  ASSERT_TRUE(succeeded(*plain));
  EXPECT_EQ(other.image_bytes(), swarm_model().now.image_bytes());
}
TEST(Swarm, A_member_allocates_as_much_for_many_chunks_as_for_few) {
  const auto allocations = [](std::uint64_t size) {
    const published p(bytes_model(size, 4));
    std::uint64_t least = ~std::uint64_t{0};
    for (int i = 0; i < 5; ++i) {
      crowd_owner owner(1, 0, p);
      auto me = member_type::open(any_port, owner.address());
      model into = bytes_model(size, 9);
      tp::land to(into.destination());
      const allocation_watch watch;
      EXPECT_TRUE(succeeded(tp::pull_proved<swarm_net>(*me, p.ref, to)));
      least = std::min(least, watch.count());
    }
    return least;
  };
  EXPECT_EQ(allocations(3 * group), allocations(200 * group));
}
TEST(Swarm, Members_that_come_and_go_leave_descriptors_threads_and_seats_as_they_were) {
  const published p(bytes_model(4 * group, 6));
  crowd_owner owner(0, 0, p);
  std::size_t files = 0, memory = 0;
  for (int round = 0; round < 30; ++round) {
    const int members = 1 + round % 4;
    std::atomic<int> left{members};
    {
      std::deque<member_at_work> all;
      for (int i = 0; i < members; ++i) all.emplace_back(owner.address(), left, p);
      for (auto& m : all) expect_it_has_all(m);
    }
    EXPECT_TRUE(eventually("no seat is taken", [&] { return owner.seats() == 0; }));
    // the heap of all threads, of which each round has other ones
    if (round == 9) files = descriptors(), memory = mallinfo2().uordblks;
  }
  EXPECT_EQ(descriptors(), files);
#if !defined(TENSORPULL_TEST_SANITIZED)  // which keeps freed memory
  EXPECT_LE(mallinfo2().uordblks, memory + 64_KiB);
#endif
}
TEST(Swarm, A_member_whose_pull_has_failed_keeps_no_seat) {
  std::stop_source stop;
  crowd_owner owner(1, 500'000);
  auto me = member_type::open(any_port, owner.address());
  model into = bytes_model(model_bytes, 9);
  tp::land to(into.destination());
  tp::pull_options how;
  how.stop = stop.get_token();
  how.progress = [&](const tp::progress_event&) {
    if (owner.seats() == 1) stop.request_stop();
  };
  how.progress_interval = 20ms;
  EXPECT_EQ(code_of(tp::pull_proved<swarm_net>(*me, swarm_model().ref, to, {}, how)), errc::cancelled);
  EXPECT_TRUE(eventually("no seat is taken", [&] { return owner.seats() == 0; }));
}
TEST(Swarm, A_stop_is_heard_while_others_are_silent_and_addresses_cannot_be_used) {
  std::stop_source stop;
  crowd_owner owner(1, 100'000);
  auto me = member_type::open(any_port, owner.address());
  model into = bytes_model(model_bytes, 9);
  tp::land to(into.destination());
  tp::pull_options how;
  how.stop = stop.get_token();
  joined_threads later(1, [&](std::size_t, const std::stop_token&) {
    be_slow(50ms);
    stop.request_stop();
  });
  EXPECT_EQ(code_of(tp::pull_proved<swarm_net>(*me, swarm_model().ref, to, {}, how)), errc::cancelled);
  EXPECT_EQ(code_of(member_type::open("nonsense", owner.address())), errc::bad_address);
  EXPECT_FALSE(member_type::open(any_port, std::string(100, 'x')).has_value() &&
               tp::pull_proved<swarm_net>(*member_type::open(any_port, "x"), swarm_model().ref, to).has_value());
}

}  // namespace swarm_test
