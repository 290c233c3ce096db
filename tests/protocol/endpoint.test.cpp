// One end of a connection: hostile bytes, both roles at once, application messages, and what happens when memory is
// short.
#include "support/messages.hpp"
#include "support/pair.hpp"
#include "support/whole_schedule.hpp"

namespace endpoint_test {

using namespace test;
using kind = tp::frame_kind;

/// Feeds bytes to an end, `every` at a time; the error that closes it, or nothing.
std::optional<errc> fed(party& p, const_byte_span bytes, std::size_t every = ~std::size_t{0}) {
  wire in, out;
  pipe_end stream(in, out, cut{every}, {});
  tp::no_transfer idle;
  in.put(bytes);
  for (std::uint64_t last = ~0ull; in.waiting() + out.carried != last;) {
    last = in.waiting() + out.carried;
    const auto did = tp::pump_once(p.end, idle, stream, {reinterpret_cast<std::byte*>(p.scratch.get()), 65536});
    if (!did) return did.error().code;
  }
  return std::nullopt;
}
std::optional<errc> fed(const_byte_span bytes, std::size_t every = ~std::size_t{0}) {
  party p(1);
  const auto one = fed(p, bytes, every);
  p.end.closed();
  EXPECT_EQ(p.pool.available(), 4u) << "a buffer was kept";
  return one;
}
tp::frame ask(kind k, std::uint32_t id, std::uint64_t offset = 0, std::uint32_t length = 0) {
  tp::frame m;
  m.kind = k;
  m.id = id;
  m.ref = {1, 2};
  m.offset = offset;
  m.length = length;
  return m;
}
byte_vector joined(const std::vector<tp::frame>& all) {
  byte_vector bytes;
  for (const auto& m : all) {
    const frame f = encode(m);
    bytes.insert(bytes.end(), f.bytes().begin(), f.bytes().end());
  }
  return bytes;
}

TEST(Endpoint, Frames_that_no_one_can_mean_close_the_connection_whatever_the_cut) {
  const auto word = [](std::uint64_t a, std::uint64_t b = 0, std::uint64_t c = 0) { return words{a, b, c}; };
  const std::pair<words, errc> cases[] = {
      {word(511), errc::too_large},
      {word(std::uint64_t{8u << 20} << 32), errc::too_large},
      {words{7 | 0xffffffffull << 32, ~0ull, ~0ull, ~0ull, 0xffffffff}, errc::too_large},
      {word(0), errc::bad_frame},
      {word(~0ull), errc::bad_frame},
      {word(0x5420544547ull), errc::too_large},
      {word(std::uint64_t{1} << 32, 3), errc::bad_frame},
      {word(std::uint64_t{1} << 32, 0), errc::unexpected_frame},  // a message that says nothing
  };
  for (const auto& [w, code] : cases)
    for (const std::size_t every : {1u, 5u, 8u, 1000u})
      EXPECT_EQ(fed(std::as_bytes(std::span(w)), every), code) << std::hex << w[0];
  EXPECT_EQ(fed(byte_vector(65536)), errc::bad_frame);
}

TEST(Endpoint, F2_a_claim_of_8_MiWords_is_refused_though_nothing_follows) {
  const words w{std::uint64_t{8u << 20} << 32};
  EXPECT_EQ(fed(std::as_bytes(std::span(w)).first(8)), errc::too_large);
}

TEST(Endpoint, R14_answers_to_an_end_that_asked_for_nothing_close_it) {
  for (const kind k : {kind::end, kind::confirmed, kind::refused, kind::description, kind::schema_page, kind::located})
    EXPECT_EQ(fed(joined({ask(k, 1)}), 9), errc::unexpected_frame);
  const frame chunk = chunk_frame(ask(kind::chunk, 1), some_body);
  EXPECT_EQ(fed(chunk.bytes(), 3), errc::unexpected_frame);
}

TEST(Endpoint, F17_a_request_of_an_unknown_kind_is_refused_and_the_next_one_answered) {
  const frame newer = single_segment(static_cast<kind>(17), {0}), next = encode(ask(kind::describe, 2));
  for (const std::size_t every : {std::size_t{1}, std::size_t{100}, ~std::size_t{0}}) {
    owning_pair p(cut{every});
    tp::no_transfer idle;
    for (const frame* const f : {&newer, &next}) p.to_left.put(f->bytes());
    std::vector<tp::frame> answers;
    p.owner_lies = [&](byte_vector& f) {
      answers.push_back(decoded(frame(f)).m);
      f.clear();
    };
    p.run(idle, idle, [&] { return answers.size() == 2; });
    ASSERT_EQ(answers.size(), 2u);
    EXPECT_EQ(std::tuple(answers[0].kind, answers[0].status, answers[0].id, answers[0].ref),
              std::tuple(kind::refused, tp::status::unsupported, 1u, tp::ref_id{}));
    EXPECT_EQ(std::tuple(answers[1].kind, answers[1].id), std::tuple(kind::description, 2u));
    EXPECT_EQ(p.left.end.heard(), 1u) << "a refusal keeps no connection";
  }
}

TEST(Endpoint, F17_for_an_end_that_owns_nothing_an_unknown_kind_is_a_wrong_answer) {
  party p(1);
  tp::no_owner nothing;
  tp::ignore_messages deaf;
  tp::endpoint<tested_framing, tp::default_limits, tp::no_owner, tp::ignore_messages> end(nothing, p.pool, deaf);
  tp::no_transfer idle;
  wire in, out;
  pipe_end stream(in, out, {}, {});
  in.put(single_segment(static_cast<kind>(17), {0}).bytes());
  EXPECT_EQ(code_of(tp::pump_once(end, idle, stream, {})), errc::unexpected_frame);
}

TEST(Endpoint, A_control_frame_above_4_KiB_is_too_large_though_an_application_message_may_be) {
  std::vector<std::string_view> names(250, "a name of twenty....");
  tp::frame m = ask(kind::locate, 1);
  m.names = names;
  EXPECT_EQ(fed(encode(m).bytes(), 700), errc::too_large);
  byte_vector body(64 * 1024 + 1);
  m = {};
  m.kind = kind::application;
  m.body = body;
  EXPECT_EQ(fed(encode(m).bytes()), errc::too_large);
  m.body = std::span(body).first(64 * 1024);
  EXPECT_EQ(fed(encode(m).bytes()), std::nullopt);
}

TEST(Endpoint, F7_a_hundred_pipelined_requests_are_answered_in_order) {
  const model source = mixed_model().fill(1);
  generator random(6);
  for (const std::size_t every : {std::size_t{1}, std::size_t{64}, std::size_t{5000}, ~std::size_t{0}}) {
    party p(1);
    p.publish(source);
    std::vector<tp::frame> asked;
    for (std::uint32_t i = 0; i < 100; ++i) {
      const std::uint64_t pick = random.below(6);
      if (pick < 3) asked.push_back(ask(std::array{kind::describe, kind::schema, kind::locate}[pick], i));
      else  // odd lengths, header included
        asked.push_back(ask(kind::pull, i, random.below(source.schema().image_bytes),
                            static_cast<std::uint32_t>(1 + random.below(900))));
      if (pick == 2) asked.back().names = some_names;
    }
    wire in, out;
    pipe_end stream(in, out, cut{every}, cut{every});
    tp::no_transfer idle;
    in.put(joined(asked));
    for (std::uint64_t last = ~0ull; in.waiting() + (out.carried << 20) != last;) {
      last = in.waiting() + (out.carried << 20);
      ASSERT_TRUE(tp::pump_once(p.end, idle, stream, {reinterpret_cast<std::byte*>(p.scratch.get()), 65536}));
    }
    const auto image = source.image_bytes();
    for (std::size_t at = 0, i = 0; at < out.bytes.size(); ++i) {
      const const_byte_span rest = std::span(out.bytes).subspan(at);
      const auto size = tp::detail::measure_frame(rest, ~std::size_t{0}, 16);
      ASSERT_TRUE(size && *size);
      const frame f(rest.first(**size));
      at += **size;
      ASSERT_LT(i, asked.size());
      ASSERT_EQ(static_cast<std::uint32_t>(f.word(2)), asked[i].id) << "R12: an answer out of order";
      if (asked[i].kind == kind::pull) {
        ASSERT_EQ(kind_of(f.bytes()), kind::chunk);
        const auto m = tp::detail::payload_prefix::read(std::span<const std::byte, 80>(f.bytes().data(), 80));
        ASSERT_TRUE(m);
        ASSERT_TRUE(std::equal(f.bytes().begin() + 80, f.bytes().begin() + 80 + m->length,
                               image.begin() + static_cast<std::ptrdiff_t>(m->offset)));
      } else {
        kind expected = kind::refused;
        if (asked[i].kind == kind::describe) expected = kind::description;
        if (asked[i].kind == kind::schema) expected = kind::schema_page;
        ASSERT_EQ(kind_of(f.bytes()), expected);
      }
      EXPECT_EQ(i == 99, at == out.bytes.size());
    }
  }
}

TEST(Endpoint, Withdrawing_while_a_chunk_is_half_sent_ends_the_connection_and_never_sends_other_bytes) {
  for (const bool republished : {false, true})
    for (std::uint64_t rounds = 1; rounds < 60; rounds += 7) {
      owning_pair p(cut{90});
      model mine = mixed_model(), other = mixed_model().fill(9);
      tp::land to(mine.destination());
      transfer<tp::fixed_bytes<1024>, tp::chunk_digest> t(to, {{1, 2}}, {}, 1);
      tp::no_transfer idle;
      p.right.end.begin_pull();
      p.run(idle, t, [&] { return p.rounds >= rounds || t.ended(); });
      ASSERT_FALSE(t.ended());
      if (republished) p.left.publish(other);
      else ASSERT_TRUE(p.left.references.withdraw({1, 2}));
      const auto done = p.pull(t);
      if (done) {  // not described yet, or confirmed already: exactly one of the versions
        EXPECT_TRUE(mine.same_tensors(done->version == version_of(p.source) ? p.source : other));
        EXPECT_TRUE(republished || done->version == version_of(p.source));
        continue;
      }
      const errc e = done.error().code;
      EXPECT_TRUE(e == errc::connection_lost || e == (republished ? errc::stale_version : errc::withdrawn))
          << to_string(e) << " after " << rounds;
      EXPECT_TRUE(!p.left_error || p.left_error->code == errc::connection_lost);
      EXPECT_TRUE(mine.guards_intact());
    }
}

TEST(Endpoint, Application_messages_of_every_size_in_both_directions) {
  generator random(8);
  for (const std::size_t every : {std::size_t{7}, std::size_t{1000}, ~std::size_t{0}}) {
    pair p(cut{every});
    tp::no_transfer idle;
    for (const std::size_t n : {0u, 1u, 7u, 8u, 400u, 500u, 512u, 4000u, 5000u, 65535u, 65536u}) {
      const auto there = random.bytes(n), back = random.bytes(n);
      ASSERT_TRUE(p.left.end.send_message(3, some_references, there));
      ASSERT_TRUE(p.right.end.send_message(4, {}, back));
      EXPECT_EQ(code_of(p.left.end.send_message(3, {}, {})), errc::busy);
      ASSERT_TRUE(p.run(idle, idle, [&] { return p.left.box.got.size() == 1 && p.right.box.got.size() == 1; })) << n;
      EXPECT_TRUE(p.right.box.got[0].body == there && p.right.box.got[0].kind == 3 &&
                  p.right.box.got[0].references.size() == 2);
      EXPECT_TRUE(p.left.box.got[0].body == back && p.left.box.got[0].kind == 4);
      p.left.box.got.clear(), p.right.box.got.clear();
      EXPECT_EQ(p.left.pool.available() + p.right.pool.available(), 8u) << "a buffer was kept";
    }
    const byte_vector much(64 * 1024 + 1);
    EXPECT_EQ(code_of(p.left.end.send_message(1, {}, much)), errc::does_not_fit);
    EXPECT_EQ(code_of(p.left.end.send_message(1, std::vector<tp::reference>(9), {})), errc::does_not_fit);
  }
}

/// Both ends pull from each other and send messages meanwhile.
void pull_both_ways(pair& p, const model& a, const model& b, model& a_copy, model& b_copy, std::size_t body,
                    int messages) {
  p.left.publish(a), p.right.publish(b);
  tp::land to_right(a_copy.destination()), to_left(b_copy.destination());
  transfer<tp::fixed_bytes<2'097'152>> right(to_right, {{1, 2}}, {}, 1), left(to_left, {{1, 2}}, {}, 1);
  p.left.end.begin_pull(), p.right.end.begin_pull();
  const byte_vector text(body, std::byte{5});
  int left_sent = 0, right_sent = 0;
  ASSERT_TRUE(p.run(left, right, [&] {
    if (left_sent < messages && p.left.end.send_message(1, {}, text)) ++left_sent;
    if (right_sent < messages && p.right.end.send_message(2, {}, text)) ++right_sent;
    return left.ended() && right.ended() && p.left.box.count == static_cast<std::uint64_t>(messages) &&
           p.right.box.count == static_cast<std::uint64_t>(messages);
  }));
  ASSERT_TRUE(left.outcome() && right.outcome());
  EXPECT_TRUE(a_copy.same_tensors(a) && b_copy.same_tensors(b) && a_copy.guards_intact() && b_copy.guards_intact());
  EXPECT_EQ(p.left.status().completed + p.right.status().completed, 2u);
}

TEST(Endpoint, Both_ends_pull_from_each_other_at_once_with_large_chunks_and_narrow_pipes) {
  model a, b, a_copy, b_copy;
  for (model* m : {&a, &a_copy}) m->add("w", dtype::f32, {700, 1000}).add("x", dtype::u8, {13}).ready();
  for (model* m : {&b, &b_copy}) m->add("v", dtype::f64, {300, 1001}).ready();
  a.fill(1), b.fill(2);
  pair p(cut{1500});
  p.to_left.capacity = p.to_right.capacity = 4096;
  p.left.box.keep = p.right.box.keep = false;
  pull_both_ways(p, a, b, a_copy, b_copy, 3000, 20);
}

TEST(Endpoint, Any_number_of_small_tensors_in_a_chunk_with_messages_between) {
  for (std::size_t n = 50; n < 70; ++n)
    for (const std::size_t every : {std::size_t{150}, ~std::size_t{0}}) {
      model a, b, a_copy, b_copy;
      for (model* m : {&a, &a_copy, &b, &b_copy}) {
        for (std::size_t i = 0; i < n; ++i) m->add("t" + std::to_string(i), dtype::u8, {3});
        m->ready();
      }
      a.fill(1), b.fill(2);
      pair p(cut{every});
      p.left.box.keep = p.right.box.keep = false;
      pull_both_ways(p, a, b, a_copy, b_copy, 10, 50);
      ASSERT_FALSE(testing::Test::HasFatalFailure()) << n << " tensors, cut " << every;
    }
}

struct wide_limits : tp::default_limits {
  static constexpr std::size_t pipelined_requests = 60;
};

/// Everything waits at once, and leaves in small steps: no plan holds more than it has room for.
template <class Limits>
void check_plans(std::size_t least, std::size_t most) {
  using owner = tp::owner<tp::xxhash_digest, Limits>;
  using output = tp::detail::stream_output<tested_framing, Limits, owner>;
  for (std::size_t n = least; n < most; n += whole_schedule() ? 1 : 5) {
    model m;
    for (std::size_t i = 0; i < n; ++i) m.add("t" + std::to_string(i), dtype::u8, {3});
    m.ready().fill(1);
    party p(1);
    tp::owner_storage<8, 64> storage;
    owner references(storage, [] { return 3ull; });
    ASSERT_TRUE(references.publish(m.source(), 9, true, {1, 2}, 1));
    typename owner::peer link;
    output out;
    tp::pending_reply r;
    for (std::uint32_t k = 0; k < owner::waiting_replies; ++k) {
      ASSERT_TRUE(references.handle(link, ask(k % 2 == 0 ? kind::pull : kind::describe, k, 8, 1'000'000), r));
      out.replies.push(r);
    }
    const auto scratch = byte_span(reinterpret_cast<std::byte*>(p.scratch.get()), 65536);
    tp::write_plan plan;
    ASSERT_TRUE(out.plan(plan, references, scratch, 1));
    out.sent(plan, 1, references, p.pool);  // the first reply has begun; now everything else wants to go as well
    ASSERT_TRUE(out.push_control(ask(kind::describe, 7)));
    ASSERT_TRUE(out.push_long(every_message()[13], p.pool));
    for (int round = 0; !out.idle() && round < 10'000; ++round) {
      ASSERT_TRUE(out.plan(plan, references, scratch, 1 << 20));
      ASSERT_GT(plan.bytes, 0u);
      ASSERT_LE(plan.span_count, tp::write_plan::max_spans) << n;
      ASSERT_LE(plan.item_count, plan.items.size()) << n;
      std::size_t sum = 0;
      for (std::size_t i = 0; i < plan.span_count; ++i) sum += plan.spans[i].size();
      ASSERT_EQ(sum, plan.bytes) << n;
      out.sent(plan, std::min<std::size_t>(plan.bytes, 37), references, p.pool);
    }
    ASSERT_TRUE(out.idle());
    ASSERT_EQ(storage.view().slots[0].pins, 0u);
  }
}
TEST(Endpoint, A_plan_never_holds_more_than_it_has_room_for) {
  check_plans<tp::default_limits>(1, 140);
  check_plans<wide_limits>(1, 10);
}

TEST(Endpoint, A_long_frame_waits_for_a_buffer_and_goes_on_when_one_is_free) {
  for (const std::size_t body : {std::size_t{600}, std::size_t{40'000}}) {
    pair p(cut{1000}, 2);
    tp::no_transfer idle;
    std::byte* const kept[] = {p.right.pool.acquire(), p.right.pool.acquire()};
    const byte_vector text(body, std::byte{5});
    ASSERT_TRUE(p.left.end.send_message(1, {}, text));
    p.run(idle, idle, [] { return false; });
    EXPECT_EQ(p.right.box.count, 0u);
    EXPECT_TRUE(p.right.end.stalled());
    EXPECT_FALSE(p.right_error);
    p.right.pool.release(kept[0]);
    EXPECT_TRUE(p.run(idle, idle, [&] { return p.right.box.count == 1; }));
    p.right.pool.release(kept[1]);
  }
}

TEST(Endpoint, Long_messages_both_ways_through_narrow_pipes_need_two_buffers_at_each_end) {
  pair p(cut{1000}, 2);
  p.to_left.capacity = p.to_right.capacity = p.sent_by_left().capacity = 4096;
  tp::no_transfer idle;
  const byte_vector text(64 * 1024, std::byte{5});
  for (std::uint64_t n = 1; n <= 5; ++n) {
    ASSERT_TRUE(p.left.end.send_message(1, {}, text) && p.right.end.send_message(1, {}, text));
    ASSERT_TRUE(p.run(idle, idle, [&] { return p.left.box.count == n && p.right.box.count == n; })) << n;
  }
}

/// Another thread takes a buffer as soon as this one has looked at the pool.
struct other_thread {
  static inline tp::buffer_pool<other_thread>* pool = nullptr;
  static inline std::byte* taken = nullptr;
  void lock() noexcept {}
  void unlock() noexcept {
    if (auto* const p = std::exchange(pool, nullptr)) taken = p->acquire();
  }
};
struct shared_owner : owner {
  using owner::owner;
  using lock_type = other_thread;
};
TEST(Endpoint, A_buffer_that_another_thread_takes_meanwhile_ends_no_pull_by_name) {
  struct side {
    std::vector<std::uint64_t> memory = std::vector<std::uint64_t>(8320), words = std::vector<std::uint64_t>(8192);
    tp::buffer_pool<other_thread> pool{std::as_writable_bytes(std::span(memory)), 66'560};
    tp::owner_storage<8, 64> storage;
    shared_owner references{storage, [n = std::uint64_t{0}]() mutable { return ++n; }};
    tp::ignore_messages handler;
    tp::endpoint<tested_framing, tp::default_limits, shared_owner, tp::ignore_messages> end{references, pool, handler};
  } left, right;
  wire to_left, to_right;
  pipe_end left_end(to_left, to_right, {}, {}), right_end(to_right, to_left, {}, {});
  const model source = mixed_model().fill(1);
  ASSERT_TRUE(left.references.publish(source.source(), version_of(source), true, {1, 2}, 0u));
  model mine = mixed_model();
  tp::land to(mine.destination());
  tp::transfer<tp::land, tp::fixed_bytes<1024>, tp::image_digest> t(to, {.ref = {1, 2}, .part = true}, {}, 1);
  tp::no_transfer idle;
  right.end.begin_pull();
  for (int i = 0; i < 1000 && !t.ended(); ++i)
    for (side* const s : {&left, &right}) {
      other_thread::pool = &s->pool;
      const auto scratch = std::as_writable_bytes(std::span(s->words));
      const auto moved = s == &left ? tp::pump_once(s->end, idle, left_end, scratch)
                                    : tp::pump_once(s->end, t, right_end, scratch);
      other_thread::pool = nullptr;
      if (other_thread::taken != nullptr) s->pool.release(std::exchange(other_thread::taken, nullptr));
      ASSERT_TRUE(succeeded(moved));
    }
  EXPECT_TRUE(completed(t.outcome()));
  EXPECT_TRUE(mine.same_tensors(source));
}

TEST(Endpoint, A_message_waits_for_a_handler_that_is_not_ready) {
  for (const std::size_t body : {std::size_t{10}, std::size_t{40'000}}) {
    owning_pair p(cut{1000});
    tp::no_transfer idle;
    p.right.box.takes = false;
    const byte_vector text(body, std::byte{5});
    ASSERT_TRUE(p.left.end.send_message(1, {}, text));
    EXPECT_FALSE(p.run(idle, idle, [&] { return p.right.box.count > 0; }));
    ASSERT_FALSE(p.right_error) << to_string(p.right_error->code);
    p.right.box.takes = true;
    EXPECT_TRUE(p.run(idle, idle, [&] { return p.right.box.count == 1; }));
  }
}

TEST(Endpoint, A_consumer_without_memory_is_asked_again) {
  struct reluctant : tp::land {
    using tp::land::land;
    int calls = 0;
    tp::prepared prepare(std::uint64_t offset, std::uint64_t length, std::span<byte_span> out) noexcept {
      return ++calls % 4 != 0 ? tp::prepared{} : tp::land::prepare(offset, length, out);
    }
  };
  for (const std::size_t every : {std::size_t{5}, std::size_t{300}, ~std::size_t{0}}) {
    owning_pair p(cut{every});
    model mine = mixed_model();
    reluctant to(mine.destination());
    tp::transfer<reluctant, tp::fixed_bytes<256>, tp::image_digest> t(to, {{1, 2}}, {}, 1);
    ASSERT_TRUE(p.pull(t)) << every;
    EXPECT_TRUE(mine.same_tensors(p.source));
  }
}

TEST(Endpoint, L10_a_transfer_cancelled_at_any_moment_writes_nothing_more_and_the_next_one_is_right) {
  for (std::uint64_t rounds = 1; rounds < 90; rounds += 3) {
    owning_pair p(cut{75});
    tp::no_transfer idle;
    std::uint32_t first = 1;
    {
      model doomed = mixed_model();  // freed, with its consumer and transfer, while its chunks are still coming
      tp::land to(doomed.destination());
      transfer<> t(to, {{1, 2}}, {}, first);
      p.right.end.begin_pull();
      p.run(idle, t, [&] { return p.rounds >= rounds || t.ended(); });
      t.fail({errc::cancelled, 0, 0, {}});
      p.right.end.end_pull(t);
      if (const auto bye = t.farewell(); bye && rounds % 2 == 0) p.right.end.send_control(*bye);
      EXPECT_TRUE(doomed.guards_intact());
    }
    receiving<> x({{1, 2}}, p.right.end.next_id());
    const auto done = p.pull(x.t);
    ASSERT_TRUE(done) << to_string(done.error().code) << " after " << rounds;
    EXPECT_TRUE(x.mine.same_tensors(p.source) && x.mine.guards_intact());
  }
}

// The other end takes nothing at this moment, so requests wait. It is not told once more, and would wait for its
// budget.
TEST(Endpoint, A_farewell_has_room_behind_requests_that_wait) {
  owning_pair p(cut{97});
  tp::no_transfer idle;
  std::uint32_t first = 1;
  for (std::uint64_t who = 1; who < 4; ++who) {
    receiving<tp::fixed_bytes<64>> x({.ref = {1, 2}, .recipient = {who}}, first);
    p.right.end.begin_pull();
    p.run(idle, x.t, [&] { return x.t.landed_bytes() > 100; });
    ASSERT_FALSE(x.t.ended());
    for (int i = 0; i < 8; ++i) {
      endpoint::plan_type plan;
      ASSERT_TRUE(p.right.end.plan_write(x.t, plan, {}, 1));
      ASSERT_TRUE(p.right.end.written(x.t, plan, 0));
    }
    x.t.fail({errc::cancelled, 0, 0, {}});
    p.right.end.end_pull(x.t);
    ASSERT_TRUE(x.t.farewell());
    EXPECT_TRUE(p.right.end.send_control(*x.t.farewell())) << who;
    p.run(idle, idle, [] { return false; });
    EXPECT_EQ(p.left.status().cancelled, who);
    first = p.right.end.next_id();
  }
}

}  // namespace endpoint_test
