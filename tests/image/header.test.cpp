#include "image/header_windows.hpp"

#include <tensorpull/image/arrange.hpp>
#include <tensorpull/image/header.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace header_test {

using namespace tensorpull;

const std::uint64_t two_three[] = {2, 3};

std::string header_of(std::vector<tensor_entry> entries, std::vector<metadata_entry> metadata = {}) {
  const auto schema = arrange(entries, {}, metadata);
  if (!schema) return std::string(to_string(schema.error().code));
  const auto out = ::test::header_in_windows(*schema);
  const std::size_t n = out.size();
  EXPECT_EQ(static_cast<std::uint64_t>(out[0]) | static_cast<std::uint64_t>(out[1]) << 8, n - 8);
  return {reinterpret_cast<const char*>(out.data()) + 8, n - 8};
}

TEST(Header, Is_what_safetensors_writes) {
  EXPECT_EQ(header_of({}), "{}      ");
  EXPECT_EQ(header_of({{"w", dtype::f32, false, 2, 0, 0, two_three}}),
            R"({"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})"
            "       ");
  EXPECT_EQ(header_of({{"n", dtype::i64}, {"w", dtype::f32, false, 2, 0, 0, two_three}}, {{"format", "pt"}}),
            R"({"__metadata__":{"format":"pt"},"n":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
            R"("w":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]}})"
            "    ");
  EXPECT_EQ(header_of({}, {{"b", "2"}, {"a", "1"}}), R"({"__metadata__":{"a":"1","b":"2"}})"
                                                     "      ");
}

TEST(Header, Escapes_as_serde_json_does) {
  EXPECT_EQ(
      header_of({{"\"\\/\b\f\n\r\t\x01\x1f\x7f\xc3\xa9", dtype::u8}}),
      "{\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\x7f\xc3\xa9\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}       ");
}

static_assert(detail::decimal_length(0) == 1 && detail::decimal_length(9) == 1 && detail::decimal_length(10) == 2);
static_assert(detail::decimal_length(999) == 3 && detail::decimal_length(1000) == 4 &&
              detail::decimal_length(~std::uint64_t{}) == 20);

constexpr bool in_constant_evaluation() {
  tensor_entry entries[] = {{"b", dtype::u8}, {"a", dtype::f64}};
  const auto schema = arrange(entries);
  std::byte out[24]{};
  return schema && write_header(*schema, 8, out) == 24 && static_cast<char>(out[2]) == 'a' &&
         schema->tensors[1].begin == 8;
}
static_assert(in_constant_evaluation());

// A request for one byte of the header must not cost a pass over the names before it. If they are changed, the byte
// stays the same.
TEST(Header, A_window_is_found_without_looking_at_the_names_before_it) {
  std::vector<std::string> names;
  std::vector<tensor_entry> entries;
  for (std::size_t i = 0; i < 1000; ++i) names.push_back("layer.\n" + std::to_string(i));
  for (const auto& name : names) entries.push_back({name, dtype::f32, false, 2, 0, 0, two_three});
  std::vector<metadata_entry> metadata{{"a", "b"}};
  const auto schema = arrange(entries, {}, metadata);
  ASSERT_TRUE(schema);
  std::vector<std::byte> whole(schema->header_bytes);
  ASSERT_EQ(write_header(*schema, 0, whole), whole.size());
  for (const std::size_t kept : {0u, 1u, 500u, 998u, 999u}) {
    auto other = entries;
    for (std::size_t i = 0; i < other.size(); ++i)
      if (i != kept) other[i].name = "x";
    image_schema changed = *schema;
    changed.tensors = other.data();
    const std::size_t first = entries[kept].text_at,
                      last = kept + 1 < entries.size() ? entries[kept + 1].text_at : whole.size();
    for (std::size_t offset = first; offset < last; ++offset) {
      std::byte one{};
      ASSERT_EQ(write_header(changed, offset, {&one, 1}), 1u);
      ASSERT_EQ(one, whole[offset]) << kept << ' ' << offset - first;
    }
  }
}

// Nor over megabytes of metadata, of which a header is written in windows of kilobytes.
TEST(Header, A_window_is_found_without_looking_at_the_metadata_before_it) {
  const std::string digests(1000, '5'), quoted = "\"" + std::string(998, 'q') + "\n", last(500, 'z');
  std::vector<metadata_entry> metadata{{"c", last}, {"b", quoted}, {"a", digests}, {"none", ""}};
  std::vector<tensor_entry> entries{{"w", dtype::u8}};
  const auto schema = arrange(entries, {}, metadata);
  ASSERT_TRUE(schema);
  const auto whole = ::test::header_in_windows(*schema);
  const std::string text(reinterpret_cast<const char*>(whole.data()), whole.size());
  const std::string other(1000, '"');  // two characters each
  for (const std::size_t pair : {0u, 1u}) {
    auto changed = metadata;
    changed[pair].value = other;
    image_schema with = *schema;
    with.metadata = changed.data();
    for (std::size_t offset = text.find("zzz"); offset < text.size(); ++offset) {
      std::byte one{};
      ASSERT_EQ(write_header(with, offset, {&one, 1}), 1u);
      ASSERT_EQ(one, whole[offset]) << pair << ' ' << offset;
    }
  }
  std::string half = digests;
  half.replace(0, 500, 500, '"');
  auto changed = metadata;
  changed[0].value = half;
  image_schema with = *schema;
  with.metadata = changed.data();
  const std::size_t middle = text.find("555") + 500;
  std::byte one{};
  ASSERT_EQ(write_header(with, middle, {&one, 1}), 1u);
  EXPECT_EQ(one, std::byte{'5'});
}

}  // namespace header_test
