// Pulling slices of tensors: ranges of one of their dimensions, byte for byte those of the image.
#include "support/pair.hpp"

#include <tensorpull/consumers/any_schema/digest.hpp>
#include <tensorpull/protocol/datagrams/selective_recipient.hpp>

namespace slices_test {

using namespace test;

/// Matrices of several dtypes, one of rows without bytes, and a scalar.
model matrices() {
  model m;
  m.add("a.weight", dtype::f32, {12, 7})
      .add("b.weight", dtype::f16, {8, 3, 5})
      .add("c.bias", dtype::u8, {16})
      .add("d.hole", dtype::f32, {9, 0})
      .add("e.packed", dtype::f4, {6, 3})
      .add("f.packed", dtype::f4, {3, 5, 8})
      .add("g.deep", dtype::i16, {2, 3, 4, 5, 6})
      .add("step", dtype::i64, {});
  return std::move(m.ready());
}
using slices = std::vector<tp::tensor_slice>;

/// A destination for these slices, and for all of the tensors that `whole` names.
model room_for(const model& source, const slices& wanted, const std::vector<std::string>& whole = {}) {
  model m;
  const auto add = [&](std::string_view name, std::uint64_t rows, std::size_t dimension = 0) {
    const auto& t = source.schema().tensors[tp::detail::find_tensor(source.schema(), name)];
    std::vector<std::uint64_t> shape(t.extents().begin(), t.extents().end());
    if (rows != 0) shape[dimension] = rows;
    m.add(std::string(name), t.type, shape, 1);
  };
  for (const auto& s : wanted) add(s.name, s.end - s.begin, s.dimension);
  for (const auto& name : whole) add(name, 0);
  return std::move(m.ready());
}
byte_vector slice_of(const model& source, const tp::tensor_slice& s) {
  const auto& t = source.schema().tensors[tp::detail::find_tensor(source.schema(), s.name)];
  const byte_vector all = source.bytes_of(s.name);
  std::uint64_t runs = 1;
  for (std::size_t d = 0; d < s.dimension; ++d) runs *= t.shape[d];
  byte_vector made;
  for (std::uint64_t run = 0; run < runs; ++run) {
    const auto at = [&](std::uint64_t i) {
      return static_cast<std::ptrdiff_t>((run * t.shape[s.dimension] + i) * all.size() / runs / t.shape[s.dimension]);
    };
    made.insert(made.end(), all.begin() + at(s.begin), all.begin() + at(s.end));
  }
  return made;
}
void expect_slices(const model& mine, const model& source, const slices& wanted) {
  for (const auto& s : wanted) EXPECT_EQ(mine.bytes_of(s.name), slice_of(source, s)) << s.name << ' ' << s.begin;
  EXPECT_TRUE(mine.guards_intact());
}
std::uint64_t digest_of(const model& m) {
  tp::xxhash_digest h;
  for (const auto& t : m.schema().entries()) h.update(m.bytes_of(t.name));
  return h.digest();
}

TEST(Slices, Any_slices_land_with_a_digest_and_a_fingerprint_of_their_own) {
  const model source = matrices().fill(1);
  generator random(3);
  for (int round = 0; round < 200; ++round) {
    slices wanted;
    std::vector<std::string> whole;
    for (const auto& t : source.schema().entries()) {
      const std::uint64_t pick = random.below(3);
      if (pick == 0) continue;
      if (pick == 1 || t.rank == 0) {
        whole.emplace_back(t.name);
        continue;
      }
      const bool first_alone = t.name == "d.hole" || t.name == "e.packed";  // whose rows end within bytes
      const auto dimension = static_cast<std::uint16_t>(first_alone ? 0 : random.below(t.rank));
      // two rows of it are whole bytes, and of a later dimension two elements
      const std::uint64_t step = t.type == dtype::f4 ? 2 : 1, rows = t.shape[dimension] / step;
      const std::uint64_t begin = random.below(rows), end = begin + 1 + random.below(rows - begin);
      wanted.push_back({t.name, step * begin, step * end, dimension});
    }
    if (wanted.empty()) continue;
    std::swap(wanted.front(), wanted.back());  // in any order
    model mine = room_for(source, wanted, whole);
    pair p(cut{round % 2 == 0 ? 33u : ~std::size_t{0}});
    p.left.publish(source, {1, 2}, 1);
    const auto done = round % 3 == 0 ? pull_into<tp::per_tensor<16>, tp::chunk_and_image_digest>(
                                           p, mine, {.ref = {1, 2}, .slices = wanted})
                                     : pull_into(p, mine, {.ref = {1, 2}, .slices = wanted});
    ASSERT_TRUE(confirmed(done)) << ", round " << round;
    EXPECT_EQ(done->bytes, mine.schema().data_bytes());
    EXPECT_EQ(done->fingerprint, mine.schema().fingerprint);
    EXPECT_EQ(done->digest, digest_of(mine));
    EXPECT_EQ(done->version, version_of(source));
    EXPECT_EQ(p.left.status().bytes_sent, mine.schema().data_bytes());
    EXPECT_EQ(p.left.status().completed, 1u);
    expect_slices(mine, source, wanted);
    for (const auto& name : whole) EXPECT_EQ(mine.bytes_of(name), source.bytes_of(name));
  }
}

/// So many matrices of 8 rows, whose names are long: more than one request carries.
model layers(std::size_t n) {
  model m;
  for (std::size_t i = 0; i < n; ++i)
    m.add("layers." + std::to_string(100 + i) + std::string(40, 'x'), i % 3 == 0 ? dtype::f32 : dtype::bf16,
          {8, i + 1});
  return std::move(m.ready());
}

TEST(Slices, Eight_workers_with_a_quarter_each_of_every_matrix_pull_one_model_in_the_bytes_of_two) {
  const model source = layers(60).fill(2);
  pair p;
  p.left.publish(source, {1, 2}, 8);
  std::vector<model> parts;
  for (std::uint64_t worker = 0; worker < 8; ++worker) {
    slices wanted;
    for (const auto& t : source.schema().entries()) wanted.push_back({t.name, worker % 4 * 2, worker % 4 * 2 + 2});
    parts.push_back(room_for(source, wanted));
    const auto done = pull_into(p, parts.back(), {.ref = {1, 2}, .slices = wanted, .recipient = {worker + 1}});
    ASSERT_TRUE(confirmed(done)) << ", worker " << worker;
    EXPECT_EQ(done->bytes, source.schema().data_bytes() / 4);
    expect_slices(parts.back(), source, wanted);
  }
  EXPECT_EQ(p.left.status().bytes_sent, 2 * source.schema().data_bytes());
  EXPECT_EQ(p.left.status().completed, 8u);
}

TEST(Slices, An_owner_that_restarts_at_any_frame_costs_nothing_but_time) {
  const model source = layers(40).fill(3);
  for (std::uint64_t victim = 0;; ++victim) {
    slices wanted;
    for (const auto& t : source.schema().entries())
      wanted.push_back({t.name, 3, 5, static_cast<std::uint16_t>(t.shape[1] > 4 ? t.shape[1] % 2 : 0)});
    model mine = room_for(source, wanted);
    pair p;
    p.left.publish(source, {1, 2}, 1);
    tp::land to(mine.destination());
    transfer<tp::fixed_bytes<64>, tp::chunk_and_image_digest> t(to, {.ref = {1, 2}, .slices = wanted, .recipient = {7}},
                                                                {}, 1);
    if (!cut_after(p, t, victim)) {
      EXPECT_GE(victim, 20u);
      break;
    }
    const auto done = pull_after_restart(p, t, source);
    ASSERT_TRUE(confirmed(done)) << ", frame " << victim;
    EXPECT_EQ(p.left.status().completed, 1u);
    expect_slices(mine, source, wanted);
  }
}

TEST(Slices, One_that_the_owner_does_not_have_is_named) {
  const model source = matrices().fill(1);
  const auto refused = [&](const tp::tensor_slice& s, dtype type, std::vector<std::uint64_t> shape) {
    model mine;
    mine.add("c.bias", dtype::u8, {2}).add(std::string(s.name), type, std::move(shape)).ready();
    const slices wanted{{"c.bias", 0, 2}, s};
    pair p;
    p.left.publish(source, {1, 2}, 1);
    const auto done = pull_into(p, mine, {.ref = {1, 2}, .slices = wanted});
    EXPECT_TRUE(mine.untouched());
    EXPECT_EQ(done ? "" : std::string(done.error().name.view()), s.name);
    EXPECT_EQ(p.left.status().bytes_sent, 0u);
    return code_of(done);
  };
  EXPECT_EQ(refused({"a.weight", 11, 13}, dtype::f32, {2, 7}), errc::out_of_range);
  EXPECT_EQ(refused({"a.weight", 12, 13}, dtype::f32, {1, 7}), errc::out_of_range);
  EXPECT_EQ(refused({"a.weight", ~0ull - 1, ~0ull}, dtype::f32, {1, 7}), errc::out_of_range);
  EXPECT_EQ(refused({"d.hole", 8, 10}, dtype::f32, {2, 0}), errc::out_of_range);
  EXPECT_EQ(refused({"step", 0, 1}, dtype::i64, {1}), errc::out_of_range) << "of a scalar";
  EXPECT_EQ(refused({"e.packed", 1, 3}, dtype::f4, {2, 3}), errc::out_of_range) << "begins in the middle of a byte";
  EXPECT_EQ(refused({"e.packed", 0, 2, 1}, dtype::f4, {6, 2}), errc::out_of_range) << "each row shares a byte";
  EXPECT_EQ(refused({"f.packed", 1, 3, 2}, dtype::f4, {3, 5, 2}), errc::out_of_range) << "in the middle of a byte";
  EXPECT_EQ(refused({"a.weight", 6, 8, 1}, dtype::f32, {12, 2}), errc::out_of_range);
  EXPECT_EQ(refused({"a.weight", ~0ull - 1, ~0ull, 1}, dtype::f32, {12, 1}), errc::out_of_range);
  EXPECT_EQ(refused({"a.weight", 0, 2, 2}, dtype::f32, {12, 7, 2}), errc::out_of_range) << "of a dimension it lacks";
  EXPECT_EQ(refused({"a.weight", 0, 2, 1}, dtype::f32, {11, 2}), errc::schema_mismatch) << "another first extent";
  EXPECT_EQ(refused({"none", 0, 1}, dtype::f32, {1, 7}), errc::bad_request);
  EXPECT_EQ(refused({"a.weight", 0, 2}, dtype::f32, {2, 8}), errc::schema_mismatch) << "another second extent";
  EXPECT_EQ(refused({"a.weight", 0, 2}, dtype::u32, {2, 7}), errc::schema_mismatch) << "another dtype";
}

TEST(Slices, Are_found_in_any_order_of_their_names_and_others_are_whole) {
  const model source = layers(60).fill(6);
  generator random(8);
  for (int round = 0; round < 20; ++round) {
    slices wanted;
    std::vector<std::string> whole;
    for (const auto& t : source.schema().entries()) {
      if (random.below(3) == 0) whole.emplace_back(t.name);
      else wanted.push_back({t.name, 1, 4});
    }
    std::ranges::sort(wanted, {}, &tp::tensor_slice::name);
    if (round % 2 == 1) std::swap(wanted[random.below(wanted.size())], wanted[random.below(wanted.size())]);
    model mine = room_for(source, wanted, whole);
    pair p;
    p.left.publish(source, {1, 2}, 1);
    ASSERT_TRUE(confirmed(pull_into(p, mine, {.ref = {1, 2}, .slices = wanted, .slices_ascend = round % 4 < 2})));
    expect_slices(mine, source, wanted);
    for (const auto& name : whole) EXPECT_EQ(mine.bytes_of(name), source.bytes_of(name));
    wanted.insert(wanted.begin() + 7, {wanted[7].name, 2, 5});  // twice, one behind the other
    model again = room_for(source, {wanted.begin() + 8, wanted.end()}, whole);
    pair other;
    other.left.publish(source, {1, 2}, 1);
    EXPECT_EQ(code_of(pull_into(other, again, {.ref = {1, 2}, .slices = wanted})), errc::invalid_argument);
  }
}

TEST(Slices, One_that_makes_no_sense_is_named_and_nothing_is_asked) {
  const model source = matrices().fill(1);
  const auto refused = [&](const slices& wanted) {
    model mine;
    mine.add("a.weight", dtype::f32, {3, 7}).add("step", dtype::i64, {}).ready();
    pair p;
    p.left.publish(source, {1, 2}, 1);
    const auto done = pull_into(p, mine, {.ref = {1, 2}, .slices = wanted});
    EXPECT_TRUE(mine.untouched());
    EXPECT_EQ(done ? "" : std::string(done.error().name.view()), wanted.back().name);
    return code_of(done);
  };
  EXPECT_EQ(refused({{"a.weight", 3, 3}}), errc::invalid_argument) << "empty";
  EXPECT_EQ(refused({{"a.weight", 5, 2}}), errc::invalid_argument) << "reversed";
  EXPECT_EQ(refused({{"a.weight", 0, 0}}), errc::invalid_argument) << "which means all on the wire";
  EXPECT_EQ(refused({{"c.bias", 0, 3}}), errc::invalid_argument) << "of no tensor of the destination";
  EXPECT_EQ(refused({{"a.weight", 0, 3}, {"a.weight", 3, 6}}), errc::invalid_argument) << "two of one tensor";
  EXPECT_EQ(refused({{"a.weight", 0, 4}}), errc::schema_mismatch) << "not as long as the destination";
  EXPECT_EQ(refused({{"step", 0, 1}}), errc::schema_mismatch) << "of a scalar";
  EXPECT_EQ(refused({{"a.weight", 0, 3, 1}}), errc::schema_mismatch) << "of another dimension than the destination's";
  EXPECT_EQ(refused({{"a.weight", 0, 3, 2}}), errc::schema_mismatch) << "of one that the destination does not have";
  EXPECT_EQ(refused({{"a.weight", 0, 3, 0xffff}}), errc::schema_mismatch);

  pair p;
  p.left.publish(source, {1, 2}, 1);
  const slices wanted{{"a.weight", 0, 3}};
  tp::digest to;  // takes whatever is described, and cannot tell what a slice is of
  tp::transfer<tp::digest, tp::fixed_bytes<64>, tp::image_digest> t(to, {.ref = {1, 2}, .slices = wanted}, {}, 1);
  EXPECT_EQ(code_of(p.pull(t)), errc::invalid_argument);
}

TEST(Slices, An_owner_that_knows_none_is_told_by_what_it_locates) {
  const model source = matrices().fill(1);
  const slices wanted{{"a.weight", 2, 4}, {"c.bias", 0, 1}}, columns{{"a.weight", 2, 4, 1}, {"c.bias", 0, 1}};
  const auto from_an_older_one = [&](const slices& asked, model& mine, const slices& known) {
    pair p;
    p.left.publish(source, {1, 2}, 1);
    std::vector<tp::byte_range> ranges;
    p.owner_lies = lie_about(tp::frame_kind::located, [&](tp::frame& m) {
      std::vector<std::string_view> names;
      for (const auto& t : mine.schema().entries()) names.push_back(t.name);
      ranges.resize(names.size());
      std::vector<tp::index_range> first;
      for (const auto& s : known) first.push_back({s.begin, s.end});
      m.fingerprint = tp::detail::find_subset(source.schema(), names, first, ranges)->fingerprint;
      m.ranges = ranges;
    });
    return code_of(pull_into(p, mine, {.ref = {1, 2}, .slices = asked}));
  };
  model mine = room_for(source, wanted), other = room_for(source, columns);
  EXPECT_EQ(from_an_older_one(wanted, mine, {}), errc::unsupported_request);
  EXPECT_EQ(from_an_older_one(columns, other, columns), errc::unsupported_request) << "it knows the first dimension";
  EXPECT_TRUE(mine.untouched() && other.untouched());
}

/// How a pull ends whose owner locates `length` bytes for the first tensor. `besides` changes more of that answer.
template <class Besides>
errc with_a_range_of(std::uint64_t length, const model& source, model& mine, tp::pull_request asked, Besides besides) {
  pair p;
  p.left.publish(source, asked.ref = {1, 2}, 1);
  std::vector<tp::byte_range> ranges;
  p.owner_lies = lie_about(tp::frame_kind::located, [&](tp::frame& m) {
    const std::uint64_t begin = m.ranges[0].begin;
    ranges = {{begin, begin + length}};
    m.ranges = ranges;
    besides(m);
  });
  return code_of(pull_into(p, mine, asked));
}

TEST(Slices, A_range_in_which_the_runs_cannot_lie_is_not_believed) {
  const model source = matrices().fill(1);
  const slices wanted{{"a.weight", 2, 4, 1}};  // 12 runs of 8 bytes, 28 apart
  model mine = room_for(source, wanted);
  const auto located = [&](std::uint64_t length) {
    return with_a_range_of(length, source, mine, {.slices = wanted}, [](tp::frame&) {});
  };
  EXPECT_EQ(located(11 * 28 + 8), errc{});
  for (const std::uint64_t length : {0u, 1u, 7u, 8u, 95u, 97u, 11u * 8 + 7, 11u * 28 + 7, 11u * 28 + 9, 12u * 28})
    EXPECT_EQ(located(length), errc::bad_frame) << length;
  EXPECT_EQ(located(11 * 30 + 8), errc::digest_mismatch) << "as if its rows were longer";
}

TEST(Slices, A_range_with_bytes_of_a_tensor_that_has_none_is_not_believed) {
  for (const std::vector<std::uint64_t>& shape :
       {std::vector<std::uint64_t>{0, 4}, std::vector<std::uint64_t>{4, 0, 3}, std::vector<std::uint64_t>{0, 0, 2}}) {
    std::vector<std::uint64_t> filled = shape;
    std::ranges::replace(filled, 0, 2);
    model source, mine;
    source.add("a", dtype::f32, filled).ready().fill(1);
    mine.add("a", dtype::f32, shape).ready();
    const auto last = static_cast<std::uint16_t>(shape.size() - 1);
    const slices wanted{{"a", 0, shape[last], last}};
    const auto as_mine = [&](tp::frame& m) { m.fingerprint = mine.schema().fingerprint; };
    for (const std::uint64_t length : {1u, 8u, 16u})
      EXPECT_EQ(with_a_range_of(length, source, mine, {.slices = wanted}, as_mine), errc::bad_frame) << length;
  }
}

/// A transfer that goes on in the middle of a run asks for the rest of that run, and then for whole ones.
TEST(Slices, A_chunk_is_of_whole_runs_or_lies_in_one) {
  const model source = matrices().fill(1);
  const slices wanted{{"a.weight", 2, 4, 1}};  // 12 runs of 8 bytes, 28 apart
  const model mine = room_for(source, wanted);
  for (std::uint64_t landed = 0; landed < 96; ++landed) {
    tp::recipient<tp::fixed_bytes<56>> r({.ref = {1, 2}, .schema = &mine.schema(), .slices = wanted}, {}, 1);
    r.resume(5, landed);
    tp::frame m;
    ASSERT_TRUE(r.next(m));
    tp::frame d{.kind = tp::frame_kind::description, .id = m.id, .ref = m.ref, .version = 5, .nonce = 6};
    d.data_start = 8, d.image_bytes = 1000, d.tensors = 6, d.length = 64, d.window = 16;
    ASSERT_TRUE(r.on(d));
    ASSERT_TRUE(r.next(m));
    ASSERT_EQ(m.kind, tp::frame_kind::locate);
    const tp::byte_range where[] = {{100, 100 + 11 * 28 + 8}};
    tp::frame located{.kind = tp::frame_kind::located, .id = m.id, .ref = m.ref, .version = 5, .nonce = 6};
    located.fingerprint = mine.schema().fingerprint;
    located.ranges = where;
    ASSERT_TRUE(r.on(located));
    std::uint64_t at = landed;
    while (at < 96 && r.next(m)) {
      ASSERT_EQ(m.kind, tp::frame_kind::pull);
      EXPECT_EQ(m.offset, 100 + at / 8 * 28 + at % 8) << landed;
      const std::uint64_t left = 8 - at % 8, longest = std::min<std::uint64_t>(96 - at, 56);
      EXPECT_EQ(m.length, left < 8 ? left : longest) << landed;
      EXPECT_EQ(m.flag, m.length > left) << landed;
      EXPECT_EQ(m.fingerprint, m.flag ? 8ull << 32 | 28 : 0) << landed;
      at += m.length;
    }
    EXPECT_EQ(at, 96u) << landed;
  }
}

TEST(Slices, A_range_of_another_length_with_the_digest_of_its_own_bytes_is_not_believed) {
  const model source = matrices().fill(1);
  const std::vector<slices> choices{{}, {{"a.weight", 2, 4}}, {{"a.weight", 2, 4, 1}}};
  for (const slices& wanted : choices) {
    model mine = wanted.empty() ? room_for(source, {}, {"a.weight"}) : room_for(source, wanted);
    for (const std::uint64_t length : {0u, 8u, 64u}) {
      const auto with_its_digest = [&](tp::frame& m) {
        m.digest = *tp::range_digest<tp::xxhash_digest>(source.source(), m.ranges[0].begin, length);
      };
      EXPECT_EQ(with_a_range_of(length, source, mine, {.part = true, .slices = wanted}, with_its_digest),
                wanted.empty() ? errc::schema_mismatch : errc::bad_frame)
          << wanted.size() << ' ' << length;
    }
  }
}

TEST(Slices, A_request_for_runs_that_no_recipient_would_send_is_refused) {
  const model source = matrices().fill(1);
  pair p;
  p.left.publish(source, {1, 2}, 1);
  owner::peer asks;
  const std::uint64_t data = source.schema().header_bytes, image = source.schema().image_bytes;
  const auto answered = [&](std::uint64_t offset, std::uint32_t length, std::uint32_t run, std::uint32_t stride,
                            tp::digest_kind digest = tp::digest_kind::none) {
    tp::frame m;
    m.kind = tp::frame_kind::pull;
    m.ref = {1, 2};
    m.offset = offset, m.length = length, m.chunk_digest = digest;
    m.fingerprint = std::uint64_t{run} << 32 | stride, m.flag = true;
    tp::pending_reply r;
    EXPECT_TRUE(p.left.references.handle(asks, m, r));
    EXPECT_TRUE(r.kind == tp::frame_kind::refused || r.length == length);
    return r.kind == tp::frame_kind::chunk ? tp::status::ok : r.status;
  };
  EXPECT_EQ(answered(data, 32, 8, 28), tp::status::ok);
  EXPECT_EQ(answered(data, 32, 0, 28), tp::status::bad_request);
  EXPECT_EQ(answered(data, 32, 8, 7), tp::status::bad_request) << "runs that overlap";
  EXPECT_EQ(answered(data, 32, 8, 0), tp::status::bad_request);
  EXPECT_EQ(answered(data, 33, 8, 28), tp::status::bad_request) << "a part of a run";
  EXPECT_EQ(answered(data, 0, 8, 28), tp::status::bad_request);
  EXPECT_EQ(answered(data, ~0u - ~0u % 8, 8, 28), tp::status::out_of_range);
  EXPECT_EQ(answered(data, 32, 8, 28, tp::digest_kind::xxh3_64), tp::status::bad_request);
  EXPECT_EQ(answered(image - 3 * 28 - 8, 32, 8, 28), tp::status::ok) << "to the last byte";
  EXPECT_EQ(answered(image - 3 * 28 - 7, 32, 8, 28), tp::status::out_of_range);
  EXPECT_EQ(answered(data, ~0u, 1, ~0u), tp::status::out_of_range);
  EXPECT_EQ(answered(data - 1, 4, 2, 4), tp::status::bad_request) << "of the header";
  p.left.references.forget(asks);
}

TEST(Slices, A_request_for_many_is_no_longer_than_a_page) {
  for (const auto& [name_bytes, least] : {std::pair{1, 21}, std::pair{40, 10}}) {
    model source;
    for (std::size_t i = 0; i < 100; ++i)
      source.add(std::string(std::size_t(name_bytes), 'p') + std::to_string(100 + i), dtype::f32, {2});
    source.ready();
    slices wanted;
    for (const auto& t : source.schema().entries()) wanted.push_back({t.name, 0, 2});
    tp::recipient<tp::fixed_bytes<64>> r({.ref = {1, 2}, .schema = &source.schema(), .slices = wanted}, {}, 1);
    tp::frame m;
    ASSERT_TRUE(r.next(m) && r.next(m));  // a description, and with it the first of the slices
    ASSERT_EQ(m.kind, tp::frame_kind::locate);
    EXPECT_EQ(m.slices.size(), m.names.size());
    EXPECT_GE(m.names.size(), std::size_t(least));
    EXPECT_LE(encode(m).size(), tp::default_limits::page_bytes);
  }
}

/// A host that speaks of one request at a time may be a small machine, which answers no request that is longer than a
/// datagram: it is asked with no names at first.
TEST(Slices, An_owner_that_locates_what_nobody_named_is_not_believed) {
  const model source = matrices().fill(1);
  const slices wanted{{"a.weight", 2, 4}};
  const model mine = room_for(source, wanted);
  tp::selective_recipient<tp::fixed_bytes<64>> r({.ref = {1, 2}, .schema = &mine.schema(), .slices = wanted}, {}, 1);
  tp::frame m;
  ASSERT_TRUE(r.next(m));
  tp::frame d{.kind = tp::frame_kind::description, .id = m.id, .ref = m.ref, .version = 5, .nonce = 6};
  d.data_start = 8, d.image_bytes = 1000, d.tensors = 6, d.length = 64, d.window = 1;
  ASSERT_TRUE(r.on(d));
  ASSERT_TRUE(r.next(m));
  ASSERT_EQ(m.kind, tp::frame_kind::locate);
  EXPECT_EQ(m.names.size() + m.slices.size(), 0u);
  tp::frame nothing{.kind = tp::frame_kind::located, .id = m.id, .ref = m.ref, .version = 5, .nonce = 6};
  const auto answered = r.on(nothing);
  ASSERT_FALSE(answered);
  EXPECT_EQ(answered.error().code, errc::bad_frame);
}

TEST(Slices, A_name_that_no_request_carries_that_the_owner_takes_is_named) {
  const std::string name(40, 'n');
  model source;
  source.add("a", dtype::f32, {4}).add(name, dtype::f32, {4}).ready();
  const auto described = [&](std::uint16_t words, const slices& wanted) {
    tp::recipient<tp::fixed_bytes<64>> r({.ref = {1, 2}, .schema = &source.schema(), .part = true, .slices = wanted},
                                         {}, 1);
    tp::frame m;
    EXPECT_TRUE(r.next(m));
    tp::frame d{.kind = tp::frame_kind::description, .id = m.id, .ref = m.ref, .version = 5, .nonce = 6};
    d.data_start = 8, d.image_bytes = 1000, d.tensors = 6, d.length = 64, d.window = 8, d.request_words = words;
    const auto done = r.on(d);
    EXPECT_EQ(done ? name : std::string(done.error().name.view()), name);
    return done ? errc{} : done.error().code;
  };
  const slices wanted{{"a", 0, 4}, {name, 0, 4}};
  const auto longest = [&](const slices& s) {
    tp::frame m;
    m.kind = tp::frame_kind::locate;
    const std::string_view one[] = {name};
    const tp::index_range rows[] = {{0, 4}};
    m.names = one;
    if (!s.empty()) m.slices = rows;
    return static_cast<std::uint16_t>(encode(m).size() / 8);
  };
  for (const slices& s : {slices{}, wanted}) {
    EXPECT_EQ(described(longest(s), s), errc{});
    EXPECT_EQ(described(static_cast<std::uint16_t>(longest(s) - 1), s), errc::does_not_fit);
    EXPECT_EQ(described(0, s), errc{}) << "it does not say";
  }
}

TEST(Slices, An_owner_that_takes_fewer_names_does_not_go_on_in_the_middle_of_another_ones_part) {
  const model source = layers(20);
  tp::recipient<tp::fixed_bytes<64>> r({.ref = {1, 2}, .schema = &source.schema(), .part = true}, {}, 1);
  const auto described = [&](std::uint16_t words) {
    tp::frame m;
    EXPECT_TRUE(r.next(m));
    EXPECT_EQ(m.kind, tp::frame_kind::describe);
    tp::frame d{.kind = tp::frame_kind::description, .id = m.id, .ref = m.ref, .version = 5, .nonce = 6};
    d.data_start = source.schema().header_bytes, d.image_bytes = source.schema().image_bytes, d.tensors = 20;
    d.length = 64, d.window = 8, d.request_words = words;
    return r.on(d);
  };
  const auto names_of_next = [&](tp::frame& m) {
    return r.next(m) && m.kind == tp::frame_kind::locate ? m.names.size() : std::size_t{0};
  };
  ASSERT_TRUE(described(0));
  tp::frame m;
  const std::size_t first = names_of_next(m);
  ASSERT_GT(first, 8u);
  ASSERT_LT(first, 20u);
  std::vector<std::string_view> names(m.names.begin(), m.names.end());
  std::vector<tp::byte_range> ranges(names.size());
  tp::frame located{.kind = tp::frame_kind::located, .id = m.id, .ref = m.ref, .version = 5, .nonce = 6};
  located.fingerprint = tp::detail::find_subset(source.schema(), names, {}, ranges)->fingerprint;
  located.ranges = ranges;
  ASSERT_TRUE(r.on(located));

  r.restart(0);  // nothing has landed: another owner is asked as it states
  ASSERT_TRUE(described(64));
  const std::size_t fewer = names_of_next(m);
  EXPECT_GT(fewer, 2u);
  EXPECT_LT(fewer, first);
  names.resize(fewer), ranges.resize(fewer);
  located.id = m.id;
  located.fingerprint = tp::detail::find_subset(source.schema(), names, {}, ranges)->fingerprint;
  located.ranges = ranges;
  ASSERT_TRUE(r.on(located));

  r.restart(1);
  const auto refused = described(32);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, errc::does_not_fit);
  EXPECT_EQ(refused.error().name.view(), names[2]) << "two fit 256 bytes";
}

