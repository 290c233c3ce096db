// Pulling named tensors: the right bytes land, with a digest and a fingerprint of their own.
#include "support/pair.hpp"

namespace subset_test {

using namespace test;
using tp::dtype;
using tp::errc;
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
    const auto answer = tp::detail::find_subset(source.schema(), wanted, ranges);
    ASSERT_TRUE(answer);
    model alone = part_of(wanted);
    EXPECT_EQ(answer->fingerprint, alone.schema().fingerprint);
    std::vector<std::byte> bytes;
    const auto all = source.image_bytes();
    for (const auto& r : ranges)
      bytes.insert(bytes.end(), all.begin() + static_cast<std::ptrdiff_t>(r.begin),
                   all.begin() + static_cast<std::ptrdiff_t>(r.end));
    tp::xxhash_digest h;
    h.update(bytes);
    tp::detail::digest_job<tp::xxhash_digest> job;
    job.begin({0, 0, 0, 1, tp::digest_kind::xxh3_64}, answer->bytes, false);
    std::byte memory[64];
    std::vector<std::uint32_t> tensors;
    for (const auto name : wanted)
      tensors.push_back(static_cast<std::uint32_t>(tp::detail::find_tensor(source.schema(), name)));
    std::sort(tensors.begin(), tensors.end());
    while (job.left() > 0)
      ASSERT_TRUE(
          job.advance(source.source(), tensors, std::min<std::uint64_t>(job.left(), 1 + random.below(100)), memory));
    EXPECT_EQ(job.digest(), h.digest());
    EXPECT_EQ(answer->bytes, bytes.size());
    EXPECT_EQ(bytes.size(), alone.schema().data_bytes());
    EXPECT_TRUE(std::is_sorted(ranges.begin(), ranges.end(), [](auto a, auto b) { return a.end < b.end; }));
  }
}

TEST(Subset, Names_that_are_missing_or_come_twice_are_named) {
  const model source = numbered(5);
  std::vector<tp::byte_range> ranges(4);
  const auto find = [&](names wanted) { return tp::detail::find_subset(source.schema(), wanted, ranges).error(); };
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
      ASSERT_TRUE(done) << to_string(done.error().code) << " round " << round;
      EXPECT_EQ(done->outcome, tp::outcome::completed);
      EXPECT_EQ(done->bytes, mine.schema().data_bytes());
      EXPECT_EQ(done->fingerprint, mine.schema().fingerprint);
      EXPECT_TRUE(holds(mine, source, wanted) && mine.guards_intact());
    }
    EXPECT_EQ(p.left.status().completed, p.left.status().final());
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
    ASSERT_TRUE(done) << to_string(done.error().code) << ' ' << wanted[0];
    EXPECT_EQ(done->outcome, tp::outcome::completed);
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
    t.fail({tp::errc::cancelled, 0, 0, {}});
    p.right.end.end_pull(t);  // and the owner never hears of it
  }
  model mine = numbered(10);
  tp::land to(mine.destination());
  transfer<> t(to, {{1, 2}}, {}, p.right.end.next_id());
  const auto done = p.pull(t);
  ASSERT_TRUE(done) << to_string(done.error().code);
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
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error(), errc::bad_request);
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
  EXPECT_EQ(done.error(), errc::schema_mismatch);
  EXPECT_EQ(done.error().name.view(), "t103");
  EXPECT_TRUE(mine.untouched());
}

TEST(Subset, More_names_or_ranges_than_fit_are_a_named_error_and_the_connection_goes_on) {
  const model source = numbered(400).fill(1);
  pair p(cut{1000});
  p.left.publish(source, {1, 2}, 64);
  names all, every_second;
  for (std::size_t i = 0; i < 400; ++i) all.push_back(source.schema().tensors[i].name);
  for (std::size_t i = 0; i < 200; i += 2) every_second.push_back(source.schema().tensors[i].name);
  model most = part_of(all), scattered = part_of(every_second);
  EXPECT_EQ(pull_part(p, most, all).error(), errc::does_not_fit)
      << "a locate of 400 names is more than a control frame";
  EXPECT_EQ(pull_part(p, scattered, every_second).error(), errc::does_not_fit) << "more than 32 separate ranges";
  names few{all[3], all[4], all[200]};
  model mine = part_of(few);
  ASSERT_TRUE(pull_part(p, mine, few));
  EXPECT_TRUE(holds(mine, source, few));
}

TEST(Subset, A_locate_waits_for_the_application_message_before_it) {
  const model source = numbered(20).fill(1);
  pair p(cut{10});
  p.left.publish(source);
  const std::vector<std::byte> body(5000, std::byte{9});
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

}  // namespace subset_test
