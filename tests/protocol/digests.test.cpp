// The digests that an owner computes for others: in slices between other work, remembered, within budgets.
#include "support/pair.hpp"

namespace digests_test {

using namespace test;
using kind = tp::frame_kind;

/// Says how many bytes were hashed.
struct counting_hash : tp::xxhash_digest {
  static inline std::uint64_t bytes = 0;
  void update(const_byte_span more) noexcept {
    bytes += more.size();
    tp::xxhash_digest::update(more);
  }
};
struct tight : tp::default_limits {
  static constexpr std::uint64_t subset_bytes_per_second = 10 << 20;
  static constexpr std::uint64_t chunk_digest_bytes_per_second = 1 << 20;
};
struct no_subsets : tp::default_limits {
  static constexpr std::uint64_t subset_bytes_per_second = 0;
};
struct no_digests : tp::default_limits {
  static constexpr std::uint64_t chunk_digest_bytes_per_second = 0;
};

/// An owner of one image, and connections to it on which a test says what it wants.
template <class Limits = tp::default_limits>
struct served {
  using owner_type = tp::owner<counting_hash, Limits>;
  using end_type = tp::endpoint<tested_framing, Limits, owner_type, tp::ignore_messages>;

  struct connection {
    explicit connection(served& s) : to(s), end(s.machine, s.pool, s.handler), stream(in, out, {}, {}) {}
    void say(const tp::frame& m) { in.put(encode(m).bytes()); }
    /// One step of the owner's end, and what it hashed.
    std::uint64_t step() {
      const std::uint64_t before = counting_hash::bytes;
      tp::no_transfer idle;
      const auto did = tp::pump_once(end, idle, stream, to.scratch);
      failed = did ? errc{} : did.error().code;
      return counting_hash::bytes - before;
    }
    /// The first frame that has arrived whole.
    std::optional<frame> hear() {
      const const_byte_span have(out.bytes.data() + out.begin, out.waiting());
      const auto size = tp::detail::measure_frame(have, ~std::size_t{0}, 16);
      if (!size || !*size || have.size() < **size) return {};
      frame f(have.first(**size));
      out.begin += **size;
      return f;
    }
    /// Steps until a frame is there.
    frame answer() {
      for (int i = 0; i < 100'000 && failed == errc{}; ++i) {
        if (auto f = hear()) return *f;
        step();
      }
      ADD_FAILURE() << "no answer";
      return {};
    }
    served& to;
    end_type end;
    wire in, out;
    pipe_end stream;
    errc failed{};
  };

  explicit served(const model& m) : source(m) {
    counting_hash::bytes = 0;
    publish();
  }
  void publish() { EXPECT_TRUE(machine.publish(source.source(), 77, false, {1, 2}, 0u)); }