struct without_slices : tp::default_limits {
  static constexpr bool slices = false;
};

TEST(Slices, A_program_without_them_refuses_to_ask_and_asks_for_names) {
  const model source = matrices().fill(1);
  const slices wanted{{"a.weight", 2, 5}};
  const auto asks = [&](model&& mine, const tp::pull_request& request) {
    pair p;
    p.left.publish(source, {1, 2}, 1);
    tp::land to(mine.destination());
    tp::transfer<tp::land, tp::fixed_bytes<1024>, tp::image_digest, without_slices> t(to, request, {},
                                                                                      p.right.end.next_id());
    return p.pull(t);
  };
  const auto refused = asks(room_for(source, wanted), {.ref = {1, 2}, .slices = wanted});
  EXPECT_EQ(code_of(refused), errc::invalid_argument);
  EXPECT_EQ(refused.error().name.view(), "a.weight");
  EXPECT_TRUE(confirmed(asks(room_for(source, {}, {"b.weight", "step"}), {.ref = {1, 2}, .part = true})));
}

TEST(Slices, More_than_an_owner_has_memory_for_are_refused) {
  const model source = layers(40).fill(5);
  pair p;
  p.left.publish(source);
  std::vector<std::string_view> names;
  for (const auto& t : source.schema().entries()) names.push_back(t.name);
  const std::vector<tp::index_range> rows(names.size(), {1, 3});
  const auto answered = [&](std::size_t count) {
    owner::peer asks;
    tp::frame m, answer;
    m.kind = tp::frame_kind::locate;
    m.ref = {1, 2};
    m.names = std::span(names).first(count);
    m.slices = std::span(rows).first(count);
    tp::byte_range ranges[128];
    for (int i = 0; i < 100; ++i)
      if (p.left.references.locate(asks, m, ranges, answer) == tp::digest_state::ready) break;
    p.left.references.forget(asks);
    return answer.kind == tp::frame_kind::refused ? answer.status : tp::status::ok;
  };
  EXPECT_EQ(answered(owner::most_slices), tp::status::ok);
  EXPECT_EQ(answered(owner::most_slices + 1), tp::status::bad_request);
}

