// The door of a swarm over TCP and Unix sockets: members that join, poll and vanish, strangers, and recipients of
// today.
#include "support/allocation_counter.hpp"
#include "support/own_folder.hpp"
#include "support/random.hpp"
#include "swarm_in_hand.hpp"

#include <tensorpull/transports/over/unix_socket/unix_socket.hpp>

#include <algorithm>
#include <set>

namespace swarm_door_test {

using namespace test;
using swarm::member_state;
using net = raw_net<tiny, tp::tcp>;
using unix_net = raw_net<tiny, tp::unix_socket>;
using names = std::set<std::string>;

/// The address of a member at 127.0.0.1, as the door tells it to others. Nobody listens there.
std::string listed(int port) { return "127.0.0.1:" + std::to_string(port); }
/// A connection from an address of this machine's own.
tp::posix_stream connected(std::uint16_t port, std::uint32_t from = INADDR_LOOPBACK) {
  tp::posix_stream s(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(from)}, .sin_zero = {}};
  const auto* const where = reinterpret_cast<const sockaddr*>(&at);
  EXPECT_EQ(::bind(s.native_handle(), where, sizeof at), 0);
  at.sin_port = htons(port);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(s.native_handle(), where, sizeof at), 0);
  ::fcntl(s.native_handle(), F_SETFL, O_NONBLOCK);
  return s;
}

/// An owner, its door, and its loop, which the test runs.
template <class Net, class Door, class Stream>
struct house : testing::Test {
  using member = member_in_hand<Stream>;
  const std::unique_ptr<tiny> source = random_model<tiny>(1);
  tp::result<typename Net::downloader> owner;
  tp::reference ref;
  tp::result<Door> door;

  house(tp::result<typename Net::downloader> opened, std::string_view listen)
      : owner(std::move(opened)), ref(*owner->add_tensors(*source)),
        door(tp::open_swarm_door<typename Net::parts::transport>(*owner, listen)) {}
  void SetUp() override { ASSERT_TRUE(succeeded(door)); }

  template <class Holds>
  bool until(std::string_view what, Holds holds) {
    return eventually(what, [&] { return holds() || (owner->event_loop().run_one_for(1ms), holds()); });
  }
  /// The next frame of the door's.
  std::optional<frame> hear(member& m) {
    std::optional<frame> f;
    until("the door answers", [&] { return (f = m.next()) || m.closed(); });
    return f;
  }
  /// What the door says next, which is a list.
  std::optional<swarm::list> hear_list(member& m) {
    const auto f = hear(m);
    if (!f) return std::nullopt;
    const decoded d(*f);
    EXPECT_TRUE(d.outcome && d.m.kind == tp::frame_kind::application && d.m.application == swarm::list_kind);
    EXPECT_EQ(d.m.references.size(), 1u);
    const auto list = swarm::decode_list(d.m.body);
    EXPECT_TRUE(list);
    return list ? std::optional(*list) : std::nullopt;
  }
  swarm::list ask(member& m, const tp::reference& model, std::string_view address, std::uint32_t known = 0,
                  member_state state = member_state::pulls) {
    EXPECT_TRUE(m.join(model, address, known, state));
    return hear_list(m).value_or(swarm::list{});
  }
  swarm::list ask(member& m, std::string_view address, std::uint32_t known = 0,
                  member_state state = member_state::pulls) {
    return ask(m, ref, address, known, state);
  }
  /// Whether the door has said nothing to what was said before: it answers a request behind it first.
  bool is_silent(member& m) {
    EXPECT_TRUE(m.say(request(tp::frame_kind::describe, 7, {9, 9}, 0, 0)));
    const auto f = hear(m);
    if (!f) return false;
    const decoded d(*f);
    return d.outcome && d.m.kind == tp::frame_kind::refused && d.m.id == 7;
  }
  static names addresses(const swarm::list& l) {
    names all;
    for (const auto& m : l.members()) all.emplace(m.address.view());
    return all;
  }
};