  const model& source;
  tp::owner_storage<4, 64> storage;
  owner_type machine{storage, [this] { return random(); }};
  generator random{1};
  std::vector<std::uint64_t> buffers = std::vector<std::uint64_t>(8 * 1024);
  tp::buffer_pool<> pool{std::as_writable_bytes(std::span(buffers)), 16 * 1024};
  tp::ignore_messages handler;
  std::vector<std::uint64_t> scratch_words = std::vector<std::uint64_t>(8 * 1024);
  byte_span scratch = std::as_writable_bytes(std::span(scratch_words));
};

tp::frame pull(std::uint32_t id, std::uint64_t offset, std::uint32_t length,
               tp::digest_kind digest = tp::digest_kind::xxh3_64) {
  tp::frame m;
  m.kind = kind::pull;
  m.id = id;
  m.ref = {1, 2};
  m.offset = offset;
  m.length = length;
  m.chunk_digest = digest;
  return m;
}
tp::frame describe(std::uint32_t id, std::uint64_t who = 0) {
  tp::frame m;
  m.kind = kind::describe;
  m.id = id;
  m.ref = {1, 2};
  m.recipient = {who};
  return m;
}
tp::frame locate(std::uint32_t id, std::span<const std::string_view> names) {
  tp::frame m;
  m.kind = kind::locate;
  m.id = id;
  m.ref = {1, 2};
  m.names = names;
  return m;
}
model large_model(std::size_t tensors = 8, std::uint64_t each = 1 << 20) {
  model m;
  for (std::size_t i = 0; i < tensors; ++i) m.add("t" + std::to_string(i), dtype::u8, {each});
  return std::move(m.ready().fill(3));
}
std::uint64_t digest_of(const model& m, std::uint64_t offset, std::uint64_t length) {
  return *tp::range_digest<tp::xxhash_digest>(m.source(), offset, length);
}

TEST(Digests, A_step_hashes_a_slice_and_who_reads_nothing_causes_the_digest_of_one_chunk) {
  const model source = large_model();
  served s(source);
  typename served<>::connection c(s);
  c.out.capacity = 0;
  constexpr std::uint32_t length = 4 << 20;
  for (std::uint32_t i = 0; i < 8; ++i) c.say(pull(i, i * 1000, length));
  std::uint64_t longest = 0;
  for (int i = 0; i < 1000; ++i) longest = std::max(longest, c.step());
  EXPECT_LE(longest, 256u << 10);
  EXPECT_LE(counting_hash::bytes, 2 * length) << "the chunk that is about to be sent, and the one behind it";
  c.out.capacity = ~std::size_t{0};
  for (std::uint32_t i = 0; i < 8; ++i) {
    const frame f = c.answer();
    ASSERT_EQ(kind_of(f.bytes()), kind::chunk);
    EXPECT_EQ(f.word(8), digest_of(source, i * 1000, length));
  }
  EXPECT_EQ(counting_hash::bytes, 8u * length);
}

TEST(Digests, Short_chunks_with_digests_leave_together) {
  const model source = large_model();
  served s(source);
  typename served<>::connection c(s);
  for (std::uint32_t i = 0; i < 8; ++i) c.say(pull(i, i * 1000, 4096));
  c.step();  // reads
  c.step();  // writes
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(c.hear()) << i;  // as many requests as one read takes
}

TEST(Digests, A_chunk_that_many_ask_for_is_hashed_once_and_again_after_it_was_published_anew) {
  const model source = large_model();
  served s(source);
  for (int i = 0; i < 5; ++i) {
    typename served<>::connection c(s);
    c.say(pull(1, 64, 1 << 20));
    EXPECT_EQ(c.answer().word(8), digest_of(source, 64, 1 << 20));
  }
  EXPECT_EQ(counting_hash::bytes, 1u << 20);
  s.publish();
  typename served<>::connection c(s);
  c.say(pull(1, 64, 1 << 20));
  EXPECT_EQ(c.answer().word(8), digest_of(source, 64, 1 << 20));
  EXPECT_EQ(counting_hash::bytes, 2u << 20);
}

TEST(Digests, A_peer_that_asks_and_hangs_up_has_a_budget_and_one_that_takes_what_it_asks_for_does_not_notice) {
  const model source = large_model();
  served<tight> s(source);
  s.machine.advance(1000ms);
  typename served<tight>::connection good(s);
  std::uint32_t id = 0;
  const auto take = [&] {
    ++id;
    good.say(pull(id, id * 4096, 256 << 10));
    const frame f = good.answer();
    EXPECT_EQ(f.word(8), digest_of(source, id * 4096, 256 << 10));
  };
  take();
  const std::uint64_t paid = counting_hash::bytes;
  std::uint64_t waited = 0;
  for (std::uint32_t i = 0; i < 50; ++i) {
    typename served<tight>::connection bad(s);
    bad.out.capacity = 0;
    bad.say(pull(1, i * 1000, 1 << 20));
    for (int k = 0; k < 20; ++k) bad.step();
    waited += bad.end.awaits_time();
    EXPECT_TRUE(!bad.end.awaits_time() || (!bad.end.output_ready() && !bad.end.works())) << "its driver sleeps";
  }
  EXPECT_GE(waited, 48u);
  EXPECT_LE(counting_hash::bytes - paid, tight::chunk_digest_bytes_per_second + (64 << 10));
  for (int i = 0; i < 20; ++i) take();

  typename served<tight>::connection later(s);
  later.say(pull(1, 5, 100));
  for (int i = 0; i < 10; ++i) later.step();
  EXPECT_TRUE(later.end.awaits_time());
  s.machine.advance(4000ms);
  EXPECT_EQ(later.answer().word(8), digest_of(source, 5, 100)) << "time gives the budget back";
}

TEST(Digests, More_connections_than_jobs_are_all_answered) {
  const model source = large_model();
  served s(source);
  std::vector<std::unique_ptr<typename served<>::connection>> all;
  for (std::uint32_t i = 0; i < 30; ++i) {
    all.push_back(std::make_unique<typename served<>::connection>(s));
    all.back()->say(pull(i, i, (1 << 20) + i));
  }
  std::size_t answered = 0;
  for (int round = 0; round < 3000 && answered < all.size(); ++round) {
    if (round == 5) all[3].reset(), all[7].reset(), answered += 2;  // two hang up, half-way
    for (std::uint32_t i = 0; i < all.size(); ++i) {
      if (!all[i]) continue;
      all[i]->step();
      if (const auto f = all[i]->hear()) {
        EXPECT_EQ(f->word(8), digest_of(source, i, (1 << 20) + i));
        all[i].reset();
        ++answered;
      }
    }
  }
  EXPECT_EQ(answered, 30u);
}

TEST(Digests, An_owner_may_refuse_to_compute_them) {
  const model source = large_model();
  served<no_digests> s(source);
  typename served<no_digests>::connection c(s);
  c.say(pull(1, 0, 1000));
  const decoded d{c.answer()};
  EXPECT_EQ(d.m.kind, kind::refused);
  EXPECT_EQ(d.m.status, tp::status::unsupported);
  EXPECT_EQ(counting_hash::bytes, 0u);
  c.say(pull(2, 0, 1000, tp::digest_kind::none));
  EXPECT_EQ(kind_of(c.answer().bytes()), kind::chunk);
}

TEST(Digests, A_withdrawal_ends_them) {
  const model source = large_model();
  served s(source);
  const std::string_view names[] = {"t0", "t1", "t2"};
  typename served<>::connection a(s), b(s);
  a.say(pull(1, 0, 4 << 20));
  b.say(locate(1, names));
  for (int i = 0; i < 4; ++i) a.step(), b.step();
  EXPECT_TRUE(a.end.works() && b.end.works());
  ASSERT_TRUE(s.machine.withdraw({1, 2}));
  const std::uint64_t before = counting_hash::bytes;
  for (auto* const c : {&a, &b}) {
    const decoded d{c->answer()};
    EXPECT_EQ(d.m.kind, kind::refused);
    EXPECT_EQ(d.m.status, tp::status::withdrawn);
  }
  EXPECT_EQ(counting_hash::bytes, before);
  s.publish();
  typename served<>::connection again(s);
  again.say(locate(1, names));
  EXPECT_EQ(kind_of(again.answer().bytes()), kind::located);
}

TEST(Digests, A_subset_is_hashed_in_slices_and_the_others_are_served_in_between) {
  const model source = large_model();
  served<tight> s(source);
  s.machine.advance(1000ms);
  const std::string_view most[] = {"t6", "t0", "t1", "t2", "t3", "t4", "t5"}, other[] = {"t7"};
  typename served<tight>::connection a(s), b(s);
  a.say(locate(1, most));
  std::uint64_t longest = 0;
  int steps = 0;
  std::optional<frame> answer;
  for (; !answer && steps < 1000; ++steps) {
    longest = std::max(longest, a.step());
    answer = a.hear();
    if (answer) break;
    EXPECT_TRUE(a.end.works());
    b.say(describe(static_cast<std::uint32_t>(steps)));
    EXPECT_EQ(kind_of(b.answer().bytes()), kind::description);
    b.say(locate(9, other));
    const decoded busy{b.answer()};
    EXPECT_EQ(busy.m.kind, kind::refused);
    EXPECT_EQ(busy.m.status, tp::status::busy);
    EXPECT_EQ(busy.m.delay_ms, tight::busy_delay.count());
  }
  EXPECT_LE(longest, 192u << 10);
  EXPECT_GE(steps, 7 * 1024 / 192 - 1);
  ASSERT_TRUE(answer);
  const decoded d{*answer};
  ASSERT_EQ(d.m.kind, kind::located);
  byte_vector bytes;
  for (std::size_t i = 0; i < 7; ++i) {
    const auto t = source.bytes_of("t" + std::to_string(i));
    bytes.insert(bytes.end(), t.begin(), t.end());
  }
  tp::xxhash_digest h;
  h.update(bytes);
  EXPECT_EQ(d.m.digest, h.digest());
  b.say(locate(10, other));
  EXPECT_EQ(kind_of(b.answer().bytes()), kind::located) << "it was put off, not refused";
}

TEST(Digests, A_subset_whose_connection_is_gone_makes_room_for_another) {
  const model source = large_model();
  served s(source);
  const std::string_view most[] = {"t6", "t0", "t1", "t2", "t3", "t4", "t5"}, other[] = {"t7"};
  {
    typename served<>::connection a(s);
    a.say(locate(1, most));
    for (int i = 0; i < 3; ++i) a.step();
    EXPECT_TRUE(a.end.works());
  }
  typename served<>::connection b(s);
  b.say(locate(1, other));
  EXPECT_EQ(kind_of(b.answer().bytes()), kind::located);
}

TEST(Digests, Subsets_that_nobody_asked_for_before_have_a_budget_and_the_others_do_not) {
  const model source = large_model(64, 16 << 10);
  served<tight> s(source);
  std::chrono::milliseconds now{1000};
  s.machine.advance(now);
  typename served<tight>::connection c(s);
  const auto ask = [&](std::size_t first, std::size_t n) {
    std::vector<std::string> names;
    std::vector<std::string_view> views;
    for (std::size_t i = first; i < first + n; ++i) names.push_back("t" + std::to_string(i));
    for (const auto& n_ : names) views.push_back(n_);
    c.say(locate(1, views));
    return decoded{c.answer()}.m.kind;
  };
  std::size_t located = 0, refused = 0;
  for (std::size_t k = 0; now < 6s; now += 10ms, s.machine.advance(now))
    for (int i = 0; i < 3; ++i, ++k)
      ++(ask(k % 32, 1 + k / 32 % 32) == kind::located ? located : refused);  // none comes again before 1,023 others
  EXPECT_GT(located, 0u);
  EXPECT_GT(refused, 0u);
  EXPECT_LE(counting_hash::bytes, 6 * tight::subset_bytes_per_second + (1 << 20))
      << "the budget of that time and the last that began within it";
  while (ask(0, 40) != kind::located) s.machine.advance(now += 100ms);
  const std::uint64_t before = counting_hash::bytes;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ask(0, 40), kind::located) << "it is remembered";
  EXPECT_EQ(counting_hash::bytes, before);
}

