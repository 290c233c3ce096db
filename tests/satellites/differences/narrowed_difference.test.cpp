// A narrowed difference is a model: it is published, pulled and applied, and both ends have the same bits.
#include "some_model.hpp"
#include "support/results.hpp"

#include <tensorpull/satellites/differences/narrowed_difference.hpp>
#include <tensorpull/tensorpull.hpp>
#include <tensorpull/tensors/tensor_list.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace narrowed_difference_test {

using namespace tensorpull;
using ::test::code_of;
using ::test::some_model;
using ::test::succeeded;

template <class Scheme>
struct NarrowedDifference : testing::Test {};
using schemes = testing::Types<blocks_of_8_bits<16>, blocks_of_4_bits<16>, blocks_of_8_bits<16, all_tensors>,
                               blocks_of_4_bits<16, all_tensors>>;
TYPED_TEST_SUITE(NarrowedDifference, schemes);

/// Tensors of every type, and integers.
some_model model_of_all() { return some_model({dtype::f32, dtype::f64, dtype::f16, dtype::bf16, dtype::i32}); }

/// What a recipient lands it in: memory of its own, with the schema that comes.
struct landed {
  std::vector<std::vector<std::uint64_t>> memory;
  std::vector<mutable_tensor_view> views;
  std::vector<tensor_view> constant;

  explicit landed(const image_schema& schema) {
    for (const tensor_entry& t : schema.entries()) {
      memory.emplace_back(t.size_bytes() / 8 + 1);
      views.push_back({t.name, t.type, t.extents(), reinterpret_cast<std::byte*>(memory.back().data()), {}, false});
    }
    constant.assign(views.begin(), views.end());
  }
};

template <std::uint64_t Chunk>
void pull(const dynamic_image& from, landed& to) {
  using net = pipeline<tensor_list, fixed_bytes<Chunk>, loopback>;
  auto mine = dynamic_image::make(std::span<const mutable_tensor_view>(to.views), from.schema().pairs());
  ASSERT_TRUE(mine);
  static typename net::downloader owner;
  const auto ref = owner.add_tensors(from);
  ASSERT_TRUE(ref);
  const auto done = net::download_tensors(owner, *ref, *mine);
  ASSERT_TRUE(done);
  ASSERT_TRUE(owner.withdraw(*ref));
}

TYPED_TEST(NarrowedDifference, Is_pulled_and_applied_round_after_round_in_chunks_of_any_size) {
  using difference = narrowed_difference<TypeParam>;
  auto owner = model_of_all(), client = model_of_all();
  owner.step(1, 1);
  client.step(1, 1);
  for (std::uint64_t round = 0; round < 6; ++round) {
    auto trained = owner;
    trained.step(10 + round, 1e-2);
    const auto sent = difference::make(trained.constant(), owner.constant());
    ASSERT_TRUE(succeeded(sent));
    landed down(sent->model().schema());
    if (round % 3 == 0) pull<8>(sent->model(), down);
    if (round % 3 == 1) pull<40>(sent->model(), down);
    if (round % 3 == 2) pull<65536>(sent->model(), down);
    const auto pairs = sent->model().schema().pairs();
    ASSERT_TRUE(move_by<TypeParam>(client.views(), down.constant, pairs));
    ASSERT_TRUE(move_by<TypeParam>(owner.views(), down.constant, pairs));
    EXPECT_EQ(client.memory, owner.memory);
    EXPECT_NE(client.memory, model_of_all().memory);
  }
}

TYPED_TEST(NarrowedDifference, What_is_not_right_leaves_the_base_as_it_was) {
  using difference = narrowed_difference<TypeParam>;
  auto owner = model_of_all(), client = model_of_all();
  owner.step(1, 1);
  client.step(1, 1);
  auto trained = owner;
  trained.step(2, 1e-2);
  const auto sent = difference::make(trained.constant(), owner.constant());
  ASSERT_TRUE(sent);
  const auto pairs = sent->model().schema().pairs();
  landed good(sent->model().schema());
  pull<4096>(sent->model(), good);
  const auto before = client.memory;
  const auto refused = [&](const std::vector<tensor_view>& what, std::span<const metadata_entry> with) {
    const auto done = move_by<TypeParam>(client.views(), what, with);
    EXPECT_EQ(client.memory, before);
    return done ? errc{} : done.error().code;
  };
  for (const std::uint32_t bad : {1u, 0x7f800000u, 0x7fc00000u, 0xbf800000u}) {
    landed hostile = good;
    for (std::size_t i = 0; i < hostile.views.size(); ++i) {
      hostile.constant[i].data = reinterpret_cast<const std::byte*>(hostile.memory[i].data());
      if (hostile.views[i].name == "F32.100.scales")
        std::memcpy(reinterpret_cast<std::byte*>(hostile.memory[i].data()) + 4, &bad, 4);
    }
    EXPECT_EQ(refused(hostile.constant, pairs), errc::value_out_of_range) << bad;
  }
  EXPECT_EQ(refused(good.constant, {}), errc::missing_field);
  auto fewer = good.constant;
  fewer.pop_back();
  EXPECT_EQ(refused(fewer, pairs), errc::schema_mismatch);
  const auto another = move_by<scaled_blocks<32, 8 / TypeParam::byte_elements>>(client.views(), good.constant, pairs);
  EXPECT_EQ(code_of(another), errc::missing_field);
  const auto of_other_bits = move_by<scaled_blocks<16, TypeParam::byte_elements == 1 ? 4 : 8>>(client.views(),
                                                                                               good.constant, pairs);
  EXPECT_EQ(code_of(of_other_bits), errc::missing_field);
  client.memory[1][0] ^= 1;  // one bit of F32.1
  const auto done = move_by<TypeParam>(client.views(), good.constant, pairs);
  EXPECT_EQ(code_of(done), errc::stale_version);
  client.memory[1][0] ^= 1;
  EXPECT_EQ(client.memory, before);
}