template <class Net>
struct door_type {
  using transport = typename Net::parts::transport;
  using type = std::remove_cvref_t<decltype(*tp::open_swarm_door<transport>(std::declval<typename Net::downloader&>(),
                                                                            std::string_view()))>;
};

struct SwarmDoor : house<net, door_type<net>::type, tp::posix_stream> {
  SwarmDoor() : house(net::downloader::open({.listen = any_port}), any_port) {}
  member enter(std::uint32_t from = INADDR_LOOPBACK) { return member(connected(door->port(), from)); }
};

TEST_F(SwarmDoor, Members_are_told_of_each_other_and_of_what_changes) {
  member a = enter(), b = enter(), c = enter();
  const auto first = ask(a, "8001");
  EXPECT_FALSE(first.refused());
  EXPECT_EQ(first.count, 0u);
  EXPECT_NE(first.self, 0u);
  const auto nothing = ask(a, "8001", first.number);
  EXPECT_EQ(nothing.number, first.number);
  EXPECT_EQ(nothing.self, first.self);
  EXPECT_EQ(nothing.count, 0u);
  const auto of_b = ask(b, "0.0.0.0:8002");
  EXPECT_EQ(addresses(of_b), names{listed(8001)});
  EXPECT_EQ(of_b.others[0].number, first.self);
  const auto of_c = ask(c, "8003", 0, member_state::has_all);
  EXPECT_EQ(addresses(of_c), (names{listed(8001), listed(8002)}));
  const auto of_a = ask(a, "8001", first.number);
  EXPECT_NE(of_a.number, first.number);
  EXPECT_EQ(of_a.self, first.self);
  EXPECT_EQ(addresses(of_a), (names{listed(8002), listed(8003)}));
  for (const auto& m : of_a.members()) EXPECT_EQ(m.state == member_state::has_all, m.address.view() == listed(8003));
  EXPECT_EQ(door->members(), 3u);
  EXPECT_EQ(door->groups(), 1u);

  const auto again = ask(b, "8002", of_a.number, member_state::has_all);
  EXPECT_NE(again.number, of_a.number) << "its state is another";
  c.reset();
  until("the door knows that one has gone", [&] { return door->members() == 2; });
  EXPECT_EQ(addresses(ask(a, "8001", again.number)), names{listed(8002)});
  a.reset(), b.reset();
  until("all have gone", [&] { return door->connections() == 0; });
  EXPECT_EQ(door->members(), 0u);
  EXPECT_EQ(door->groups(), 0u);
}

TEST_F(SwarmDoor, The_others_are_sent_to_the_address_that_a_member_is_at_and_to_nobody_else) {
  member watches = enter();
  ask(watches, "1");
  for (const std::string_view said : {"8003", ":8003", "0.0.0.0:8003", "[::]:8003", "127.0.0.7:8003",
                                      "[::ffff:127.0.0.7]:8003", "08003", "[]:8003"}) {
    member m = enter(INADDR_LOOPBACK + 6);
    EXPECT_FALSE(ask(m, said).refused()) << said;
    EXPECT_EQ(addresses(ask(watches, "1")), names{"127.0.0.7:8003"}) << said;
    m.reset();
    until("it is gone", [&] { return door->members() == 1; });
  }
  for (const std::string& said : names{listed(8003),
                                       "127.0.0.8:8003",
                                       "192.0.2.1:8003",
                                       "local.host:8003",
                                       "example.org:80",
                                       "[::2]:8003",
                                       "[2001:db8::1]:8003",
                                       "0",
                                       ":0",
                                       "0.0.0.0:0",
                                       "65536",
                                       "65616",
                                       ":65536",
                                       "99999999999999999999",
                                       "-1",
                                       "+80",
                                       " 80",
                                       "80 ",
                                       "0x50",
                                       ":",
                                       "::",
                                       "::1:80",
                                       "127.0.0.7",
                                       "/run/a.sock",
                                       "@name",
                                       "unix:/run/a",
                                       "127.7:80",
                                       "127.0.0.7:80:90",
                                       "127.0.0.007:8003",
                                       "user:pw@127.0.0.7:80",
                                       "http://127.0.0.7:80",
                                       "tls://127.0.0.7:80"}) {
    member m = enter(INADDR_LOOPBACK + 6);
    const auto answer = ask(m, said);
    EXPECT_TRUE(answer.refused()) << said;
    EXPECT_EQ(answer.count, 0u) << said;
    EXPECT_EQ(door->members(), 1u) << said;
    EXPECT_FALSE(ask(m, "8003").refused()) << "it may do better: " << said;
    EXPECT_TRUE(ask(m, said).refused()) << "and has no seat any more when it does not: " << said;
    EXPECT_EQ(door->members(), 1u) << said;
  }
}