TEST(Slices, Of_the_same_names_other_slices_have_other_digests) {
  model source;
  source.add("a", dtype::f32, {8, 8, 8}).add("b", dtype::u8, {8, 8, 8}).ready().fill(4);
  pair p;
  p.left.publish(source);
  for (const unsigned choice : {0x00u, 0x01u, 0x02u, 0x01u, 0x11u, 0x21u, 0x11u, 0x25u}) {
    const std::uint64_t begin = choice & 15;
    slices wanted;
    for (const auto& t : source.schema().entries())
      wanted.push_back({t.name, begin, begin + 2, static_cast<std::uint16_t>(choice >> 4)});
    model mine = room_for(source, wanted);
    ASSERT_TRUE(succeeded(pull_into(p, mine, {.ref = {1, 2}, .slices = wanted}))) << choice;
    expect_slices(mine, source, wanted);
  }
}

TEST(Slices, The_digest_of_many_bytes_is_not_forgotten_for_those_of_few) {
  model source;
  source.add("a", dtype::u8, {4, 1 << 20}).add("b", dtype::u8, {4096}).ready();
  pair p;
  p.left.publish(source);
  owner::peer asks;
  const auto turns = [&](std::string_view name, std::uint64_t begin, std::uint64_t end) {
    tp::frame m, answer;
    m.kind = tp::frame_kind::locate;
    m.ref = {1, 2};
    const std::array names{name};
    const std::array rows{tp::index_range{begin, end}};
    m.names = std::span(names), m.slices = std::span(rows);
    tp::byte_range ranges[1];
    for (int turn = 0; turn < 1000; ++turn)
      if (p.left.references.locate(asks, m, ranges, answer) == tp::digest_state::ready)
        return answer.kind == tp::frame_kind::located ? turn : -1;
    return -2;
  };
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(turns("a", i, i + 1), 15) << "a slice of 64 KiB at a time";
  for (std::uint64_t i = 0; i < 1000; ++i) EXPECT_EQ(turns("b", i, i + 1), 0) << i;
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(turns("a", i, i + 1), 0) << i;
  // what is asked for no more is forgotten in the end
  for (std::uint64_t i = 0; i < 4400; ++i) EXPECT_EQ(turns("b", i % 4, 4096 - i / 4), 0) << i;
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(turns("a", i, i + 1), 15) << i;
}

