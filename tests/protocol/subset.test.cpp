// Pulling named tensors: the right bytes land, with a digest and a fingerprint of their own.
#include "support/pair.hpp"

#include <tensorpull/consumers/any_schema/digest.hpp>
#include <tensorpull/core/describe.hpp>

namespace subset_test {

using namespace test;
using names = std::vector<std::string_view>;

model numbered(std::size_t n, std::uint64_t bytes = 40) {
  model m;
  for (std::size_t i = 0; i < n; ++i)
    m.add("t" + std::to_string(100 + i), i % 3 == 0 ? dtype::f32 : dtype::u8, {i % 5 == 4 ? 0 : bytes});
  return std::move(m.ready());
}
/// A model of some of those tensors.
model part_of(std::span<const std::string_view> wanted, std::uint64_t bytes = 40) {
  model m;
  for (const auto name : wanted) {
    const std::size_t i = std::stoul(std::string(name.substr(1))) - 100;
    m.add(std::string(name), i % 3 == 0 ? dtype::f32 : dtype::u8, {i % 5 == 4 ? 0 : bytes});
  }
  return std::move(m.ready());
}
bool holds(const model& mine, const model& source, const names& wanted) {
  return std::all_of(wanted.begin(), wanted.end(),
                     [&](std::string_view n) { return mine.bytes_of(n) == source.bytes_of(n); });
}

TEST(Subset, The_digest_and_the_fingerprint_are_those_of_an_image_of_the_subset_alone) {
  const model source = numbered(30).fill(1);
  generator random(2);
  for (int round = 0; round < 100; ++round) {
    names wanted;
    for (std::size_t i = 0; i < source.size(); ++i)
      if (random.below(3) == 0) wanted.push_back(source.schema().tensors[i].name);
    if (wanted.empty()) continue;
    std::swap(wanted.front(), wanted[random.below(wanted.size())]);  // the order of the request does not matter
    std::vector<tp::byte_range> ranges(wanted.size());
    const auto answer = tp::detail::find_subset(source.schema(), wanted, {}, ranges);
    ASSERT_TRUE(answer);
    model alone = part_of(wanted);
    EXPECT_EQ(answer->fingerprint, alone.schema().fingerprint);
    byte_vector bytes;
    const auto all = source.image_bytes();
    for (const auto& r : ranges)
      bytes.insert(bytes.end(), all.begin() + static_cast<std::ptrdiff_t>(r.begin),
                   all.begin() + static_cast<std::ptrdiff_t>(r.end));
    tp::xxhash_digest h;
    h.update(bytes);
    tp::detail::digest_job<tp::xxhash_digest> job;
    job.begin({0, 0, 0, 1, tp::digest_kind::xxh3_64}, answer->bytes, false);
    std::byte memory[64];
    while (job.left() > 0)
      ASSERT_TRUE(job.advance(
          source.source(), ranges.size(),
          [&](std::size_t i) { return tp::detail::strided_range<>{ranges[i].begin, ranges[i].end, {}}; },
          std::min<std::uint64_t>(job.left(), 1 + random.below(100)), memory));
    EXPECT_EQ(job.digest(), h.digest());
    EXPECT_EQ(answer->bytes, bytes.size());
    EXPECT_EQ(bytes.size(), alone.schema().data_bytes());
    EXPECT_TRUE(std::is_sorted(ranges.begin(), ranges.end(), [](auto a, auto b) { return a.end < b.end; }));
  }
}

TEST(Subset, Names_that_are_missing_or_come_twice_are_named) {
  const model source = numbered(5);
  std::vector<tp::byte_range> ranges(4);
  const auto find = [&](names wanted) { return tp::detail::find_subset(source.schema(), wanted, {}, ranges).error(); };
  EXPECT_EQ(find({"t100", "nope"}).name.view(), "nope");
  EXPECT_EQ(find({"t100", "nope"}).at, 1u);
  EXPECT_EQ(find({"t100", "t101", "t100"}).name.view(), "t100");
  EXPECT_EQ(find({""}).code, errc::bad_request);
}

template <class Chunking = tp::fixed_bytes<64>, class Integrity = tp::image_digest>
tp::result<tp::receipt> pull_part(pair& p, model& mine, const names& wanted, Chunking chunking = {}) {
  tp::land to(mine.destination());
  transfer<Chunking, Integrity> t(to, {.ref = {1, 2}, .subset = wanted}, chunking, p.right.end.next_id());
  return p.pull(t);
}

TEST(Subset, The_right_tensors_land) {
  const model source = numbered(40).fill(1);
  generator random(5);
  for (const std::size_t every : {std::size_t{1}, std::size_t{33}, ~std::size_t{0}}) {
    pair p(cut{every});
    p.left.publish(source, {1, 2}, 64);
    for (int round = 0; round < 12; ++round) {
      names wanted;
      for (std::size_t i = 0; i < source.size(); ++i)
        if (random.below(1 + static_cast<std::uint64_t>(round)) == 0) wanted.push_back(source.schema().tensors[i].name);
      if (wanted.empty()) continue;
      model mine = part_of(wanted);
      const auto done = [&] {
        if (round % 3 == 0) return pull_part(p, mine, wanted);
        if (round % 3 == 1) return pull_part<tp::per_tensor<100>, tp::chunk_and_image_digest>(p, mine, wanted);
        return pull_part<tp::bytes_up_to<1000>>(p, mine, wanted, tp::bytes_up_to<1000>{37});
      }();
      ASSERT_TRUE(completed(done)) << " round " << round;
      EXPECT_EQ(done->bytes, mine.schema().data_bytes());
      EXPECT_EQ(done->fingerprint, mine.schema().fingerprint);
      EXPECT_TRUE(holds(mine, source, wanted) && mine.guards_intact());
    }
    EXPECT_EQ(p.left.status().completed, p.left.status().final());
  }
}

struct watched : tp::land {
  using tp::land::land;
  tp::result<void> chunk(std::uint64_t at, std::uint64_t n) noexcept {
    ends.push_back(at + n);
    return tp::land::chunk(at, n);
  }
  std::vector<std::uint64_t> ends;
};
TEST(Subset, A_chunk_of_per_tensor_ends_where_a_named_tensor_ends) {
  const model source = numbered(40).fill(1);
  for (const std::size_t step : {1u, 2u, 7u}) {
    pair p;
    p.left.publish(source, {1, 2}, 64);
    names wanted;
    for (std::size_t i = 3; i < source.size(); i += i % 4 == 0 ? step : 1)
      wanted.push_back(source.schema().tensors[i].name);
    model mine = part_of(wanted);
    watched to(mine.destination());
    tp::transfer<watched, tp::per_tensor<1000>, tp::image_digest> t(to, {.ref = {1, 2}, .subset = wanted}, {},
                                                                    p.right.end.next_id());
    ASSERT_TRUE(completed(p.pull(t)));
    std::vector<std::uint64_t> ends;
    for (const auto& e : mine.schema().entries())
      if (e.end != e.begin) ends.push_back(e.end);
    EXPECT_EQ(to.ends, ends) << step;
  }
}

TEST(Subset, L7_empty_tensors_first_last_between_and_alone) {
  const model source = numbered(25).fill(1);  // t104, t109, ... are empty
  pair p(cut{50});
  p.left.publish(source, {1, 2}, 64);
  for (const names& wanted : {names{"t104"}, names{"t104", "t109"}, names{"t100", "t104"}, names{"t104", "t105"},
                              names{"t109", "t110", "t114"}, names{"t100", "t124"}, names{"t124"}}) {
    model mine = part_of(wanted);
    const auto done = pull_part(p, mine, wanted);
    ASSERT_TRUE(completed(done)) << ' ' << wanted[0];
    EXPECT_TRUE(holds(mine, source, wanted));
  }
}

TEST(Subset, A_whole_pull_after_a_subset_that_ended_badly_is_counted_by_the_whole_digest) {
  const model source = numbered(10).fill(1);
  pair p;
  p.left.publish(source, {1, 2}, 64);
  tp::no_transfer idle;
  {
    const names wanted{"t100"};
    model part = part_of(wanted);
    tp::land to(part.destination());
    transfer<> t(to, {.ref = {1, 2}, .subset = wanted}, {}, 1);
    p.right.end.begin_pull();
    p.run(idle, t, [&] { return t.landed_bytes() > 0; });
    t.fail({errc::cancelled, 0, 0, {}});
    p.right.end.end_pull(t);  // and the owner never hears of it
  }
  model mine = numbered(10);
  const auto done = pull_into(p, mine);
  ASSERT_TRUE(succeeded(done));
  EXPECT_EQ(p.left.status().completed, 1u);
  EXPECT_EQ(p.left.status().failed, 0u);
}

TEST(Subset, Names_that_the_owner_lacks_are_refused_by_name) {
  const model source = numbered(10).fill(1);
  pair p;
  p.left.publish(source);
  model mine;
  mine.add("t100", dtype::f32, {40}).add("absent", dtype::f32, {1}).ready();
  const auto done = pull_part(p, mine, {"t100", "absent"});
  ASSERT_EQ(code_of(done), errc::bad_request);
  EXPECT_EQ(done.error().name.view(), "absent");
  EXPECT_TRUE(mine.untouched());
}

TEST(Subset, A_tensor_of_another_shape_is_named) {
  const model source = numbered(10).fill(1);
  pair p;
  p.left.publish(source);
  model mine;
  mine.add("t100", dtype::f32, {40}).add("t103", dtype::f32, {8, 5}).ready();
  const auto done = pull_part(p, mine, {"t100", "t103"});
  EXPECT_EQ(code_of(done), errc::schema_mismatch);
  EXPECT_EQ(done.error().name.view(), "t103");
  EXPECT_TRUE(mine.untouched());
}

TEST(Subset, Names_that_one_request_cannot_carry_are_an_error_and_the_connection_goes_on) {
  model source = numbered(400).fill(1);
  model long_name;
  long_name.add("t100", dtype::f32, {40}).add(std::string(4090, 'n'), dtype::f32, {1}).ready().fill(1);
  pair p(cut{1000});
  p.left.publish(source, {1, 2}, 64);
  p.left.publish(long_name, {3, 4}, 64);
  names all, every_second;
  for (std::size_t i = 0; i < 400; ++i) all.push_back(source.schema().tensors[i].name);
  for (std::size_t i = 0; i < 200; i += 2) every_second.push_back(source.schema().tensors[i].name);
  // without a schema nobody knows how the names would have to be put in order
  const auto without_schema = [&](const names& wanted) {
    tp::basic_digest<> to;
    tp::transfer<tp::basic_digest<>, tp::fixed_bytes<64>, tp::image_digest> t(to, {.ref = {1, 2}, .subset = wanted}, {},
                                                                              p.right.end.next_id());
    return p.pull(t);
  };
  EXPECT_EQ(code_of(without_schema(all)), errc::does_not_fit);
  EXPECT_EQ(code_of(without_schema(every_second)), errc::does_not_fit);
  EXPECT_TRUE(without_schema(names{all[3], all[200]}));
  model target;
  target.add(std::string(4090, 'n'), dtype::f32, {1}).ready();
  const auto done = pull_into(p, target, {.ref = {3, 4}, .part = true});
  ASSERT_EQ(code_of(done), errc::does_not_fit);
  EXPECT_EQ(done.error().name.view().substr(0, 10), "nnnnnnnnnn");
  names few{all[3], all[4], all[200]};
  model mine = part_of(few);
  ASSERT_TRUE(pull_part(p, mine, few));
  EXPECT_TRUE(holds(mine, source, few));
}

TEST(Subset, A_destination_with_a_part_is_filled_whatever_tensors_are_named_besides) {
  const model source = numbered(20).fill(1);
  pair p;
  p.left.publish(source);
  const names few{"t103", "t107"}, others{"t101", "t102", "t109"};
  model mine = part_of(few);
  ASSERT_TRUE(pull_into(p, mine, {.ref = {1, 2}, .subset = others, .part = true}));
  EXPECT_TRUE(holds(mine, source, few));
}

TEST(Subset, A_locate_waits_for_the_application_message_before_it) {
  const model source = numbered(20).fill(1);
  pair p(cut{10});
  p.left.publish(source);
  const byte_vector body(5000, std::byte{9});
  ASSERT_TRUE(p.right.end.send_message(1, {}, body));
  const names wanted{"t100", "t101"};
  model mine = part_of(wanted);
  ASSERT_TRUE(pull_part(p, mine, wanted));
  ASSERT_EQ(p.left.box.got.size(), 1u);
  EXPECT_EQ(p.left.box.got[0].body, body);
}

TEST(Subset, Located_ranges_that_lie_move_no_data) {
  const model source = numbered(20).fill(1);
  const names wanted{"t100", "t101", "t110"};
  const auto caught = [&](auto change) {
    pair p;
    p.left.publish(source);
    static std::vector<tp::byte_range> ranges;
    p.owner_lies = lie_about(tp::frame_kind::located, [change](tp::frame& m) {
      ranges.assign(m.ranges.begin(), m.ranges.end());
      change(ranges);
      m.ranges = ranges;
    });
    model mine = part_of(wanted);
    const auto done = pull_part(p, mine, wanted);
    EXPECT_TRUE(mine.untouched());
    return done.error().code;
  };
  using list = std::vector<tp::byte_range>;
  EXPECT_EQ(caught([](list& r) { r[0].begin = 0; }), errc::bad_frame) << "inside the header";
  EXPECT_EQ(caught([](list& r) { r[2].end = ~0ull; }), errc::bad_frame);
  EXPECT_EQ(caught([](list& r) { std::swap(r[1].begin, r[1].end); }), errc::bad_frame);
  EXPECT_EQ(caught([](list& r) { r[1] = r[0]; }), errc::bad_frame) << "overlap";
  EXPECT_EQ(caught([](list& r) { r.pop_back(); }), errc::bad_frame);
  EXPECT_EQ(caught([](list& r) { r.push_back(r.back()); }), errc::bad_frame);
  EXPECT_EQ(caught([](list& r) { r[0].end -= 1; }), errc::schema_mismatch);
  EXPECT_EQ(caught([](list& r) { r[2].end += 1; }), errc::schema_mismatch);
}

// More names than one request carries, and ranges with more gaps than a recipient has memory for.

/// A model of `n` tensors whose names have `length` characters: of three dtypes, some empty.
model long_named(std::size_t n, std::size_t length) {
  model m;
  for (std::size_t i = 0; i < n; ++i) {
    std::string name = "p" + std::to_string(1000 + i) + ".";
    name.resize(length, 'x');
    const dtype small = i % 3 == 0 ? dtype::f32 : dtype::u8;
    m.add(std::move(name), i % 7 == 0 ? dtype::i64 : small, {i % 11 == 10 ? 0 : i % 5 + 1});
  }
  return std::move(m.ready());
}
names listed(const model& m, bool backwards = false) {
  names all;
  for (const auto& t : m.schema().entries()) all.push_back(t.name);
  if (backwards) std::reverse(all.begin(), all.end());
  return all;
}
std::uint64_t digest_of(const model& m) {
  tp::xxhash_digest h;
  for (const auto& t : m.schema().entries()) h.update(m.bytes_of(t.name));
  return h.digest();
}

TEST(Subset, Any_number_of_tensors_lands_adjacent_or_not) {
  const model source = long_named(400, 60).fill(1);
  int round = 0;
  for (const std::size_t every : {1u, 2u, 3u})
    for (const std::size_t most : {13u, 14u, 24u, 25u, 26u, 33u, 34u, 100u, 400u}) {
      model mine = some_of(source, [&](std::size_t i) { return i % every == 0 && i / every < most; });
      pair p(cut{++round % 2 == 0 ? 700u : ~std::size_t{0}});
      p.left.publish(source, {1, 2}, 1);
      const names wanted = listed(mine, round % 3 == 0);
      const auto done = round % 2 == 0 ? pull_part(p, mine, wanted)
                                       : pull_part<tp::per_tensor<3>, tp::chunk_and_image_digest>(p, mine, wanted);
      ASSERT_TRUE(confirmed(done)) << ", " << wanted.size() << " tensors, every " << every;
      EXPECT_EQ(done->bytes, mine.schema().data_bytes());
      EXPECT_EQ(done->fingerprint, mine.schema().fingerprint);
      EXPECT_EQ(done->digest, digest_of(mine));
      EXPECT_TRUE(holds(mine, source, wanted) && mine.guards_intact());
      EXPECT_EQ(p.left.status().completed, 1u);
    }
}
TEST(Subset, An_answer_to_many_short_names_is_no_longer_than_a_page) {
  model source;
  for (std::size_t i = 0; i < 100; ++i) source.add("p" + std::to_string(100 + i), dtype::f32, {2});
  source.ready().fill(1);
  for (std::size_t most = 56; most < 66; ++most) {  // an answer has fewer ranges than a request could have names
    model mine = some_of(source, [&](std::size_t i) { return i < most; });
    pair p;
    p.left.publish(source, {1, 2}, 1);
    p.owner_lies = [](const byte_vector& f) {
      if (kind_of(f) == tp::frame_kind::located) {
        EXPECT_LE(f.size(), tp::default_limits::page_bytes);
      }
    };
    const auto done = pull_part(p, mine, listed(mine));
    ASSERT_TRUE(succeeded(done)) << ", " << most;
    EXPECT_TRUE(holds(mine, source, listed(mine)));
  }
}
TEST(Subset, A_destination_that_is_a_part_needs_no_list_of_its_names) {
  const model source = long_named(200, 40).fill(1);
  for (const std::size_t most : {1u, 5u, 200u}) {
    model mine = some_of(source, [&](std::size_t i) { return i % 2 == 1 && i < most + 1; });
    pair p;
    p.left.publish(source, {1, 2}, 1);
    const auto done = pull_into(p, mine, {.ref = {1, 2}, .part = true});
    ASSERT_TRUE(succeeded(done));
    EXPECT_EQ(done->digest, digest_of(mine));
    EXPECT_TRUE(holds(mine, source, listed(mine)));
  }
}
TEST(Subset, A_part_whose_tensors_are_all_empty_lands) {
  model source;
  for (std::size_t i = 0; i < 120; ++i)
    source.add("p" + std::to_string(1000 + i) + std::string(40, 'x'), dtype::f32, {i < 4 || i % 50 == 49 ? 3u : 0u});
  source.ready().fill(1);
  for (const std::size_t most : {60u, 99u, 110u}) {
    model mine = some_of(source, [&](std::size_t i) { return i < most; });
    pair p;
    p.left.publish(source, {1, 2}, 1);
    const auto done = pull_part(p, mine, listed(mine));
    ASSERT_TRUE(confirmed(done));
    EXPECT_TRUE(holds(mine, source, listed(mine)));
    EXPECT_EQ(p.left.status().completed, 1u);
  }
}
TEST(Subset, Of_many_tensors_the_one_that_is_not_there_is_named) {
  const model source = long_named(100, 60).fill(1);
  for (const std::size_t wrong : {0u, 50u, 99u}) {
    model mine;
    for (const auto& t : source.schema().entries())
      mine.add(std::string(t.name) + (t.name == source.name(wrong) ? "y" : ""), t.type,
               {t.extents().begin(), t.extents().end()});
    mine.ready();
    pair p;
    p.left.publish(source);
    const auto done = pull_part(p, mine, listed(mine));
    ASSERT_EQ(code_of(done), errc::bad_request);
    EXPECT_EQ(done.error().name.view().substr(0, 6), source.name(wrong).substr(0, 6));
  }
}
TEST(Subset, L3_of_many_tensors_the_one_that_differs_is_named) {
  const model source = long_named(100, 60).fill(1);
  for (const std::size_t wrong : {0u, 50u, 99u}) {
    model mine = some_of(source, [&](std::size_t i) { return i != wrong; });
    model other;
    for (const auto& t : mine.schema().entries())
      other.add(std::string(t.name), t.type, {t.extents().begin(), t.extents().end()});
    other.add(source.name(wrong), dtype::u16, {77}).ready();
    pair p;
    p.left.publish(source);
    const auto done = pull_part(p, other, listed(other));
    ASSERT_EQ(code_of(done), errc::schema_mismatch);
    EXPECT_EQ(done.error().name.view().substr(0, 6), source.name(wrong).substr(0, 6));
  }
}
TEST(Subset, Many_names_have_to_be_those_of_the_destination) {
  const model source = long_named(100, 60).fill(1);
  model mine = some_of(source, [](std::size_t i) { return i < 60; });
  const auto refused = [&](const names& wanted) {
    pair p;
    p.left.publish(source);
    const auto done = pull_part(p, mine, wanted);
    EXPECT_FALSE(done);
    EXPECT_TRUE(mine.untouched());
    return done ? tp::error{} : done.error();
  };
  names wanted = listed(mine);
  const std::string last(wanted.back());
  wanted.back() = "no.such";
  EXPECT_EQ(refused(wanted), errc::schema_mismatch);
  EXPECT_EQ(refused(wanted).name.view(), "no.such");
  wanted.pop_back();
  EXPECT_EQ(refused(wanted), errc::schema_mismatch);
  EXPECT_EQ(refused(wanted).name.view().substr(0, 6), last.substr(0, 6));
  wanted.push_back(last);
  wanted.push_back(last);
  EXPECT_EQ(refused(wanted), errc::duplicate_name);
  wanted.pop_back();
  wanted.back() = wanted.front();  // as many names as tensors, and one is missing
  EXPECT_EQ(refused(wanted), errc::schema_mismatch);
  EXPECT_EQ(refused(wanted).name.view().substr(0, 6), last.substr(0, 6));
}
void restart_at_any_frame(const model& source) {
  for (std::uint64_t victim = 0;; ++victim) {
    model mine = some_of(source, [](std::size_t i) { return i % 2 == 0; });
    pair p;
    p.left.publish(source, {1, 2}, 1);
    tp::land to(mine.destination());
    transfer<tp::fixed_bytes<16>, tp::chunk_and_image_digest> t(to, {.ref = {1, 2}, .part = true, .recipient = {7}}, {},
                                                                1);
    if (!cut_after(p, t, victim)) {
      EXPECT_GE(victim, 20u);
      break;
    }
    const auto done = pull_after_restart(p, t, source);
    ASSERT_TRUE(confirmed(done)) << ", frame " << victim;
    EXPECT_EQ(done->digest, digest_of(mine));
    EXPECT_EQ(p.left.status().completed, 1u);
    EXPECT_TRUE(holds(mine, source, listed(mine)));
  }
}
TEST(Subset, An_owner_that_restarts_at_any_frame_of_many_tensors_costs_nothing_but_time) {
  model empty_at_the_end;
  for (std::size_t i = 0; i < 80; ++i)
    empty_at_the_end.add("p" + std::to_string(1000 + i) + std::string(55, 'x'), dtype::f32, {i < 50 ? 3u : 0u});
  empty_at_the_end.ready().fill(1);
  const model mixed = long_named(80, 60).fill(1);
  restart_at_any_frame(mixed);
  restart_at_any_frame(empty_at_the_end);
}
TEST(Subset, A_damaged_chunk_of_many_tensors_is_fetched_again) {
  const model source = long_named(80, 60).fill(1);
  for (std::uint64_t victim = 0; victim < 20; ++victim) {
    model mine = some_of(source, [](std::size_t i) { return i % 2 == 0; });
    pair p;
    p.left.publish(source, {1, 2}, 1);
    std::uint64_t n = 0;
    p.owner_lies = [&](byte_vector& f) {
      if (kind_of(f) == tp::frame_kind::chunk && n++ == victim) f[tp::detail::payload_prefix::bytes] ^= std::byte{1};
    };
    const auto done = pull_part<tp::fixed_bytes<16>, tp::chunk_and_image_digest>(p, mine, listed(mine));
    ASSERT_TRUE(succeeded(done)) << ", chunk " << victim;
    EXPECT_EQ(done->damaged, n > victim ? 1u : 0u);
    EXPECT_EQ(done->outcome, tp::outcome::completed);
    EXPECT_EQ(done->digest, digest_of(mine));
    EXPECT_TRUE(holds(mine, source, listed(mine)));
  }
}
TEST(Subset, Each_part_of_many_tensors_is_checked) {
  const model source = long_named(80, 60).fill(1);
  const auto end_with = [&](std::uint64_t victim, auto lie) {
    model mine = some_of(source, [](std::size_t i) { return i < 60; });
    pair p;
    p.left.publish(source, {1, 2}, 1);
    std::uint64_t n = 0;
    p.owner_lies = lie_about(tp::frame_kind::located, [&, lie](tp::frame& m) {
      if (n++ == victim) lie(m);
    });
    const auto done = pull_part(p, mine, listed(mine));
    return done ? errc{} : done.error().code;
  };
  const auto nothing = [](tp::frame&) {};
  EXPECT_EQ(end_with(0, nothing), errc{});
  for (std::uint64_t part = 0; part < 4; ++part) {
    EXPECT_EQ(end_with(part, [](tp::frame& m) { m.digest ^= 1; }), errc::digest_mismatch) << part;
    EXPECT_EQ(end_with(part, [](tp::frame& m) { m.fingerprint ^= 1; }), errc::schema_mismatch) << part;
    EXPECT_EQ(end_with(part, [](tp::frame& m) { m.ranges = m.ranges.first(m.ranges.size() - 1); }), errc::bad_frame)
        << part;
    EXPECT_EQ(end_with(part,
                       [](tp::frame& m) {
                         static std::vector<tp::byte_range> longer;
                         longer.assign(m.ranges.begin(), m.ranges.end());
                         longer.back().end += 1;
                         m.ranges = std::span<const tp::byte_range>(longer);
                       }),
              errc::bad_frame)
        << part;
  }
}

}  // namespace subset_test