TEST_F(SwarmDoor, Hostile_bodies_of_every_length_take_no_seat_and_are_not_answered) {
  generator random(3);
  member m = enter(), honest = enter();
  for (std::size_t size = 0; size <= 160; ++size) {
    byte_vector body = random.bytes(size);
    if (size >= 6 && size != 6 + 54) body[5] = std::byte(size % 2 != 0 ? size - 6 + 1 : 255);
    if (size == 60) body[4] = std::byte{2};
    ASSERT_TRUE(m.say(message_bytes(swarm::join_kind, {&ref, 1}, body)));
    if (size % 16 == 0) {
      EXPECT_TRUE(is_silent(m)) << size;
    }
  }
  byte_vector body = join_body("8003");
  for (std::size_t size = 0; size < body.size(); ++size)
    ASSERT_TRUE(m.say(message_bytes(swarm::join_kind, {&ref, 1}, std::span(body).first(size))));
  body.push_back(std::byte{0});
  ASSERT_TRUE(m.say(message_bytes(swarm::join_kind, {&ref, 1}, body)));
  for (const int state : {2, 3, 127, 128, 255}) {
    body = join_body("8003");
    body[4] = static_cast<std::byte>(state);
    ASSERT_TRUE(m.say(message_bytes(swarm::join_kind, {&ref, 1}, body)));
  }
  for (const std::string& text :
       {std::string(), std::string(55, '1'), std::string("80\0", 3), std::string("8\n"), std::string("8\x7f")})
    ASSERT_TRUE(m.say(message_bytes(swarm::join_kind, {&ref, 1}, join_body(text))));
  EXPECT_TRUE(is_silent(m));
  EXPECT_EQ(door->members(), 0u);
  EXPECT_FALSE(ask(honest, "1").refused());
  EXPECT_EQ(ask(m, "8003").count, 1u) << "its connection has gone on";
}
TEST_F(SwarmDoor, Messages_of_other_kinds_and_with_other_references_are_not_answered) {
  member m = enter();
  const byte_vector body = join_body("8003");
  for (const std::uint32_t kind : {0u, 1u, swarm::list_kind, swarm::parts_kind, swarm::join_kind + 0x10000u, ~0u})
    ASSERT_TRUE(m.say(message_bytes(kind, {&ref, 1}, body)));
  tp::reference other = ref, version = ref, any = ref;
  other.id.low ^= 1, version.version ^= 1, any.version = 0;
  const std::array two{ref, ref};
  for (const auto& wrong : {other, version, any, tp::reference{}})
    ASSERT_TRUE(m.say(message_bytes(swarm::join_kind, {&wrong, 1}, body)));
  ASSERT_TRUE(m.say(message_bytes(swarm::join_kind, {}, body)));
  ASSERT_TRUE(m.say(message_bytes(swarm::join_kind, two, body)));
  EXPECT_TRUE(is_silent(m));
  EXPECT_EQ(door->members(), 0u);
  tp::reference fingerprint = ref;
  fingerprint.fingerprint ^= 1;
  EXPECT_FALSE(ask(m, fingerprint, "8003").refused()) << "it does not say which content it is";
  EXPECT_EQ(door->members(), 1u);
}
TEST_F(SwarmDoor, A_message_that_is_longer_than_any_of_a_swarm_ends_its_connection_alone) {
  member honest = enter(), m = enter();
  const auto before = ask(honest, "1");
  ASSERT_TRUE(m.say(message_bytes(swarm::join_kind, {&ref, 1}, byte_vector(5000))));
  until("it is closed", [&] { return !m.next() && m.closed(); });
  EXPECT_EQ(ask(honest, "1", before.number).number, before.number);
}

