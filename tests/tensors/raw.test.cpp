#include "models.hpp"

#include <tensorpull/image/dynamic.hpp>
#include <tensorpull/image/gather_scatter.hpp>
#include <tensorpull/tensors/structs/raw.hpp>

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

namespace raw_test {

using namespace tensorpull;

std::vector<std::byte> whole(const source_view& source) {
  std::vector<std::byte> out, slice(4096);
  std::span<const std::byte> pieces[8];
  for (gathered got; out.size() < source.schema->image_bytes;) {
    got = gather(source, out.size(), source.schema->image_bytes - out.size(), pieces, slice);
    if (got.bytes == 0) break;
    for (std::size_t i = 0; i < got.pieces; ++i) out.insert(out.end(), pieces[i].begin(), pieces[i].end());
  }
  return out;
}

/// The law: a static image is the dynamic image of the same tensors, in schema and in bytes.
template <class Policy>
void expect_equals_dynamic(const typename Policy::model_type& model) {
  const image_schema& schema = Policy::schema();
  const source_view source = Policy::source(model);
  std::vector<tensor_view> views;
  for (std::size_t i = schema.tensor_count; i-- > 0;)
    views.push_back({schema.tensors[i].name, schema.tensors[i].type, schema.tensors[i].extents(), source.address(i)});
  const auto dynamic = dynamic_image::make(views);
  ASSERT_TRUE(dynamic);
  EXPECT_EQ(schema.fingerprint, dynamic->schema().fingerprint);
  EXPECT_EQ(schema.header_bytes, dynamic->schema().header_bytes);
  EXPECT_EQ(schema.image_bytes, dynamic->schema().image_bytes);
  for (std::size_t i = 0; i < schema.tensor_count; ++i)
    EXPECT_EQ(schema.tensors[i].text_at, dynamic->schema().tensors[i].text_at) << i;
  EXPECT_EQ(whole(source), whole(dynamic->source()));
}

/// Fills every tensor through the destination, and checks that the source reads it back.
template <class Policy>
void expect_lands(typename Policy::model_type& model) {
  const image_schema& schema = Policy::schema();
  const destination_view destination = Policy::destination(model);
  std::span<std::byte> pieces[3];
  unsigned char next = 1;
  for (std::uint64_t at = schema.header_bytes; at < schema.image_bytes;) {
    const scattered got = scatter(destination, at, schema.image_bytes - at, pieces);
    ASSERT_GT(got.bytes, 0u);
    for (std::size_t i = 0; i < got.pieces; ++i)
      for (std::byte& b : pieces[i])
        b = static_cast<std::byte>(next++ & 1);  // 0 and 1 are valid for every type, bool included
    at += got.bytes;
  }
  const auto image = whole(Policy::source(model));
  next = 1;
  for (std::size_t i = schema.header_bytes; i < image.size(); ++i)
    ASSERT_EQ(image[i], static_cast<std::byte>(next++ & 1)) << i;
}

using every = raw_tensors<test::everything>;

constexpr const tensor_entry* find(const image_schema& schema, std::string_view name) {
  for (const tensor_entry& entry : schema.entries())
    if (entry.name == name) return &entry;
  return nullptr;
}

// 11 * 5 + 6 * 2 + 17 scalars and arrays; an array of no structs has no tensors, an array of no scalars is an empty
// one.
static_assert(every::schema().tensor_count == 11 * 5 + 6 * 2 + 17);
static_assert(find(every::schema(), "layers.10.down.weight")->rank == 2 &&
              find(every::schema(), "grid.1.2.bias")->extents()[0] == 4);
static_assert(find(every::schema(), "layers.0.note") == nullptr && find(every::schema(), "nothing")->size_bytes() == 0);
static_assert(find(every::schema(), "f64")->rank == 4 && find(every::schema(), "c64")->type == dtype::c64);
static_assert(every::schema().fingerprint != 0 && every::schema().image_bytes > every::schema().header_bytes);

TEST(RawTensors, Addresses_are_those_of_the_members_in_every_object) {
  const auto first = std::make_unique<test::everything>(), second = std::make_unique<test::everything>();
  for (const auto* model : {first.get(), second.get()}) {
    const source_view source = every::source(*model);
    const auto address = [&](std::string_view name) {
      return source.address(static_cast<std::size_t>(find(*source.schema, name) - source.schema->tensors));
    };
    EXPECT_EQ(static_cast<const void*>(address("layers.7.down.bias")), &model->layers[7].down.bias);
    EXPECT_EQ(static_cast<const void*>(address("layers.10.scale")), &model->layers[10].scale);
    EXPECT_EQ(static_cast<const void*>(address("grid.1.2.weight")), &model->grid[1][2].weight);
    EXPECT_EQ(static_cast<const void*>(address("e8m0")), &model->e8m0);
  }
  EXPECT_EQ(every::source(*first).where, every::source(*second).where) << "one table for the whole program";
}

TEST(RawTensors, A_static_image_is_the_dynamic_image) {
  const auto model = std::make_unique<test::everything>();
  expect_lands<every>(*model);
  expect_equals_dynamic<every>(*model);
}

// No compiler flag raises a limit for this file.
TEST(RawTensors, A_thousand_tensors_in_one_array) {
  using policy = raw_tensors<test::thousand>;
  static_assert(policy::schema().tensor_count == 1000);
  const auto model = std::make_unique<test::thousand>();
  expect_lands<policy>(*model);
  expect_equals_dynamic<policy>(*model);
}

TEST(RawTensors, A_thousand_tensors_in_nested_structs) {
  using policy = raw_tensors<test::wide>;
  static_assert(policy::schema().tensor_count == 1000);
  const auto model = std::make_unique<test::wide>();
  expect_lands<policy>(*model);
  expect_equals_dynamic<policy>(*model);
}

TEST(RawTensors, An_array_may_be_the_root) {
  using policy = raw_tensors<std::array<std::array<test::linear, 2>, 3>>;
  static_assert(policy::schema().tensor_count == 12 && policy::schema().tensors[0].name == "0.0.bias" &&
                policy::schema().tensors[11].name == "2.1.weight");
  std::array<std::array<test::linear, 2>, 3> model{};
  expect_lands<policy>(model);
  expect_equals_dynamic<policy>(model);
  using plain = raw_tensors<test::linear[2]>;
  test::linear two[2]{};
  EXPECT_EQ(static_cast<const void*>(plain::source(two).address(3)), &two[1].weight);
}

struct no_tensors {
  std::array<test::linear, 0> none;
};

}  // namespace raw_test

BOOST_HANA_ADAPT_STRUCT(raw_test::no_tensors, none);

namespace raw_test {

TEST(RawTensors, A_model_may_be_empty) {
  using policy = raw_tensors<no_tensors>;
  static_assert(policy::schema().tensor_count == 0 && policy::schema().image_bytes == 16);
  const no_tensors model{};
  expect_equals_dynamic<policy>(model);
}

}  // namespace raw_test