/// What a budget gives in so many seconds, if it is looked at so often and all that is left is used in pieces.
template <std::uint64_t PerSecond>
std::uint64_t given(std::uint64_t seconds, std::uint64_t every_ms, std::uint64_t piece) {
  tp::detail::digest_budget<PerSecond> budget;
  std::uint64_t spent = 0;
  for (std::uint64_t now = 1'000'000; now <= 1'000'000 + 1000 * seconds; now += every_ms) {
    const std::chrono::milliseconds at(now);
    for (; budget.left(at); spent += piece) budget.spend(piece, at);
  }
  return spent;
}
template <std::uint64_t PerSecond>
void expect_what_was_promised() {
  for (const std::uint64_t every_ms : {1u, 7u, 999u, 1000u, 100'000u})
    for (const std::uint64_t piece : {std::uint64_t{1}, PerSecond / 16 + 1}) {
      // what is not used is not saved up for longer than a second
      const std::uint64_t least = every_ms > 1000 ? PerSecond * (100'000 / every_ms) : PerSecond * 99;
      const std::uint64_t spent = given<PerSecond>(100, every_ms, piece);
      EXPECT_LE(spent, PerSecond * 101 + piece) << PerSecond << ' ' << every_ms << ' ' << piece;
      EXPECT_GE(spent, least) << PerSecond << ' ' << every_ms << ' ' << piece;
    }
}

TEST(Digests, A_budget_of_any_number_of_bytes_is_given_back_to_the_byte) {
  expect_what_was_promised<1>();
  expect_what_was_promised<999>();
  expect_what_was_promised<1000>();
  expect_what_was_promised<1999>();
  expect_what_was_promised<10'007>();
  tp::detail::digest_budget<0> none;
  EXPECT_FALSE(none.left(1h));
  tp::detail::digest_budget<~std::uint64_t{0}> any;
  for (std::uint64_t hour = 1; hour <= 10'000; ++hour) {
    ASSERT_TRUE(any.left(std::chrono::hours(hour))) << hour;
    any.spend(std::uint64_t{1} << 50, std::chrono::hours(hour));
  }
  tp::detail::digest_budget<1000> late;  // one long digest is paid off over the following seconds
  EXPECT_TRUE(late.left(1s));
  late.spend(5000, 1s);
  EXPECT_FALSE(late.left(5000ms));
  EXPECT_TRUE(late.left(5001ms));
}

TEST(Digests, Subsets_that_are_not_computed_at_all_are_refused_and_nobody_is_told_to_come_back) {
  const model source = large_model(2, 100);
  served<no_subsets> s(source);
  typename served<no_subsets>::connection c(s);
  const std::string_view names[] = {"t1"}, unknown[] = {"x"};
  for (const auto asked : {std::span(names), std::span(unknown)}) {
    c.say(locate(1, asked));
    const decoded d{c.answer()};
    EXPECT_EQ(d.m.kind, kind::refused);
    EXPECT_EQ(d.m.status, tp::status::unsupported);
  }
  c.say(describe(2));
  EXPECT_EQ(kind_of(c.answer().bytes()), kind::description) << "the whole is served";
  ASSERT_TRUE(s.machine.withdraw({1, 2}));
  c.say(locate(3, names));
  EXPECT_EQ(decoded{c.answer()}.m.status, tp::status::withdrawn);
}

TEST(Digests, C1_a_change_after_the_first_who_asked_is_noticed_by_the_next) {
  const model source = large_model(8, 1000);
  served s(source);
  typename served<>::connection c(s);
  const auto ask = [&](std::initializer_list<std::string_view> names) {
    const std::vector<std::string_view> all(names);
    c.say(locate(1, all));
    return decoded{c.answer()}.m.digest;
  };
  const auto first = ask({"t3", "t4"});
  const_cast<std::byte&>(*source.source().address(4)) ^= std::byte{1};
  EXPECT_EQ(ask({"t3", "t4"}), first) << "the digest is that of the bytes that were asked for first";
  EXPECT_NE(ask({"t4"}), first);
  s.publish();
  EXPECT_NE(ask({"t3", "t4"}), first) << "another publication is another matter";
}

TEST(Digests, A_frame_whose_image_is_withdrawn_when_a_part_of_it_has_left_does_not_go_on_as_another) {
  const model source = large_model(2, 100);
  for (const kind k : {kind::end, kind::description, kind::schema_page, kind::chunk}) {
    served s(source);
    typename served<>::connection c(s);
    c.out.capacity = 12;
    tp::frame m = pull(1, k == kind::end ? source.schema().image_bytes : 0, 50, tp::digest_kind::none);
    if (k == kind::description) m.kind = kind::describe;
    if (k == kind::schema_page) m.kind = kind::schema, m.offset = 0;
    c.say(m);
    for (int i = 0; i < 3; ++i) c.step();
    ASSERT_EQ(c.out.waiting(), 12u);
    ASSERT_TRUE(s.machine.withdraw({1, 2}));
    c.out.capacity = ~std::size_t{0};
    c.step();
    EXPECT_EQ(c.failed, errc::connection_lost) << static_cast<int>(k);
    EXPECT_EQ(c.out.waiting(), 12u);
  }
}

TEST(Digests, A_tensor_that_ends_where_the_scratch_memory_begins_is_no_part_of_it) {
  std::vector<std::uint64_t> block(8 + 2048);
  const auto bytes = std::as_writable_bytes(std::span(block));
  byte_vector strided(256);
  for (std::size_t i = 0; i < 64; ++i)
    bytes[i] = static_cast<std::byte>(i), strided[2 * i] = static_cast<std::byte>(100 + i);
  const std::uint64_t shape[] = {64};
  const std::int64_t strides[] = {2};
  const tp::tensor_view views[] = {{"a", dtype::u8, shape, bytes.data(), {}, 0, false},
                                   {"b", dtype::u8, shape, strided.data(), strides, 0, false}};
  const auto image = tp::dynamic_image::make(views);
  ASSERT_TRUE(image);
  const model unused = large_model(1, 8);
  served s(unused);
  ASSERT_TRUE(s.machine.publish(image->source(), 77, false, {1, 2}, 0u));
  s.scratch = bytes.subspan(64);
  typename served<>::connection c(s);
  c.out.capacity = 90;  // the prefix and a little payload
  for (std::uint32_t i = 0; i < 3; ++i) c.say(pull(i, image->schema().header_bytes, 128, tp::digest_kind::none));
  c.step(), c.step();
  ASSERT_EQ(c.out.waiting(), 90u);
  c.out.capacity = ~std::size_t{0};
  for (int k = 0; k < 3; ++k) {
    const frame f = c.answer();
    ASSERT_EQ(f.size(), 80u + 128);
    for (std::size_t i = 0; i < 64; ++i) {
      EXPECT_EQ(f.bytes()[80 + i], static_cast<std::byte>(i)) << k;
      EXPECT_EQ(f.bytes()[144 + i], static_cast<std::byte>(100 + i)) << k;
    }
  }
}

TEST(Digests, Short_chunks_of_strangers_do_not_keep_a_long_one_from_being_hashed) {
  const model source = large_model();
  served s(source);
  typename served<>::connection good(s), bad(s);
  good.say(pull(1, 0, 4 << 20));
  int i = 0;
  std::optional<frame> f;
  for (std::uint32_t n = 1; i < 5000 && !f; ++i) {
    s.machine.advance(std::chrono::milliseconds(1000 + i));
    good.step();
    f = good.hear();
    bad.say(describe(n, n + 1)), ++n;
    bad.say(pull(n, n * 7, 3)), ++n;
    for (int k = 0; k < 4; ++k) bad.step();
    while (bad.hear()) {
    }
  }
  ASSERT_TRUE(f) << "not answered while a stranger asks";
}

TEST(Digests, A_subset_whose_connection_takes_no_answers_keeps_nobody_from_another) {
  const model source = large_model(8, 4 << 20);
  served s(source);
  s.machine.advance(1000ms);
  typename served<>::connection good(s), bad(s);
  const std::vector<std::string_view> all{"t0", "t1", "t2", "t3"}, one{"t7"};
  bad.say(describe(1));
  bad.say(locate(2, all));
  bad.step();
  bad.step();
  // this end has something to say to it, which it does not read
  bad.out.capacity = 0;
  byte_vector body(6000);
  ASSERT_TRUE(bad.end.send_message(1, {}, body));
  good.say(describe(1));
  good.answer();
  bool located = false;
  for (int i = 0; i < 3000 && !located; ++i) {
    for (int k = 0; k < 5; ++k) bad.step();
    good.say(locate(static_cast<std::uint32_t>(i + 2), one));
    const frame f = good.answer();
    located = kind_of(f.bytes()) == kind::located;
    s.machine.advance(std::chrono::milliseconds(1000 + (i + 1) * 100));
  }
  EXPECT_TRUE(located);
  EXPECT_FALSE(bad.end.works()) << "its driver sleeps";
}

}  // namespace digests_test