TEST_F(SwarmDoor, Whoever_may_not_have_a_model_is_answered_as_if_there_were_none) {
  std::uint32_t asked = 0;
  owner->publications().authorise([&](const tp::access_request& r) {
    ++asked;
    return r.ref != ref.id;
  });
  const auto second = *owner->add_tensors(*source);
  member m = enter();
  ASSERT_TRUE(m.join(ref, "8003"));
  EXPECT_TRUE(is_silent(m));
  EXPECT_EQ(door->members(), 0u);
  asked = 0;
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(ask(m, second, "8003").refused());
  EXPECT_EQ(asked, 1u) << "once for its seat";
  owner->publications().authorise([](const tp::access_request&) -> bool { throw 1; });
  member other = enter();
  ASSERT_TRUE(other.join(second, "8003"));
  EXPECT_TRUE(is_silent(other));
}

TEST_F(SwarmDoor, A_model_that_is_withdrawn_has_no_members_any_more) {
  member a = enter(), b = enter(), c = enter();
  ask(a, "1"), ask(b, "2");
  ASSERT_TRUE(owner->withdraw(ref));
  EXPECT_TRUE(ask(a, "1").refused());
  EXPECT_EQ(door->members(), 1u);
  ASSERT_TRUE(a.join(ref, "1"));
  EXPECT_TRUE(is_silent(a)) << "it has no seat, and the model is not there";
  ASSERT_TRUE(c.join(ref, "3"));
  EXPECT_TRUE(is_silent(c));
  EXPECT_TRUE(ask(b, "2").refused());
  EXPECT_EQ(door->groups(), 0u);
}
TEST_F(SwarmDoor, Groups_of_models_that_are_gone_make_room_although_their_members_stay) {
  std::vector<member> stay;
  for (int i = 0; i < 63; ++i) {  // one less than the owner publishes at a time
    const auto gone = *owner->add_tensors(*source);
    stay.push_back(enter(INADDR_LOOPBACK + 10 + static_cast<std::uint32_t>(i)));
    ASSERT_FALSE(ask(stay.back(), gone, "1").refused()) << i;
    ASSERT_TRUE(owner->withdraw(gone));
  }
  stay.push_back(enter());
  ASSERT_FALSE(ask(stay.back(), ref, "1").refused());
  EXPECT_EQ(door->groups(), 64u);
  const auto next = *owner->add_tensors(*source);
  member m = enter(INADDR_LOOPBACK + 9);
  EXPECT_FALSE(ask(m, next, "1").refused());
  EXPECT_EQ(door->groups(), 2u);
  EXPECT_TRUE(ask(stay.front(), ref, "1").count == 1) << "it may join another";
}
TEST_F(SwarmDoor, A_connection_has_one_seat_and_takes_it_along_to_another_model) {
  const auto second = *owner->add_tensors(*source);
  member a = enter(), b = enter();
  ask(a, "1");
  const auto one = ask(b, "2"), two = ask(b, second, "2", one.number);
  EXPECT_NE(two.number, one.number);
  EXPECT_EQ(two.count, 0u);
  EXPECT_EQ(ask(a, "1").count, 0u);
  EXPECT_EQ(door->members(), 2u);
}

