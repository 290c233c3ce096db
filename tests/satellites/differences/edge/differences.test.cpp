// Differences, on machines of either byte order.
#include "edge/edge_model.hpp"
#include "support/results.hpp"

#include <tensorpull/consumers/land.hpp>
#include <tensorpull/satellites/differences/applied_difference.hpp>
#include <tensorpull/satellites/differences/widened.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace {

using namespace tensorpull;
using edge::bytes;
using edge::collect;

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

using scheme = blocks_of_8_bits<256, all_tensors>;

TEST(Differences, Say_the_same_of_a_model_on_machines_of_either_byte_order) {
  listed_model now(1), base(0), in_place(0), landed(0);
  const auto d = narrowed_difference<scheme>::make(now.constant(), base.constant());
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
  auto wide = widened<land, scheme>::make(to, image.source(), 1000);
  ASSERT_TRUE(wide);
  const auto moved = give(*wide, d->model().source());
  ASSERT_TRUE(succeeded(moved));
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
  const auto applied = move_by<scheme>(landed.views(), std::vector<tensor_view>(into.begin(), into.end()), pairs);
  ASSERT_TRUE(succeeded(applied));
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
  ASSERT_TRUE(succeeded(done));
  EXPECT_EQ(base.d, now.d);
  EXPECT_EQ(base.f, now.f);
  EXPECT_EQ(base.i, now.i);
  EXPECT_EQ(base.c, now.c);
  EXPECT_EQ(base.u, now.u);
}

}  // namespace
