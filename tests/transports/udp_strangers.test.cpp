// A peer that has not proved its address gets nothing that others need: no bytes beyond what it sent, no place in the
// table, no time.
#include "udp_network.hpp"

namespace udp_strangers_test {

using namespace test;

struct owned {
  explicit owned(const tp::datagram_owner_options& options = {})
      : source(random_model<mlp>(1)), owner(std::move(*udp_net::downloader::open(options))),
        ref(*owner.add_tensors(*source)) {
    server = std::make_unique<serving>(owner);
  }
  /// Afterwards the owner may be asked for anything.
  void stop() { server.reset(); }
  void expect_a_pull() { EXPECT_TRUE(arrives<udp_net>(local(owner.port()), ref, *source)); }

  std::unique_ptr<mlp> source;
  udp_net::downloader owner;
  tp::reference ref;
  std::unique_ptr<serving> server;
};

TEST(UdpStrangers, An_unproven_address_never_gets_more_bytes_than_it_sent) {
  owned o;
  stranger s(o.owner.port());
  const auto ask = describe_of(o.ref);
  byte_vector many;
  for (std::uint32_t i = 0; i < 8; ++i) many.insert(many.end(), ask.bytes().begin(), ask.bytes().end());
  generator random(5);
  for (std::uint32_t i = 0; i < 400; ++i) {
    byte_vector junk(i);
    random.fill(junk);
    if (i % 4 == 0) s.say(random(), ask.bytes());
    else if (i % 4 == 1) s.say(0, many);
    else if (i > 0) s.say_bytes(junk);
    while (!s.hear(i % 50 == 0 ? 50ms : 0ms).empty()) EXPECT_LE(s.heard, s.sent);
  }
  while (!s.hear(100ms).empty()) EXPECT_LE(s.heard, s.sent);
  EXPECT_GT(s.heard, 0u);
  EXPECT_LE(s.heard, s.sent / 4) << "a word for each is much less than what was asked for";
  o.stop();
  EXPECT_EQ(o.owner.peers(), 0u);
  EXPECT_GT(o.owner.counts().strangers, 300u);
}

TEST(UdpStrangers, Nothing_that_is_as_short_as_a_word_is_answered_so_two_owners_never_talk) {
  owned o;
  stranger s(o.owner.port());
  for (std::size_t n = 1; n < tp::cookie_bytes + 16; ++n) s.say_bytes(byte_vector(n, std::byte{1}));
  EXPECT_TRUE(s.hear(100ms).empty());
}

TEST(UdpStrangers, A_stolen_cookie_is_worth_nothing_elsewhere) {
  owned o;
  stranger honest(o.owner.port()), thief(o.owner.port());
  const auto word = honest.word(), other = thief.word();
  ASSERT_NE(word, 0u);
  EXPECT_NE(word, other);
  const auto ask = describe_of(o.ref);
  thief.say(word, ask.bytes());
  EXPECT_EQ(thief.hear().size(), tp::cookie_bytes) << "its own word, and no description";
  EXPECT_TRUE(thief.hear(50ms).empty());
  o.stop();
  EXPECT_EQ(o.owner.peers(), 0u);
}

TEST(UdpStrangers, A_proved_address_is_answered) {
  owned o;
  stranger s(o.owner.port());
  const auto word = s.word();
  s.say(word, describe_of(o.ref).bytes());
  const auto answer = s.hear();
  ASSERT_GT(answer.size(), tp::cookie_bytes);
  EXPECT_EQ(tp::cookie_in(answer), word) << "what the owner says begins with the word, too";
  o.stop();
  EXPECT_EQ(o.owner.peers(), 1u);
}

TEST(UdpStrangers, Words_that_somebody_else_makes_up_do_not_stop_a_pull) {
  owned o;
  const auto mine = blank<mlp>();
  forged_udp::what = forged_udp::kind::made_up;
  const auto done = forged_udp::pull<udp_net::parts>(o.owner.port(), o.ref, *mine);
  ASSERT_TRUE(succeeded(done));
  EXPECT_TRUE(same(*mine, *o.source));
  o.stop();
  EXPECT_LE(o.owner.counts().strangers, 8u) << "the owner's word stays the recipient's";
}

TEST(UdpStrangers, An_owner_of_an_earlier_version_serves) {
  owned o;
  const auto mine = blank<mlp>();
  forged_udp::what = forged_udp::kind::earlier_owner;
  const auto done = forged_udp::pull<udp_net::parts>(o.owner.port(), o.ref, *mine);
  ASSERT_TRUE(succeeded(done));
  EXPECT_TRUE(same(*mine, *o.source));
}

TEST(UdpStrangers, Forged_addresses_take_no_place_and_honest_recipients_finish) {
  owned o({.peers = 4});
  std::vector<stranger> forgers;
  for (int i = 0; i < 50; ++i) forgers.emplace_back(o.owner.port());
  generator random(3);
  joined_thread flood([&](const std::stop_token& stop) {
    const auto ask = describe_of(o.ref);
    while (!stop.stop_requested()) {
      for (auto& f : forgers) f.say(random(), ask.bytes());
      be_slow(1ms);  // otherwise the kernel has to throw away what honest recipients say
    }
  });
  for (int i = 0; i < 3; ++i) o.expect_a_pull();
  flood.request_stop();
  flood.join();
  o.stop();
  EXPECT_LE(o.owner.peers(), 3u) << "those who pulled";
  EXPECT_EQ(o.owner.counts().refused_busy, 0u);
}

TEST(UdpStrangers, F16_other_protocols_and_noise_of_a_proved_peer_change_nothing) {
  owned o;
  stranger s(o.owner.port());
  const auto word = s.word();
  generator random(9);
  const auto ask = describe_of(o.ref);
  for (std::uint32_t i = 1; i < 3000; ++i) {
    byte_vector junk(random() % 1193);
    random.fill(junk);
    if (i % 3 == 0) {  // a valid frame with a few bytes of it changed
      junk.assign(ask.bytes().begin(), ask.bytes().end());
      for (int k = 0; k < 3; ++k) junk[random() % junk.size()] = std::byte(random());
    }
    s.say(word, junk);
  }
  for (const std::string_view text : {"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "SSH-2.0-OpenSSH_9.2p1\r\n",
                                      "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"})
    s.say(word, std::as_bytes(std::span(text.data(), text.size())));
  o.expect_a_pull();
  o.stop();
  EXPECT_GT(o.owner.counts().malformed, 100u);
  EXPECT_LE(o.owner.peers(), 2u);
}

TEST(UdpStrangers, R7_guessed_references_find_nothing_and_make_nobody_known) {
  owned o;
  stranger s(o.owner.port());
  const auto word = s.word();
  generator random(11);
  std::size_t descriptions = 0, answers = 0;
  for (std::uint32_t i = 1; i <= 2000; ++i) {
    tp::reference guess = o.ref;
    guess.id = {random(), random()};
    s.say(word, describe_of(guess, i).bytes());
    for (auto a = s.hear(0ms); !a.empty(); a = s.hear(0ms)) {
      ++answers;
      descriptions += a.size() > 160;
    }
  }
  EXPECT_FALSE(s.hear(500ms).empty() && answers == 0) << "a refusal is an answer";
  EXPECT_EQ(descriptions, 0u);
  o.expect_a_pull();
}

TEST(UdpStrangers, A_full_table_says_busy_and_remembers_nothing) {
  owned o({.peers = 2, .budgets = {.idle_if_full = 1h}});
  stranger one(o.owner.port()), two(o.owner.port()), three(o.owner.port());
  for (auto* s : {&one, &two}) {
    s->say(s->word(), describe_of(o.ref).bytes());
    EXPECT_GT(s->hear().size(), tp::cookie_bytes);
  }
  const auto word = three.word();
  three.say(word, describe_of(o.ref, 41).bytes());
  const auto answer = three.hear();
  ASSERT_GT(answer.size(), tp::cookie_bytes);
  const frame no(const_byte_span(answer).subspan(tp::cookie_bytes));
  tp::word_framing::decode_storage lists;
  tp::frame m;
  ASSERT_TRUE(tp::word_framing::decode(no.bytes(), m, lists));
  EXPECT_EQ(m.kind, tp::frame_kind::refused);
  EXPECT_EQ(m.status, tp::status::busy);
  EXPECT_EQ(m.id, 41u);
  EXPECT_EQ(m.ref, o.ref.id);
  EXPECT_GT(m.delay_ms, 0u);
  o.stop();
  EXPECT_EQ(o.owner.peers(), 2u);
  EXPECT_EQ(o.owner.counts().refused_busy, 1u);
}

TEST(UdpStrangers, A_recipient_waits_while_the_table_is_full_and_gets_its_turn) {
  owned o({.peers = 2, .budgets = {.idle_if_full = 300ms}});
  stranger one(o.owner.port()), two(o.owner.port());
  for (auto* s : {&one, &two}) {
    s->say(s->word(), describe_of(o.ref).bytes());
    EXPECT_GT(s->hear().size(), tp::cookie_bytes);
  }
  o.expect_a_pull();
  o.stop();
  EXPECT_GE(o.owner.counts().pushed_out, 1u);
}

// A proved address had a place before it had sent a frame: 15,000 ports of one machine held up all recipients.
TEST(UdpStrangers, A_proved_address_has_a_place_only_if_it_asks_for_what_is_there) {
  owned o({.peers = 1, .budgets = {.idle_if_full = 1h}});
  const std::array<std::byte, 1> rubbish{};
  tp::frame farewell;
  farewell.kind = tp::frame_kind::cancel;
  farewell.ref = o.ref.id;
  const frame guess = describe_of(tp::reference{{1, 2}, 0, 0}), bye = encode(farewell);
  std::vector<stranger> all;
  for (const const_byte_span frames : {const_byte_span(rubbish), guess.bytes(), bye.bytes()}) {
    all.emplace_back(o.owner.port());
    const auto word = all.back().word();
    all.back().say(word, frames);
    if (frames.data() == guess.bytes().data()) {
      EXPECT_GT(all.back().hear().size(), tp::cookie_bytes) << "a refusal is an answer";
    }
    EXPECT_NE(all.back().word(), 0u);
  }
  o.expect_a_pull();
  o.stop();
  EXPECT_EQ(o.owner.peers(), 1u);
  EXPECT_EQ(o.owner.counts().refused_busy, 0u);
}

TEST(UdpStrangers, Silent_peers_are_forgotten) {
  owned o({.budgets = {.idle = 100ms}});
  stranger s(o.owner.port());
  s.say(s.word(), describe_of(o.ref).bytes());
  EXPECT_GT(s.hear().size(), tp::cookie_bytes);
  o.expect_a_pull();
  o.stop();
  EXPECT_TRUE(runs_until("the peers are forgotten", o.owner, [&] { return o.owner.peers() == 0; }));
  EXPECT_EQ(o.owner.counts().aged, 2u);
}

}  // namespace udp_strangers_test