TEST_F(SwarmDoor, Many_joins_from_one_address_leave_the_door_and_its_seats_to_others) {
  std::vector<member> flood;
  for (int i = 0; i < 300; ++i) {
    flood.push_back(enter(INADDR_LOOPBACK + 65));
    ASSERT_TRUE(flood.back().join(ref, "66"));
  }
  until("as many have seats as may", [&] { return door->members() == 128 && door->connections() == 300; });
  member a = enter(), b = enter(INADDR_LOOPBACK + 1);
  ask(a, "1"), ask(b, "2");
  const auto of_a = ask(a, "1");
  EXPECT_TRUE(addresses(of_a).contains("127.0.0.2:2"));
  EXPECT_LE(of_a.count, 5u) << "four of theirs";
  std::size_t refused = 0;
  for (member& m : flood) refused += hear_list(m)->refused();
  EXPECT_EQ(refused, 172u);
  for (member& m : flood) m.reset();
  until("they have gone", [&] { return door->connections() == 2; });
  EXPECT_EQ(door->members(), 2u);
}
TEST_F(SwarmDoor, Members_that_ask_and_ask_and_read_nothing_keep_nothing_from_others) {
  std::vector<member> flood;
  for (int i = 0; i < 40; ++i) flood.push_back(enter(INADDR_LOOPBACK + 65 + static_cast<std::uint32_t>(i) / 4));
  const byte_vector join = join_bytes(ref, "66");
  byte_vector many;
  for (int i = 0; i < 200; ++i) many.insert(many.end(), join.begin(), join.end());
  std::vector<std::size_t> said(flood.size());
  const auto go_on = [&] {
    for (std::size_t i = 0; i < flood.size(); ++i)
      said[i] = (said[i] + write_some(flood[i].stream(), std::span(many).subspan(said[i])).bytes) % many.size();
  };
  member a = enter(), b = enter();
  for (int round = 0; round < 200; ++round) {
    go_on();
    for (int i = 0; i < 20; ++i) owner->event_loop().run_one_for(0ms);
    if (round % 20 != 19) continue;
    ask(a, "1"), ask(b, "2");
    EXPECT_TRUE(addresses(ask(a, "1")).contains(listed(2))) << round;
  }
}

TEST_F(SwarmDoor, Seats_are_used_again_with_other_numbers) {
  member stays = enter();
  auto known = ask(stays, "1");
  std::set<std::uint64_t> numbers{known.self};
  for (int i = 0; i < 100 && !HasFailure(); ++i) {
    member m = enter();
    const auto mine = ask(m, std::to_string(1000 + i), known.number);
    EXPECT_TRUE(numbers.insert(mine.self).second) << "a number of its own";
    EXPECT_EQ(mine.count, 1u);
    const auto seen = ask(stays, "1", known.number);
    EXPECT_NE(seen.number, known.number);
    EXPECT_EQ(addresses(seen), names{listed(1000 + i)});
    known = seen;
    if (i % 2 == 0) m.reset();
    else m.half_close();
    until("it is gone", [&] { return door->members() == 1; });
  }
}

TEST_F(SwarmDoor, Polls_and_rounds_of_ever_changing_members_allocate_nothing_that_stays) {
  generator random(8);
  live_heap heap;
  std::size_t files = 0;
  for (int round = 0; round < 200 && !HasFailure(); ++round) {
    const auto model = *owner->add_tensors(*source);
    std::vector<member> members;
    for (std::uint32_t i = 0; i < 20; ++i) {
      members.push_back(enter(INADDR_LOOPBACK + static_cast<std::uint32_t>(random.below(40))));
      ASSERT_TRUE(members.back().join(model, std::to_string(1 + i)));
    }
    until("all have seats", [&] { return door->members() == 20; });
    for (member& m : members) EXPECT_FALSE(hear_list(m)->refused());
    if (round % 3 == 0) members.erase(members.begin() + 7, members.end());
    ASSERT_TRUE(owner->withdraw(model));
    members.clear();
    until("all have gone", [&] { return door->connections() == 0; });
    EXPECT_EQ(door->groups(), 0u);
    if (round == 20) heap = heap_now(), files = descriptors();
    if (round > 20) {
      EXPECT_EQ(heap_now(), heap) << round;
      EXPECT_EQ(descriptors(), files) << round;
    }
  }
}
TEST_F(SwarmDoor, A_poll_allocates_nothing) {
  std::vector<member> all;
  for (std::uint32_t i = 0; i < 16; ++i) {
    all.push_back(enter());
    ask(all.back(), std::to_string(1 + i));
  }
  const byte_vector full = join_bytes(ref, "1"), known = join_bytes(ref, "1", ask(all[0], "1").number);
  std::array<std::byte, 4096> room;
  const auto poll = [&](const byte_vector& join) {
    std::size_t got = 0;
    all[0].say(join);
    for (int i = 0; i < 1000 && got == 0; ++i) {
      owner->event_loop().run_one_for(1ms);
      got = read_some(all[0].stream(), room).bytes;
    }
    return got;
  };
  poll(full), poll(known);
  const allocation_watch watch;
  for (int i = 0; i < 100; ++i) {
    EXPECT_GT(poll(full), 15u * 64);
    EXPECT_LT(poll(known), 200u);
  }
  EXPECT_EQ(watch.count(), 0u);
}

