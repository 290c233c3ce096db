// The wrong model on the other side: refused before data moves, naming the first tensor that differs; the destination
// untouched.
#include "support/pair.hpp"

namespace schema_comparison_test {

using namespace test;

/// Pulls `theirs` into `mine`; gives the error after checking that nothing was written.
tp::error refused(model& theirs, model& mine, std::span<const std::string_view> subset = {}, std::size_t every = 100) {
  pair p(cut{every});
  p.left.publish(theirs.fill(1));
  std::uint64_t payload = 0;
  p.owner_lies = [&](byte_vector& f) { payload += kind_of(f) == tp::frame_kind::chunk ? f.size() : 0; };
  const auto done = pull_into(p, mine, {.ref = {1, 2}, .subset = subset});
  EXPECT_FALSE(done);
  EXPECT_TRUE(mine.untouched());
  EXPECT_EQ(payload, 0u) << "data moved";
  EXPECT_EQ(p.left.status().acquired, 0u) << "the owner hears that it has not begun, and that it may ask again";
  if (done) return {};
  EXPECT_EQ(done.error().at, 0u);
  // the connection still serves
  model again, copy;
  again.add("x", dtype::f32, {3}).ready().fill(2), copy.add("x", dtype::f32, {3}).ready();
  p.left.publish(again, {3, 4});
  tp::land into(copy.destination());
  transfer<> second(into, {{3, 4}}, {}, p.right.end.next_id());
  const auto good = p.pull(second);
  EXPECT_TRUE(succeeded(good));
  return done.error();
}
/// Both ways: whichever end has which, the same tensor is named.
void expect_named(const std::function<void(model&)>& a, const std::function<void(model&)>& b, std::string_view name) {
  for (const bool swapped : {false, true})
    for (const bool with_common : {false, true}) {
      model theirs, mine;
      if (with_common)
        for (model* m : {&theirs, &mine})
          m->add("common.u64", dtype::u64, {2}).add("common.f32", dtype::f32, {2, 3}).add("common.i8", dtype::i8, {5});
      (swapped ? b : a)(theirs), (swapped ? a : b)(mine);
      const tp::error e = refused(theirs.ready(), mine.ready());
      EXPECT_EQ(e.code, errc::schema_mismatch);
      EXPECT_EQ(e.name.view(), name) << "swapped " << swapped << " common " << with_common;
    }
}

TEST(SchemaComparison, Shape_differs) {
  expect_named([](model& m) { m.add("w", dtype::f32, {2, 3}); }, [](model& m) { m.add("w", dtype::f32, {3, 2}); }, "w");
  expect_named([](model& m) { m.add("w", dtype::f32, {6}); }, [](model& m) { m.add("w", dtype::f32, {6, 1}); }, "w");
  expect_named([](model& m) { m.add("w", dtype::f32, {}); }, [](model& m) { m.add("w", dtype::f32, {1}); }, "w");
  expect_named([](model& m) { m.add("w", dtype::f32, {0, 7}); }, [](model& m) { m.add("w", dtype::f32, {0, 8}); }, "w");
}
TEST(SchemaComparison, L3_dtype_differs) {
  expect_named([](model& m) { m.add("w", dtype::f32, {4}); }, [](model& m) { m.add("w", dtype::i32, {4}); }, "w");
  expect_named([](model& m) { m.add("w", dtype::f16, {4}); }, [](model& m) { m.add("w", dtype::bf16, {4}); }, "w");
}
TEST(SchemaComparison, L6_a_name_is_missing_or_too_many) {
  expect_named([](model& m) { m.add("a", dtype::f32, {4}).add("b", dtype::f32, {4}); },
               [](model& m) { m.add("a", dtype::f32, {4}); }, "b");
  expect_named([](model& m) { m.add("a", dtype::f32, {4}).add("b", dtype::f32, {4}); },
               [](model& m) { m.add("b", dtype::f32, {4}); }, "a");
  expect_named([](model& m) { m.add("w", dtype::f32, {4}); }, [](model&) {}, "w");
}
TEST(SchemaComparison, Names_differ) {
  expect_named([](model& m) { m.add("a.weight", dtype::f32, {4}); },
               [](model& m) { m.add("b.weight", dtype::f32, {4}); }, "a.weight");
}

TEST(SchemaComparison, The_same_schema_in_another_order_of_declaration_is_the_same) {
  model theirs, mine;
  theirs.add("a", dtype::f32, {4}).add("b", dtype::i8, {4}).ready().fill(1);
  mine.add("b", dtype::i8, {4}).add("a", dtype::f32, {4}).ready();
  pair p;
  p.left.publish(theirs);
  ASSERT_TRUE(pull_into(p, mine));
  EXPECT_TRUE(mine.same_tensors(theirs));
}

model many(std::size_t n, std::size_t odd, std::size_t name_length) {
  model m;
  for (std::size_t i = 0; i < n; ++i) {
    std::string name(name_length, 'n');
    const std::string number = std::to_string(100'000 + i);
    name.replace(name.size() - number.size(), number.size(), number);
    m.add(std::move(name), dtype::u8, {1, i == odd ? 2u : 1u});
  }
  return std::move(m.ready());
}

TEST(SchemaComparison, Five_thousand_tensors_with_the_difference_in_the_last_page) {
  model theirs = many(5000, 4999, 30), mine = many(5000, 5000, 30);
  const tp::error e = refused(theirs, mine, {}, ~std::size_t{0});
  EXPECT_EQ(e.code, errc::schema_mismatch);
  EXPECT_EQ(e.name.view(), std::string(24, 'n') + "104999");
}
TEST(SchemaComparison, A_tensor_whose_name_is_longer_than_a_page_is_passed_over_and_not_blamed) {
  const std::string long_name(1024, 'a');
  const auto with = [&](std::uint64_t of_the_long_one, std::vector<std::string> more, std::uint64_t of_the_last) {
    model m;
    m.add("0", dtype::f32, {2}).add(long_name, dtype::f32, {of_the_long_one});
    for (const auto& name : more) m.add(name, dtype::f32, {3});
    m.add("z", dtype::f32, {of_the_last});
    return std::move(m.ready());
  };
  const auto name_of = [&](model&& theirs, model&& mine) {
    const tp::error e = refused(theirs, mine);
    EXPECT_EQ(e.code, errc::schema_mismatch);
    return std::string(e.name.view());
  };
  EXPECT_EQ(name_of(with(2, {"b"}, 5), with(2, {"b"}, 6)), "z");
  EXPECT_EQ(name_of(with(2, {"b"}, 5), with(2, {}, 5)), "b") << "it is too many";
  EXPECT_EQ(name_of(with(2, {"b"}, 5), with(3, {"b"}, 5)), "") << "nothing that was said differs";
  EXPECT_EQ(name_of(with(2, {}, 5), with(2, {"b"}, 5)), "") << "what is missing cannot be told";
}
TEST(SchemaComparison, Long_names_are_paged_and_cut_in_the_error) {
  model theirs = many(60, 59, 800), mine = many(60, 60, 800);
  const tp::error e = refused(theirs, mine, {}, 1000);
  EXPECT_EQ(e.code, errc::schema_mismatch);
  EXPECT_EQ(e.name.view(), std::string(52, 'n') + "...");
}

TEST(SchemaComparison, A_page_fits_its_frame_whatever_the_names_and_ranks) {
  generator random(3);
  for (int round = 0; round < 300; ++round) {
    model m;
    for (std::size_t i = 0; i < 80; ++i)
      m.add(std::to_string(i) + std::string(random.below(round % 3 == 0 ? 4 : 200), 'x'),
            static_cast<dtype>(random.below(2) == 0 ? 9 : 17), std::vector<std::uint64_t>(random.below(9), 1));
    m.ready();
    std::uint64_t at = 0;
    while (at < 80) {
      tp::frame page;
      page.kind = tp::frame_kind::schema_page;
      page.rows = tp::detail::schema_rows(m.schema(), at, 4096);
      ASSERT_FALSE(page.rows.empty());
      std::array<std::uint64_t, 512> room;
      ASSERT_TRUE(tp::word_framing::encode(page, std::as_writable_bytes(std::span(room)))) << round;
      at += page.rows.size();
    }
  }
}

TEST(SchemaComparison, Without_a_schema_of_its_own_a_consumer_gets_the_plain_error) {
  model theirs = mixed_model().fill(1), mine = mixed_model();
  struct picky : tp::land {  // knows a fingerprint, but no names
    using tp::land::land;
    std::uint64_t fingerprint() const noexcept { return 1; }
    const tp::image_schema* schema() const noexcept { return nullptr; }
  } to(mine.destination());
  pair p;
  p.left.publish(theirs);
  tp::transfer<picky, tp::fixed_bytes<1024>, tp::image_digest> t(to, {{1, 2}}, {}, 1);
  const auto done = p.pull(t);
  EXPECT_EQ(code_of(done), errc::schema_mismatch);
  EXPECT_TRUE(done.error().name.empty());
}

TEST(SchemaComparison, L5_pages_that_lie_end_the_transfer) {
  using kind = tp::frame_kind;
  const auto with = [](auto change) {
    model theirs = many(500, 499, 30), mine = many(500, 500, 30);
    pair p;
    p.left.publish(theirs);
    p.owner_lies = lie_about(kind::schema_page, change);
    const auto done = pull_into(p, mine);
    EXPECT_TRUE(mine.untouched());
    return done.error().code;
  };
  EXPECT_EQ(with([](tp::frame& m) { m.offset += 1; }), errc::bad_frame);
  EXPECT_EQ(with([](tp::frame& m) { m.tensors = ~0ull; }), errc::bad_frame);
  EXPECT_EQ(with([](tp::frame& m) { m.rows = m.rows.first(0); }), errc::schema_mismatch)
      << "the search ends, although no row is ever said";
  int n = 0;
  EXPECT_EQ(with([&n](tp::frame& m) { m.rows = n++ < 300 ? m.rows.first(1) : m.rows; }), errc::schema_mismatch);
}

TEST(SchemaComparison, L4_shapes_whose_product_overflows_are_only_compared) {
  static constexpr std::uint64_t shape[] = {1ull << 32, 1ull << 32};
  model theirs, mine;
  theirs.add("w", dtype::f32, {2, 3}).ready(), mine.add("w", dtype::f32, {3, 2}).ready();
  pair p;
  p.left.publish(theirs.fill(1));
  static const tp::schema_row row{"w", "F32", shape};
  p.owner_lies = lie_about(tp::frame_kind::schema_page, [](tp::frame& m) { m.rows = std::span(&row, 1); });
  const auto done = pull_into(p, mine);
  EXPECT_EQ(code_of(done), errc::schema_mismatch);
  EXPECT_EQ(done.error().name.view(), "w");
}

}  // namespace schema_comparison_test
