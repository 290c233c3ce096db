// Numbers of every width, on machines of either byte order: the image has them little-endian, a model has them as its
// machine does, at every moment.
#include "edge_model.hpp"

#include <tensorpull/consumers/any_schema/new_model.hpp>
#include <tensorpull/consumers/any_schema/published_schema.hpp>
#include <tensorpull/consumers/average/detail/elements.hpp>
#include <tensorpull/consumers/land.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

namespace {

using namespace tensorpull;
using edge::bytes;
using edge::collect;
using policy = raw_tensors<edge::model>;

bytes image_of(const edge::model& m) { return collect(policy::source(m), policy::schema().image_bytes, 4096); }
std::unique_ptr<edge::model> filled() {
  auto m = std::make_unique<edge::model>();
  edge::fill(*m);
  return m;
}
/// The tensor's bytes in the image.
bytes bytes_of(const bytes& image, std::string_view name) {
  const image_schema& s = policy::schema();
  for (const tensor_entry& t : s.entries())
    if (t.name == name) {
      const auto begin = image.begin() + static_cast<std::ptrdiff_t>(s.header_bytes);
      return {begin + static_cast<std::ptrdiff_t>(t.begin), begin + static_cast<std::ptrdiff_t>(t.end)};
    }
  ADD_FAILURE() << name;
  return {};
}
bytes octets(std::initializer_list<unsigned> list) {
  bytes b;
  for (const unsigned n : list) b.push_back(static_cast<std::byte>(n));
  return b;
}
description described() {
  const image_schema& s = policy::schema();
  description d;
  d.image_bytes = s.image_bytes, d.data_start = s.header_bytes, d.fingerprint = s.fingerprint;
  d.tensors = s.tensor_count;
  return d;
}
/// Lands the image's bytes [at, at + length), at most `step` of them at a time.
template <class Consumer>
void put(Consumer& to, const bytes& image, std::uint64_t at, std::uint64_t length, std::mt19937& random,
         std::size_t step) {
  std::span<std::byte> out[3];
  for (const std::uint64_t end = at + length; at < end;) {
    const prepared room = to.prepare(at, end - at, out);
    ASSERT_GT(room.bytes, 0u);
    for (std::size_t i = 0; i < room.pieces; ++i) {
      // what a read gives is rarely all that it had room for
      const std::size_t n = std::min(out[i].size(), 1 + random() % step);
      std::copy_n(image.begin() + static_cast<std::ptrdiff_t>(at), n, out[i].begin());
      ASSERT_TRUE(to.commit(at, out[i].first(n)));
      at += n;
      if (n < out[i].size()) break;
    }
  }
}

TEST(Numbers, An_image_has_them_little_endian) {
  const auto m = filled();
  const bytes image = image_of(*m);
  EXPECT_EQ(bytes_of(image, "step"), octets({0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01}));
  EXPECT_EQ(bytes_of(image, "count"), octets({0xef, 0xcd, 0xab, 0x89, 0xf0, 0xcd, 0xab, 0x89}));
  EXPECT_EQ(bytes_of(image, "half"),
            octets({0x80, 0x3f, 0x81, 0x3f, 0x82, 0x3f, 0x83, 0x3f, 0x84, 0x3f, 0x85, 0x3f, 0x86, 0x3f}));
  EXPECT_EQ(bytes_of(image, "small"), octets({0xd4, 0xfe, 0xd5, 0xfe, 0xd6, 0xfe, 0xd7, 0xfe, 0xd8, 0xfe}));
  const bytes waves = bytes_of(image, "waves");
  // 2.5 - 2.25i, part by part
  EXPECT_EQ(bytes(waves.begin() + 16, waves.begin() + 24), octets({0, 0, 0x20, 0x40, 0, 0, 0x10, 0xc0}));
  for (const std::size_t slice : {13u, 1000u})
    EXPECT_EQ(collect(policy::source(*m), image.size(), slice), image) << slice;
}

TEST(Numbers, Land_in_order_wherever_reads_are_cut) {
  const bytes image = image_of(*filled());
  std::mt19937 random(1);
  for (const std::size_t step : {1u, 9u, 3000u, 70'000u}) {
    const auto mine = std::make_unique<edge::model>();
    land to(policy::destination(*mine));
    ASSERT_TRUE(to.begin(described()));
    for (std::uint64_t at = 0; at < image.size();) {
      const std::uint64_t n = std::min<std::uint64_t>(image.size() - at, 1 + random() % 100'000);
      put(to, image, at, n, random, step);
      at += n;
      // what has landed can be read back, even if it ends within a number
      const bytes back = collect(to.read_back(), at, 512);
      ASSERT_TRUE(std::equal(back.begin(), back.end(), image.begin())) << at;
    }
    ASSERT_TRUE(to.finish({}));
    EXPECT_TRUE(edge::holds_the_values(*mine)) << step;
  }
}

TEST(Numbers, Land_in_any_order_and_twice) {
  const bytes image = image_of(*filled());
  std::mt19937 random(2);
  const auto mine = std::make_unique<edge::model>();
  land to(policy::destination(*mine));
  ASSERT_TRUE(to.begin(described()));
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
  const std::uint64_t start = policy::schema().header_bytes;
  for (std::uint64_t at = start; at < image.size(); at += 1013)
    ranges.insert(ranges.end(), 1 + random() % 2, {at, std::min<std::uint64_t>(1013, image.size() - at)});
  std::shuffle(ranges.begin(), ranges.end(), random);
  for (const auto& [at, n] : ranges) put(to, image, at, n, random, 2000);
  ASSERT_TRUE(to.finish({}));
  EXPECT_TRUE(edge::holds_the_values(*mine));
  EXPECT_EQ(image_of(*mine), image);
}

struct heap_tensors {
  std::vector<bytes> memory;
  result<std::byte*> allocate(const tensor_entry& t) { return memory.emplace_back(t.size_bytes()).data(); }
  void clear() noexcept { memory.clear(); }
};

TEST(Numbers, Land_in_a_model_that_is_made_for_them) {
  const auto m = filled();
  const bytes image = image_of(*m);
  const source_view theirs = policy::source(*m);
  std::mt19937 random(3);
  for (const std::size_t step : {1u, 9u, 3000u, 70'000u}) {
    new_model<heap_tensors> to({}, {.max_bytes = image.size()});
    ASSERT_TRUE(to.begin(described()));
    put(to, image, 0, image.size(), random, step);
    ASSERT_TRUE(to.chunk(0, image.size()));
    ASSERT_TRUE(to.finish({}));
    ASSERT_EQ(to.made().fingerprint, theirs.schema->fingerprint);
    for (std::size_t i = 0; i < to.made().tensor_count; ++i) {
      const bytes& made = to.allocator().memory[i];
      EXPECT_TRUE(made.empty() || std::memcmp(made.data(), theirs.address(i), made.size()) == 0)
          << to.made().tensors[i].name << step;
    }
  }
}

TEST(Numbers, Behind_a_header_that_is_looked_at_go_nowhere) {
  const bytes image = image_of(*filled());
  std::mt19937 random(4);
  published_schema to({});
  ASSERT_TRUE(to.begin(described()));
  put(to, image, 0, image.size(), random, 3000);
  EXPECT_EQ(to.chunk(0, image.size()).error(), errc::cancelled);
  EXPECT_TRUE(to.complete());
  EXPECT_EQ(to.schema_of_image().fingerprint, policy::schema().fingerprint);
  EXPECT_EQ(to.described().image_bytes, image.size());
}

// An average reads updates as images have them, and writes its result as the machine has numbers.
TEST(Numbers, Are_averaged_from_an_image_into_a_model) {
  using namespace tensorpull::detail;
  EXPECT_EQ(native_float<double>::read(octets({0, 0, 0, 0, 0, 0, 0xf8, 0x3f}).data()), 1.5);
  EXPECT_EQ(small_float<f16_format>::read(octets({0, 0x3e}).data()), 1.5f);
  EXPECT_EQ(small_float<bf16_format>::read(octets({0xc0, 0x3f}).data()), 1.5f);
  EXPECT_EQ(integer<std::int16_t>::read(octets({0xd4, 0xfe}).data()), -300.0);
  EXPECT_EQ(integer<std::uint64_t>::read(octets({1, 0, 0, 0, 0, 1, 0, 0}).data()), 1099511627777.0);
  const bytes update = octets({0, 0, 0xc0, 0x3f, 0, 0, 0x20, 0xc0});
  float sums[2] = {1, 1}, quotients[2] = {};
  add_weighted<native_float<float, 2>>(sums, update.data(), 2, 2.0f);
  write_quotients<native_float<float>>(std::as_writable_bytes(std::span(quotients)).data(), sums, 2, 2.0);
  EXPECT_EQ(quotients[0], 2.0f);
  EXPECT_EQ(quotients[1], -2.0f);
}

}  // namespace