/// What a random member has said last, and where it is.
struct random_member {
  member_in_hand<tp::posix_stream> at;
  int host;
  std::size_t model = 0;
  bool seated = false;
  std::string address{};
  member_state state{};
};
TEST_F(SwarmDoor, Random_members_are_told_of_those_that_are_there_and_where_those_are) {
  const std::array<tp::reference, 3> models{ref, *owner->add_tensors(*source), *owner->add_tensors(*source)};
  for (std::uint64_t seed = 1; seed <= 4 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    generator random(seed);
    std::vector<random_member> all;
    std::size_t told = 0, refusals = 0;
    for (int step = 0; step < 600 && !HasFailure(); ++step) {
      if (all.empty() || (all.size() < 60 && random.below(4) == 0)) {
        const int host = 1 + static_cast<int>(random.below(12));
        all.push_back({enter((127u << 24) + static_cast<std::uint32_t>(host)), host});
        until("it is let in", [&] { return door->connections() == all.size(); });
      }
      const std::size_t i = random.below(all.size());
      random_member& m = all[i];
      if (random.below(12) == 0) {
        m.at.reset();
        all.erase(all.begin() + static_cast<std::ptrdiff_t>(i));
        until("it is gone", [&] { return door->connections() == all.size(); });
        continue;
      }
      if (random.below(8) == 0) {
        byte_vector body = random.below(2) == 0 ? random.bytes(random.below(70)) : join_body("8003");
        if (body.size() > 5) body[5] = std::byte(200);
        ASSERT_TRUE(m.at.say(message_bytes(static_cast<std::uint32_t>(swarm::join_kind + random.below(3)),
                                           {&models[random.below(3)], 1}, body)));
        continue;
      }
      const std::size_t model = random.below(6) == 0 ? random.below(3) : m.model;
      const std::string port = std::to_string(1 + random.below(3)), own = "127.0.0." + std::to_string(m.host);
      const bool lies = random.below(6) == 0;
      std::string said = random.below(2) == 0 ? port : own + ":" + port;
      if (lies) said = "127.0.0.99:" + port;
      const auto state = static_cast<member_state>(random.below(2));
      const auto list = ask(m.at, models[model], said, 0, state);
      m.model = model, m.seated = !list.refused(), m.address = own + ":" + port, m.state = state;
      EXPECT_FALSE(lies && m.seated);
      refusals += list.refused();
      std::multiset<std::pair<std::string, member_state>> there;
      for (const random_member& other : all)
        if (&other != &m && other.seated && other.model == model) there.emplace(other.address, other.state);
      std::set<std::uint64_t> numbers{list.self};
      for (const auto& e : list.members()) {
        const auto found = there.find({std::string(e.address.view()), e.state});
        ASSERT_NE(found, there.end()) << e.address.view() << " is nobody";
        there.erase(found);
        EXPECT_TRUE(numbers.insert(e.number).second);
        ++told;
      }
      EXPECT_EQ(door->members(),
                static_cast<std::size_t>(std::ranges::count_if(all, [](const auto& x) { return x.seated; })));
    }
    EXPECT_GT(told, 500u);
    EXPECT_GT(refusals, 20u);
    all.clear();
    until("all are gone", [&] { return door->connections() == 0; });
    EXPECT_EQ(door->members(), 0u);
  }
}

