// L12 and contract 2: after set-up, no heap allocation on either side, whatever the sizes.
#include "support/allocation_counter.hpp"
#include "support/pair.hpp"

namespace allocation_test {

using namespace test;

/// Room for everything that the test's own pipe will carry, so that only the library can allocate.
void reserve(pair& p, std::size_t bytes) {
  for (wire* w : {&p.to_left, &p.to_right, &p.sent_by_left()}) w->bytes.reserve(bytes);
}

template <class Integrity, class Chunking>
void expect_no_allocation(Chunking chunking, std::span<const std::string_view> subset = {}) {
  model source, mine;
  for (model* m : {&source, &mine}) {
    for (int i = 0; i < 20; ++i) m->add("t" + std::to_string(i), dtype::f32, {17, 31});
    m->ready();
  }
  source.fill(1);
  pair p(cut{3000});
  reserve(p, 1 << 20);
  p.left.publish(source);
  tp::land to(mine.destination());
  transfer<Chunking, Integrity> t(to, {.ref = {1, 2}, .subset = subset}, chunking, 1);
  tp::no_transfer idle;
  p.right.end.begin_pull();
  (void)decoded(encode({}));  // kj makes 16 bytes for each thread that uses it, once
  const allocation_watch watch;
  std::uint64_t rounds = 0;
  while (!t.ended() && p.pump(idle, t) && rounds < 100'000) ++rounds;
  const std::uint64_t allocations = watch.count();
  EXPECT_EQ(allocations, 0u);
  ASSERT_TRUE(t.ended() && t.outcome());
  EXPECT_TRUE(mine.same_tensors(source));
  EXPECT_GT(rounds, 5u);
}

TEST(Allocation, L12_a_whole_transfer_allocates_nothing_on_either_side) {
  expect_no_allocation<tp::image_digest>(tp::fixed_bytes<512>{});
  expect_no_allocation<tp::chunk_and_image_digest>(tp::fixed_bytes<4096>{});
  expect_no_allocation<tp::unverified>(tp::per_tensor<2048>{});
  expect_no_allocation<tp::image_digest>(tp::whole{});
}
TEST(Allocation, L12_a_subset_allocates_nothing_on_either_side) {
  std::vector<std::string> names;
  for (int i = 0; i < 20; ++i) names.push_back("t" + std::to_string(i));
  const std::vector<std::string_view> all(names.begin(), names.end());
  expect_no_allocation<tp::image_digest>(tp::fixed_bytes<512>{}, all);
}

TEST(Allocation, Comparing_schemas_allocates_nothing) {
  model source, mine;
  for (int i = 0; i < 300; ++i)
    source.add("t" + std::to_string(i), dtype::u8, {1}),
        mine.add("t" + std::to_string(i), dtype::u8, {i == 299 ? 2u : 1u});
  source.ready().fill(1), mine.ready();
  pair p;
  reserve(p, 1 << 20);
  p.left.publish(source);
  tp::land to(mine.destination());
  transfer<> t(to, {{1, 2}}, {}, 1);
  tp::no_transfer idle;
  p.right.end.begin_pull();
  (void)decoded(encode({}));
  const allocation_watch watch;
  while (!t.ended() && p.pump(idle, t)) {
  }
  EXPECT_EQ(watch.count(), 0u);
  EXPECT_EQ(code_of(t.outcome()), errc::schema_mismatch);
}

TEST(Allocation, A_claim_of_much_data_allocates_nothing) {
  party p(1);
  const words claim{std::uint64_t{0x1fff} << 32, struct_pointer(0, 7, 1), std::uint64_t{14} << 32};
  wire in, out;
  in.put(std::as_bytes(std::span(claim)));
  pipe_end stream(in, out, {}, {});
  tp::no_transfer idle;
  const allocation_watch watch;
  (void)tp::pump_once(p.end, idle, stream, {reinterpret_cast<std::byte*>(p.scratch.get()), 65536});
  EXPECT_EQ(watch.count(), 0u);
  EXPECT_LE(p.pool.available(), 4u);
}

}  // namespace allocation_test