// A recipient that can choose two subsets of one key would have another told the digest of its own. These two choices
// have one XXH3-64, unkeyed as well as 8 seconds of one processor find it: of the first dimension only the begins of
// every fourth slice differ.
TEST(Slices, No_choice_is_taken_for_another_that_was_made_to_look_like_it) {
  model source;
  for (int i = 0; i < 27; ++i) source.add("t" + std::to_string(10'000 + i), dtype::u8, {4096});
  source.add("t99998_fills_words", dtype::u8, {4096}).add("t99999_fills_words", dtype::u8, {4096}).ready().fill(7);
  constexpr std::uint64_t begins[2][7] = {{554, 330, 685, 1399, 864, 1703, 1633},
                                          {827, 1529, 1212, 1419, 554, 1226, 401}};
  std::uint64_t unkeyed[2];
  pair p;
  p.left.publish(source);
  for (const int choice : {0, 1}) {
    slices wanted;
    tp::xxh3_64 names_and_slices;
    for (const auto& t : source.schema().entries()) {
      const char length[2] = {static_cast<char>(t.name.size()), 0};
      names_and_slices.update(length, 2);
      names_and_slices.update(t.name);
      const std::size_t i = wanted.size();
      wanted.push_back({t.name, i % 4 == 0 && i < 28 ? begins[choice][i / 4] : 0, 4096});
    }
    for (const auto& s : wanted) {
      std::byte both[16];
      tp::store_le64(both, s.begin), tp::store_le64(both + 8, s.end);
      names_and_slices.update(std::span<const std::byte>(both));
    }
    unkeyed[choice] = names_and_slices.digest();
    model mine = room_for(source, wanted);
    ASSERT_TRUE(succeeded(pull_into(p, mine, {.ref = {1, 2}, .slices = wanted}))) << choice;
    expect_slices(mine, source, wanted);
  }
  EXPECT_EQ(unkeyed[0], unkeyed[1]);
}

}  // namespace slices_test