// Recipients of today know nothing of swarms.
TEST_F(SwarmDoor, Recipients_that_send_no_messages_pull_at_the_door_beside_members) {
  member a = enter(), b = enter(INADDR_LOOPBACK + 1);
  ask(a, "1"), ask(b, "2");
  serving runs(*owner);
  const std::string where = local(door->port());
  EXPECT_TRUE(arrives<net>(where, ref, *source));
  tp::reference other = ref;
  other.id.low ^= 1;
  const auto mine = blank<tiny>();
  EXPECT_EQ(net::download_tensors(where, other, *mine).error(), errc::unknown_reference);
  runs.stop();
  EXPECT_EQ(owner->status_of(ref)->completed, 1u);
  EXPECT_EQ(addresses(ask(a, "1")), names{"127.0.0.2:2"});
}
TEST_F(SwarmDoor, A_member_pulls_over_the_connection_on_which_it_asks) {
  member a = enter();
  ask(a, "1");
  ASSERT_TRUE(a.say(request(tp::frame_kind::describe, 1, ref.id, 0, 0)));
  ASSERT_TRUE(a.join(ref, "1"));
  std::set<tp::frame_kind> heard;
  for (int i = 0; i < 2; ++i) {
    const auto f = hear(a);
    ASSERT_TRUE(f);
    heard.insert(decoded(*f).m.kind);
  }
  EXPECT_EQ(heard, (std::set{tp::frame_kind::application, tp::frame_kind::description}));
}
TEST_F(SwarmDoor, It_has_the_errors_of_a_listener) {
  const auto taken = tp::open_swarm_door(*owner, std::string_view(local(door->port())));
  EXPECT_EQ(code_of(taken), errc::connection_failed);
  EXPECT_EQ(code_of(tp::open_swarm_door(*owner, std::string_view("nonsense"))), errc::bad_address);
}

/// A door over Unix sockets is the only port of its owner.
struct SwarmDoorOfPaths : house<unix_net, door_type<unix_net>::type, tp::unix_stream> {
  static own_folder& folder() {
    static own_folder one;
    return one;
  }
  SwarmDoorOfPaths() : house(unix_net::downloader::open(), folder() / "door") {}
  member enter() {
    auto s = tp::unix_connect(folder() / "door", 10s, {}, tp::unix_access::same_user);
    EXPECT_TRUE(succeeded(s));
    return member(std::move(*s));
  }
};
TEST_F(SwarmDoorOfPaths, Members_name_paths_and_nothing_else) {
  member a = enter(), b = enter();
  ask(a, "/run/model/a"), ask(b, "/run/model/b");
  EXPECT_EQ(addresses(ask(a, "/run/model/a")), names{"/run/model/b"});
  for (const std::string& said : names{"@name", "name", "./name", "8003", listed(8003), "0.0.0.0:80", " /run/b"}) {
    EXPECT_TRUE(ask(b, said).refused()) << said;
    EXPECT_EQ(ask(a, "/run/model/a").count, 0u) << said;
  }
  EXPECT_FALSE(ask(b, "/" + std::string(53, 'x')).refused());
}
TEST_F(SwarmDoorOfPaths, The_door_is_the_only_port_and_serves_recipients_and_members) {
  member a = enter(), b = enter();
  EXPECT_EQ(door->port(), 0u);
  ask(a, "/a"), ask(b, "/b");
  serving runs(*owner);
  EXPECT_TRUE(arrives<unix_net>(folder() / "door", ref, *source));
  runs.stop();
  EXPECT_EQ(ask(a, "/a").count, 1u);
  EXPECT_EQ(owner->status_of(ref)->completed, 1u);
}

