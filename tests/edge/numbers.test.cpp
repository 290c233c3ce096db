// Numbers of every width, on machines of either byte order: the image has them little-endian, a model has them as its
// machine does, at every moment.
#include "edge_model.hpp"

#include <tensorpull/consumers/any_schema/new_model.hpp>
#include <tensorpull/consumers/any_schema/published_schema.hpp>
#include <tensorpull/consumers/average/detail/elements.hpp>
#include <tensorpull/consumers/land.hpp>
#include <tensorpull/satellites/differences/applied_difference.hpp>
#include <tensorpull/satellites/differences/widened.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

namespace {

using namespace tensorpull;
using bytes = std::vector<std::byte>;
using policy = raw_tensors<edge::model>;

bytes collect(const source_view& from, std::uint64_t length, std::size_t slice_bytes) {
  bytes all, slice(slice_bytes);
  std::span<const std::byte> pieces[4];
  while (all.size() < length) {
    const gathered g = gather(from, all.size(), length - all.size(), pieces, slice);
    for (std::size_t i = 0; i < g.pieces; ++i) all.insert(all.end(), pieces[i].begin(), pieces[i].end());
    if (g.bytes == 0) break;
  }
  return all;
}
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

/// Tensors of every width, which a sender moves a little.
struct listed_model {
  std::array<double, 300> d{};
  std::array<float, 600> f{};
  std::array<float16, 257> h{};
  std::array<std::int32_t, 7> i{};
  std::array<float, 6> c{};
  std::array<std::uint8_t, 5> u{};
  std::array<std::uint64_t, 6> counts{300, 600, 257, 7, 3, 5};

  explicit listed_model(int step) {
    const auto fill = [step](auto& all) {
      for (std::size_t k = 0; k < all.size(); ++k) {
        const int v = static_cast<int>(k) * 4 + step * static_cast<int>(k % 5);
        if constexpr (requires { all[k].bits; }) all[k].bits = static_cast<std::uint16_t>(0x3c00 + v);
        else all[k] = static_cast<std::remove_reference_t<decltype(all[k])>>(v);
      }
    };
    fill(d), fill(f), fill(h), fill(i), fill(c), fill(u);
  }
  std::vector<mutable_tensor_view> views() {
    const auto one = [](std::string_view name, dtype type, std::uint64_t& n, auto& all) {
      return mutable_tensor_view{name, type, {&n, 1}, reinterpret_cast<std::byte*>(all.data()), {}, false};
    };
    return {one("d", dtype::f64, counts[0], d), one("f", dtype::f32, counts[1], f), one("h", dtype::f16, counts[2], h),
            one("i", dtype::i32, counts[3], i), one("c", dtype::c64, counts[4], c), one("u", dtype::u8, counts[5], u)};
  }
  std::vector<tensor_view> constant() {
    const auto all = views();
    return {all.begin(), all.end()};
  }
  dynamic_image image() { return *dynamic_image::make(std::span<const mutable_tensor_view>(views())); }
};

/// Gives a consumer an image, a chunk of 1,000 bytes at a time.
template <class Consumer>
result<void> give(Consumer& to, const source_view& image) {
  const image_schema& s = *image.schema;
  const bytes all = collect(image, s.image_bytes, 4096);
  if (const auto ok = to.begin({{1, 2}, 3, s.fingerprint, s.image_bytes, s.header_bytes, s.tensor_count, true}); !ok)
    return ok;
  for (std::size_t at = 0, end = 0; at < all.size(); at = end) {
    end = std::min<std::size_t>(all.size(), at + 1000);
    for (std::size_t k = at; k < end;) {
      std::array<std::span<std::byte>, 1> room;
      if (to.prepare(k, end - k, room).pieces == 0) return failure(errc::busy, k);
      std::memcpy(room[0].data(), &all[k], room[0].size());
      if (const auto ok = to.commit(k, room[0]); !ok) return ok;
      k += room[0].size();
    }
    if (const auto ok = to.chunk(at, end - at); !ok) return ok;
  }
  return to.finish({});
}

TEST(Differences, Say_the_same_of_a_model_on_machines_of_either_byte_order) {
  listed_model now(1), base(0), in_place(0), landed(0);
  const auto d = narrowed_difference<>::make(now.constant(), base.constant());
  ASSERT_TRUE(d);
  const auto pairs = d->model().schema().pairs();
  ASSERT_EQ(pairs.size(), 3U);
  EXPECT_EQ(pairs[0].value, "2029b4997ba0c59a");
  EXPECT_EQ(pairs[2].value, "ed9166f66fca07e5");
  xxh3_64 all;
  all.update(collect(d->model().source(), d->model().schema().image_bytes, 4096));
  EXPECT_EQ(all.digest(), 0xe9b3418e0b2f11fdU);

  // while it comes, in place
  auto image = in_place.image();
  land to(image.destination());
  auto wide = widened<land>::make(to, image.source(), 1000);
  ASSERT_TRUE(wide);
  const auto moved = give(*wide, d->model().source());
  ASSERT_TRUE(moved) << to_string(moved.error().code);
  // and once it has come
  std::vector<std::vector<std::byte>> memory;
  std::vector<mutable_tensor_view> into;
  for (const tensor_entry& t : d->model().schema().entries()) {
    memory.emplace_back(static_cast<std::size_t>(t.size_bytes()) + 8);
    into.push_back({t.name, t.type, t.extents(), memory.back().data(), {}, false});
  }
  auto there = dynamic_image::make(std::span<const mutable_tensor_view>(into));
  land narrowed(there->destination());
  ASSERT_TRUE(give(narrowed, d->model().source()));
  const auto applied = move_by<>(landed.views(), std::vector<tensor_view>(into.begin(), into.end()), pairs);
  ASSERT_TRUE(applied) << to_string(applied.error().code);
  EXPECT_EQ(in_place.d, landed.d);
  EXPECT_EQ(in_place.f, landed.f);
  EXPECT_EQ(in_place.i, now.i);
  EXPECT_EQ(landed.i, now.i);
  EXPECT_EQ(in_place.c, now.c);
  EXPECT_NEAR(in_place.f[4], now.f[4], 0.02);
}

TEST(Differences, Without_loss_are_the_same_bytes_on_machines_of_either_byte_order) {
  listed_model now(1), base(0);
  no_coder coder;
  auto to_now = now.image();
  auto mine = base.image();
  const auto d = model_difference::make<no_coder, xxh3_64>(mine.source(), to_now.source(), coder);
  ASSERT_TRUE(d);
  xxh3_64 all;
  all.update(d->bytes());
  EXPECT_EQ(all.digest(), 0xd447eacd87a1ad72U);
  auto applied = applied_difference<no_coder, xxh3_64>::make(mine.destination(), coder, 1000);
  ASSERT_TRUE(applied);
  const auto done = give(*applied, d->image());
  ASSERT_TRUE(done) << to_string(done.error().code);
  EXPECT_EQ(base.d, now.d);
  EXPECT_EQ(base.f, now.f);
  EXPECT_EQ(base.i, now.i);
  EXPECT_EQ(base.c, now.c);
  EXPECT_EQ(base.u, now.u);
}

}  // namespace
