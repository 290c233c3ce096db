#include "random_image.hpp"

#include <tensorpull/image/dynamic.hpp>

#include <gtest/gtest.h>

#include <array>

namespace dynamic_test {

using namespace tensorpull;

const std::uint64_t four[] = {4};
const std::array<std::byte, 4096> memory{};

tensor_view view(std::string_view name, dtype type = dtype::f32, std::span<const std::uint64_t> shape = four) {
  return {name, type, shape, memory.data()};
}
error refusal(std::initializer_list<tensor_view> views, std::initializer_list<metadata_entry> metadata = {}) {
  const auto made = dynamic_image::make(std::span(views.begin(), views.size()),
                                        std::span(metadata.begin(), metadata.size()));
  return made ? error{} : made.error();
}

TEST(DynamicImage, Refuses_each_bad_tensor_by_name) {
  EXPECT_EQ(refusal({view("a"), view("b"), view("a")}), errc::duplicate_name);
  EXPECT_EQ(refusal({view("a"), view("b"), view("a", dtype::i8)}).name.view(), "a");
  EXPECT_EQ(refusal({view("a", dtype::f64), view("b", dtype::u8), view("z", dtype::i8), view("b", dtype::i64)}),
            errc::duplicate_name);
  EXPECT_EQ(refusal({view("a"), view("__metadata__")}), errc::reserved_name);
  EXPECT_EQ(refusal({view("a"), view("\xed\xa0\x80")}), errc::invalid_argument);
  EXPECT_EQ(refusal({view("a"), view("\xff")}).at, 1u);
  const std::uint64_t odd[] = {3}, huge[] = {1ull << 40, 1ull << 40}, large[] = {1ull << 61};
  EXPECT_EQ(refusal({view("a", dtype::f4, odd)}), errc::unsupported_dtype);
  EXPECT_EQ(refusal({view("a", static_cast<dtype>(77))}), errc::unsupported_dtype);
  EXPECT_EQ(refusal({view("a", dtype::u8, huge)}), errc::size_overflow);
  // Each fits, the sum does not.
  EXPECT_EQ(refusal({view("a", dtype::u8, large), view("b", dtype::u8, large), view("c", dtype::u8, large),
                     view("d", dtype::u8, large), view("e", dtype::u8, large), view("f", dtype::u8, large),
                     view("g", dtype::u8, large), view("h", dtype::u8, large)}),
            errc::size_overflow);
  EXPECT_EQ(refusal({{"a", dtype::f32, four, nullptr}}), errc::invalid_argument);
  const std::int64_t one_stride[] = {8}, two_strides[] = {8, 4};
  EXPECT_EQ(refusal({{"a", dtype::f32, four, memory.data(), two_strides}}), errc::invalid_argument);
  const std::uint64_t packed[] = {4};
  EXPECT_EQ(refusal({{"a", dtype::f4, packed, memory.data(), one_stride}}), errc::unsupported_layout);
  const std::vector<std::uint64_t> many(65536, 1);
  EXPECT_EQ(refusal({view("a", dtype::f32, many)}), errc::invalid_argument);
}

TEST(DynamicImage, Refuses_bad_metadata) {
  EXPECT_EQ(refusal({view("a")}, {{"k", "v"}, {"k", "w"}}), errc::duplicate_name);
  EXPECT_EQ(refusal({view("a")}, {{"k", "\xc0\x80"}}), errc::invalid_argument);
}

TEST(DynamicImage, Refuses_more_header_text_than_the_reference_library_reads) {
  const std::string name(99'999'990, 'x');
  EXPECT_EQ(refusal({view(name)}), errc::does_not_fit);
}

TEST(DynamicImage, L9_StridedDestinationsAreRefused) {
  std::array<std::byte, 64> mine{};
  const std::int64_t strides[] = {8};
  const mutable_tensor_view strided{"a", dtype::f32, four, mine.data(), strides};
  EXPECT_EQ(dynamic_image::make(std::span(&strided, 1)).error(), errc::unsupported_layout);
}

TEST(DynamicImage, Strided_rank_is_bounded) {
  std::vector<std::uint64_t> shape(65, 1);
  std::vector<std::int64_t> strides(65, 0);
  shape.back() = 4;
  const tensor_view broadcast{"a", dtype::f32, shape, memory.data(), strides};
  EXPECT_EQ(refusal({broadcast}), errc::unsupported_layout);
}

TEST(DynamicImage, Views_survive_moves) {
  tensorpull::test::random_tensors tensors(3, 20, false);
  auto first = dynamic_image::make(tensors.views());
  ASSERT_TRUE(first);
  const source_view source = first->source();
  const dynamic_image second = std::move(*first);
  EXPECT_EQ(source.schema, &second.schema());
  EXPECT_EQ(source.where, second.source().where);
  EXPECT_EQ(source.schema->tensor_count, 20u);
}

TEST(DynamicImage, Copies_names_and_shapes) {
  std::string name = "temporary";
  std::vector<std::uint64_t> shape{2, 2};
  const tensor_view t{name, dtype::f32, shape, memory.data()};
  const auto image = dynamic_image::make(std::span(&t, 1));
  name = "overwritten";
  shape.assign(2, 9);
  EXPECT_EQ(image->schema().tensors[0].name, "temporary");
  EXPECT_EQ(image->schema().tensors[0].shape[1], 2u);
}

TEST(DynamicImage, Takes_at_most_96_bytes_a_tensor_of_rank_4_besides_names) {
  const std::uint64_t shape[] = {1, 2, 2, 1};
  std::vector<std::string> names;
  std::vector<tensor_view> views;
  std::size_t characters = 0;
  for (int i = 0; i < 1000; ++i) characters += names.emplace_back("t" + std::to_string(i)).size();
  for (const auto& name : names) views.push_back(view(name, dtype::f32, shape));
  const auto image = dynamic_image::make(views);
  ASSERT_TRUE(image);
  EXPECT_LE(image->table_bytes() - characters, 96u * 1000 + 128);
}

TEST(DynamicImageDeathTest, A_read_only_image_is_no_destination) {
  const tensor_view t = view("a");
  auto image = dynamic_image::make(std::span(&t, 1));
  EXPECT_FALSE(image->writable());
  EXPECT_DEATH((void)image->destination(), "");
}

TEST(Fingerprint, Depends_on_the_schema_and_on_nothing_else) {
  const auto fingerprint = [](std::initializer_list<tensor_view> views, std::span<const metadata_entry> metadata = {}) {
    return dynamic_image::make(std::span(views.begin(), views.size()), metadata)->schema().fingerprint;
  };
  const std::uint64_t two_two[] = {2, 2}, one_four[] = {1, 4}, four_one[] = {4, 1};
  const metadata_entry pair{"k", "v"};
  const auto base = fingerprint({view("a"), view("b")});
  EXPECT_EQ(base, fingerprint({view("b"), view("a")}));
  EXPECT_EQ(base, fingerprint({view("a"), view("b")}, std::span(&pair, 1)));
  EXPECT_NE(base, fingerprint({view("a"), view("c")}));
  EXPECT_NE(base, fingerprint({view("a"), view("b", dtype::i32)}));
  EXPECT_NE(base, fingerprint({view("a"), view("b", dtype::f32, two_two)}));
  EXPECT_NE(fingerprint({view("a", dtype::f32, one_four)}), fingerprint({view("a", dtype::f32, four_one)}));
  EXPECT_EQ(fingerprint({}), xxh3_64().digest());
}

TEST(DynamicImage, Destinations_that_share_memory_are_refused) {
  std::array<float, 8> room{};
  const std::uint64_t shape[] = {4}, none[] = {0};
  const auto at = [&](std::size_t i) { return reinterpret_cast<std::byte*>(room.data() + i); };
  const auto made = [&](std::size_t a, std::size_t b) {
    const mutable_tensor_view views[] = {
        {"b", dtype::f32, shape, at(b)}, {"a", dtype::f32, shape, at(a)}, {"none", dtype::f32, none, at(1)}};
    return dynamic_image::make(views);
  };
  EXPECT_TRUE(made(0, 4));
  EXPECT_TRUE(made(4, 0));
  for (const std::size_t b : {0u, 1u, 3u}) {
    const auto shared = made(0, b);
    ASSERT_FALSE(shared) << b;
    EXPECT_EQ(shared.error(), errc::unsupported_layout);
    EXPECT_FALSE(shared.error().name.empty());
  }
  const tensor_view sources[] = {{"a", dtype::f32, shape, at(0)}, {"b", dtype::f32, shape, at(2)}};
  EXPECT_TRUE(dynamic_image::make(sources)) << "what is only read may be shared";
}

}  // namespace dynamic_test