TYPED_TEST(NarrowedDifference, A_range_of_any_length_has_the_same_bytes) {
  using difference = narrowed_difference<TypeParam>;
  auto owner = model_of_all(), trained = model_of_all();
  owner.step(1, 1);
  trained.step(2, 1);
  const auto sent = difference::make(trained.constant(), owner.constant());
  ASSERT_TRUE(sent);
  const source_view from = sent->model().source();
  for (std::size_t i = 0; i < from.schema->tensor_count; ++i) {
    const tensor_entry& t = from.schema->tensors[i];
    if (!t.indirect) continue;
    std::vector<std::byte> whole(t.size_bytes()), parts(t.size_bytes());
    ASSERT_TRUE(from.reader->read(from.reader->context, from.where[i], 0, whole));
    for (const std::size_t n : {std::size_t{1}, std::size_t{3}, std::size_t{17}}) {
      for (std::size_t at = 0; at < parts.size(); at += n)
        ASSERT_TRUE(from.reader->read(from.reader->context, from.where[i], at,
                                      std::span(parts).subspan(at, std::min(n, parts.size() - at))));
      EXPECT_EQ(parts, whole) << std::string(t.name) << " in parts of " << n;
    }
  }
}

TYPED_TEST(NarrowedDifference, The_owner_refuses_what_is_not_finite_by_name) {
  using difference = narrowed_difference<TypeParam>;
  auto owner = model_of_all(), trained = model_of_all();
  const float bad = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(trained.memory[5].data(), &bad, 4);
  const auto sent = difference::make(trained.constant(), owner.constant());
  ASSERT_EQ(code_of(sent), errc::invalid_argument);
  EXPECT_EQ(sent.error().name.view(), "F32.100");
}

TYPED_TEST(NarrowedDifference, A_tensor_that_stands_still_takes_nothing_whatever_it_holds) {
  using difference = narrowed_difference<TypeParam>;
  auto owner = model_of_all();
  owner.step(1, 1);
  const float infinite = -std::numeric_limits<float>::infinity();
  std::memcpy(owner.memory[5].data(), &infinite, sizeof infinite);  // F32.100, such as a mask
  auto client = owner, now = owner;
  std::size_t moved = 0;
  for (std::size_t i = 0; i < now.names.size(); ++i) {
    if (now.counts[i] != 5000) continue;
    now.memory[i] = owner.stepped(3, 1e-2).memory[i];
    ++moved;
  }
  const auto sent = difference::make(now.constant(), owner.constant());
  ASSERT_TRUE(succeeded(sent));
  const image_schema& schema = sent->model().schema();
  EXPECT_EQ(schema.tensor_count, 2 * moved - 1) << "an I32 has no scales";
  landed down(schema);
  pull<4096>(sent->model(), down);
  const auto refused = [&](std::size_t of, std::size_t bit) {
    client.memory[of][0] ^= std::uint64_t{1} << bit;
    const auto done = move_by<TypeParam>(client.views(), down.constant, schema.pairs());
    client.memory[of][0] ^= std::uint64_t{1} << bit;
    return code_of(done);
  };
  EXPECT_EQ(refused(5, 0), errc::stale_version) << "one that stands still";
  EXPECT_EQ(refused(6, 0), errc::stale_version) << "one that moves";
  EXPECT_EQ(client.memory, owner.memory);
  ASSERT_TRUE(move_by<TypeParam>(client.views(), down.constant, schema.pairs()));
  EXPECT_EQ(client.memory[5], owner.memory[5]);
  EXPECT_NE(client.memory[6], owner.memory[6]);

  // a step that rounding leaves nothing of is as good as none
  auto nearly = owner;
  const float tiny = 1e-42f;
  std::memcpy(owner.memory[6].data(), &tiny, sizeof tiny);
  const float other = 3e-42f;
  nearly = owner;
  std::memcpy(nearly.memory[6].data(), &other, sizeof other);
  const auto none = difference::make(nearly.constant(), owner.constant());
  ASSERT_TRUE(succeeded(none));
  EXPECT_EQ(none->model().schema().tensor_count, 0u);
}

TEST(NarrowedBytes, Of_an_F32_model_takes_0_254_of_its_bytes_and_in_4_bits_0_129) {
  std::vector<float> base(1'000'000), model(1'000'000, 1e-3f);
  const std::uint64_t n[] = {1000, base.size() / 1000};
  const tensor_view w{"w", dtype::f32, n, reinterpret_cast<const std::byte*>(model.data())};
  const tensor_view b{"w", dtype::f32, n, reinterpret_cast<const std::byte*>(base.data())};
  const auto sent = narrowed_difference<>::make({&w, 1}, {&b, 1});
  ASSERT_TRUE(sent);
  EXPECT_LE(static_cast<double>(sent->model().schema().image_bytes), 0.2541 * 4e6);
  const auto half = narrowed_difference<blocks_of_4_bits<>>::make({&w, 1}, {&b, 1});
  ASSERT_TRUE(half);
  EXPECT_LE(static_cast<double>(half->model().schema().image_bytes), 0.1291 * 4e6);
}

}  // namespace narrowed_difference_test