// A publisher and a loop are enough: there need be no owner with a port of its own.
TEST(SwarmDoorOfAPublisher, It_is_the_only_listener) {
  using publisher = tp::publisher<net::parts, tp::no_lock, 16>;
  tp::event_loop io;
  const auto published = std::make_unique<publisher>();
  const auto source = random_model<tiny>(2);
  const auto ref = *published->add_tensors(*source);
  auto door = tp::swarm_door<net::parts, tp::tcp, publisher>::open(io, *published, any_port);
  ASSERT_TRUE(succeeded(door));
  std::atomic<bool> done{false};
  joined_thread recipient([&] {
    EXPECT_TRUE(arrives<net>(local(door->port()), ref, *source));
    done = true;
  });
  eventually("it has the model", [&] {
    io.run_one_for(10ms);
    return done.load();
  });
  EXPECT_EQ(published->status_of(ref)->completed, 1u);
}

// Several threads run the loop; members join from several at a time.
TEST(SwarmDoorOnThreads, Members_are_counted_rightly) {
  using threads_net = raw_net<tiny, tp::tcp_on_threads>;
  auto owner = threads_net::downloader::open({.listen = any_port});
  ASSERT_TRUE(owner);
  const auto source = random_model<tiny>(2);
  const auto ref = *owner->add_tensors(*source);
  auto door = tp::open_swarm_door<tp::tcp_on_threads>(*owner, any_port);
  ASSERT_TRUE(succeeded(door));
  serving runs(*owner, 3);
  {
    std::vector<member_in_hand<tp::posix_stream>> all;
    for (int i = 0; i < 60; ++i) {
      all.emplace_back(connected(door->port()));
      ASSERT_TRUE(all.back().join(ref, std::to_string(1 + i)));
    }
    eventually("all have seats", [&] { return door->members() == 60; });
    for (int i = 0; i < 60; i += 2) all[static_cast<std::size_t>(i)].reset();
    eventually("half have gone", [&] { return door->members() == 30; });
    EXPECT_EQ(door->groups(), 4u);
  }
  eventually("all have gone", [&] { return door->members() == 0; });
  runs.stop();
}

TEST(SwarmAddresses, A_machine_a_site_and_the_internet_are_apart) {
  const auto reach = [](const char* digits) { return swarm::reach_of(tp::ip_address::of_digits(digits)); };
  using enum tp::swarm_reach;
  for (const char* const a : {"127.0.0.1", "127.255.0.9", "::1", "::ffff:127.0.0.1"})
    EXPECT_EQ(reach(a), tp::optional(machine)) << a;
  for (const char* const a : {"10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.9.9", "192.168.0.1", "169.254.1.1",
                              "100.64.0.1", "100.127.0.1", "fc00::1", "fd12:3456::1"})
    EXPECT_EQ(reach(a), tp::optional(site)) << a;
  for (const char* const a :
       {"9.255.255.255", "11.0.0.1", "172.15.0.1", "172.32.0.1", "192.167.0.1", "192.169.0.1", "169.253.0.1",
        "100.63.0.1", "100.128.0.1", "126.0.0.1", "128.0.0.1", "2001:db8::1", "fbff::1", "fe00::1"})
    EXPECT_EQ(reach(a), tp::optional(internet)) << a;
  for (const char* const a : {"fe80::1", "febf::1"}) EXPECT_FALSE(reach(a)) << a;
}
TEST(SwarmAddresses, The_longest_has_room) {
  const auto from = tp::ip_address::of_digits("1111:2222:3333:4444:5555:6666:7777:8888");
  const auto at = swarm::listening_at(from, "65535");
  ASSERT_TRUE(at);
  EXPECT_EQ(at->view(), "[1111:2222:3333:4444:5555:6666:7777:8888]:65535");
  EXPECT_EQ(swarm::listening_at(from, "[1111:2222:3333:4444:5555:6666:7777:8888]:1")->view(),
            "[1111:2222:3333:4444:5555:6666:7777:8888]:1");
  EXPECT_EQ(swarm::listening_at(tp::ip_address::of_digits("::1"), "9")->view(), std::string("[::1]:") + "9");
}

}  // namespace swarm_door_test
