// An image that is written by ranges: any order behind the header, each byte once, and nothing that the image's own
// header does not say.
#include "../image/random_image.hpp"

#include <tensorpull/consumers/any_schema/image_landing.hpp>
#include <tensorpull/tensors/tensor_list.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

namespace image_landing_test {

using namespace tensorpull;
using bytes = std::vector<std::byte>;

struct heap_tensors {
  std::vector<std::unique_ptr<std::byte[]>> memory;
  std::uint64_t most = ~std::uint64_t{0};
  result<std::byte*> allocate(const tensor_entry& entry) {
    if (entry.size_bytes() > most) return failure(errc::out_of_memory, 0, entry.name);
    return memory.emplace_back(new std::byte[static_cast<std::size_t>(entry.size_bytes()) + 1]).get();
  }
  void clear() noexcept { memory.clear(); }
};
using landing = image_landing<heap_tensors>;
constexpr new_model_limits roomy{.max_bytes = 16u << 20};

struct sample {
  std::vector<std::uint32_t> a = std::vector<std::uint32_t>(1000), b = std::vector<std::uint32_t>(77);
  std::array<std::uint64_t, 2> shape_a{10, 100};
  std::array<std::uint64_t, 1> shape_b{77};
  dynamic_image image = [this] {
    std::iota(a.begin(), a.end(), 1u), std::iota(b.begin(), b.end(), 5u);
    const tensor_view views[]{{"a", dtype::u32, shape_a, reinterpret_cast<const std::byte*>(a.data())},
                              {"b", dtype::u32, shape_b, reinterpret_cast<const std::byte*>(b.data())}};
    const metadata_entry pairs[]{{"k", "v"}};
    return std::move(*dynamic_image::make(views, pairs));
  }();
  bytes text = [this] {
    bytes out(static_cast<std::size_t>(image.schema().image_bytes));
    std::byte slice[512];
    for (std::uint64_t at = 0; at < out.size();) {
      std::span<const std::byte> pieces[4];
      const gathered g = gather(image.source(), at, out.size() - at, pieces, slice);
      for (std::size_t i = 0; i < g.pieces; ++i) {
        std::copy(pieces[i].begin(), pieces[i].end(), out.begin() + static_cast<std::ptrdiff_t>(at));
        at += pieces[i].size();
      }
    }
    return out;
  }();
  std::uint64_t header = image.schema().header_bytes;
  std::uint64_t version = *image_version<xxh3_64>(image.source());

  std::span<const std::byte> part(std::uint64_t from, std::uint64_t to) const {
    return std::span(text).subspan(static_cast<std::size_t>(from), static_cast<std::size_t>(to - from));
  }
};

struct asked {
  int* times;
  bool says;
  bool stop_requested() const noexcept {
    ++*times;
    return says;
  }
};
TEST(ImageLanding, Whose_digest_was_stopped_goes_on) {
  const sample s;
  landing to({}, s.text.size(), roomy);
  ASSERT_TRUE(to.write(0, s.text));
  int times = 0;
  const auto stopped = to.finish(s.version, asked{&times, true});
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error(), errc::cancelled);
  EXPECT_EQ(times, 1);
  EXPECT_FALSE(to.over());
  const auto done = to.finish(s.version, asked{&times, false});
  ASSERT_TRUE(done);
  EXPECT_EQ(*done, s.version);
  EXPECT_EQ(times, 2);
}

TEST(ImageLanding, Takes_a_header_in_pieces_of_any_length_and_the_rest_in_any_order) {
  const sample s;
  for (const std::uint64_t piece : {std::uint64_t{1}, std::uint64_t{7}, std::uint64_t{100}, std::uint64_t{1000}}) {
    landing to({}, s.text.size(), roomy);
    std::uint64_t at = 0;
    for (; at < s.header; at = std::min(at + piece, s.header)) {
      EXPECT_EQ(to.first_missing(), at);
      ASSERT_TRUE(to.write(at, s.part(at, std::min(at + piece, s.header)))) << at;
    }
    ASSERT_TRUE(to.header_complete());
    std::vector<std::uint64_t> begins;
    for (; at < s.text.size(); at += piece) begins.push_back(at);
    std::shuffle(begins.begin(), begins.end(), std::mt19937_64(piece));
    for (const std::uint64_t b : begins) {
      EXPECT_EQ(to.finish(s.version).error().code, errc::out_of_range);
      ASSERT_TRUE(to.write(b, s.part(b, std::min<std::uint64_t>(b + piece, s.text.size()))));
    }
    EXPECT_EQ(to.written(), s.text.size());
    const auto done = to.finish(s.version);
    ASSERT_TRUE(done);
    EXPECT_EQ(*done, s.version);
    EXPECT_TRUE(to.over());
    ASSERT_EQ(to.allocator().memory.size(), 2u);
    EXPECT_TRUE(
        std::equal(s.a.begin(), s.a.end(), reinterpret_cast<const std::uint32_t*>(to.allocator().memory[0].get())) ||
        std::equal(s.a.begin(), s.a.end(), reinterpret_cast<const std::uint32_t*>(to.allocator().memory[1].get())));
    EXPECT_EQ(to.made().pairs().size(), 1u);
  }
}

TEST(ImageLanding, The_header_and_all_that_follows_may_come_in_one_range) {
  const sample s;
  landing to({}, s.text.size(), roomy);
  ASSERT_TRUE(to.write(0, s.text));
  EXPECT_TRUE(to.finish(0)) << "0: nothing is compared";
}

TEST(ImageLanding, Refuses_what_overlaps_or_lies_outside_and_goes_on) {
  const sample s;
  const std::uint64_t n = s.text.size();
  landing to({}, n, roomy);
  EXPECT_EQ(to.write(s.header, s.part(s.header, n)).error().code, errc::out_of_range) << "the header comes first";
  EXPECT_EQ(to.write(1, s.part(1, 2)).error().code, errc::out_of_range);
  EXPECT_EQ(to.write(n, s.part(0, 1)).error().code, errc::out_of_range);
  EXPECT_EQ(to.write(~std::uint64_t{0}, s.part(0, 1)).error().code, errc::out_of_range);
  ASSERT_TRUE(to.write(0, s.part(0, s.header + 40)));
  EXPECT_EQ(to.write(0, s.part(0, 8)).error().code, errc::bad_request);
  EXPECT_EQ(to.write(s.header, s.part(s.header, s.header + 1)).error().code, errc::bad_request);
  const auto second = to.write(s.header + 39, s.part(s.header + 39, s.header + 50));
  EXPECT_EQ(second.error().code, errc::bad_request);
  ASSERT_TRUE(to.write(s.header + 60, s.part(s.header + 60, s.header + 70)));
  EXPECT_EQ(to.write(s.header + 50, s.part(s.header + 50, s.header + 61)).error().at, s.header + 60);
  EXPECT_EQ(to.write(s.header + 50, s.part(s.header + 50, s.header + 80)).error().code, errc::bad_request)
      << "all around what is there";
  EXPECT_EQ(to.first_missing(), s.header + 40);
  const auto early = to.finish(s.version);
  EXPECT_EQ(early.error().code, errc::out_of_range);
  EXPECT_EQ(early.error().at, s.header + 40);
  EXPECT_FALSE(to.over());
  ASSERT_TRUE(to.write(s.header + 40, s.part(s.header + 40, s.header + 60)));
  ASSERT_TRUE(to.write(s.header + 70, s.part(s.header + 70, n)));
  ASSERT_TRUE(to.finish(s.version));
  EXPECT_EQ(to.write(0, s.part(0, 1)).error().code, errc::invalid_argument);
  EXPECT_EQ(to.finish(s.version).error().code, errc::invalid_argument);
}

TEST(ImageLanding, Wrong_bytes_end_it_and_free_what_was_made) {
  const sample s;
  bytes wrong = s.text;
  wrong.back() ^= std::byte{1};
  landing to({}, wrong.size(), roomy);
  ASSERT_TRUE(to.write(0, wrong));
  EXPECT_EQ(to.finish(s.version).error().code, errc::digest_mismatch);
  EXPECT_TRUE(to.over());
  EXPECT_TRUE(to.allocator().memory.empty());
}

TEST(ImageLanding, Each_byte_of_a_header_that_is_changed_is_refused_before_a_byte_lands) {
  const sample s;
  for (std::uint64_t i = 0; i < s.header; ++i)
    for (const auto flip : {std::byte{1}, std::byte{0x20}, std::byte{0x80}}) {
      bytes wrong = s.text;
      wrong[static_cast<std::size_t>(i)] ^= flip;
      landing to({}, wrong.size(), roomy);
      const auto how = to.write(0, wrong);
      if (how) {  // another name or another pair is a header, too: the digest tells
        EXPECT_EQ(to.finish(s.version).error().code, errc::digest_mismatch) << i;
        continue;
      }
      EXPECT_TRUE(to.over());
      EXPECT_TRUE(to.allocator().memory.empty());
    }
}

TEST(ImageLanding, Lengths_that_nobody_can_hold_allocate_nothing) {
  const sample s;
  const auto first = [&](std::uint64_t image, std::uint64_t text, const new_model_limits& limits) {
    landing to({}, image, limits);
    std::array<std::byte, 8> length;
    store_le64(length.data(), text);
    const auto how = to.write(0, length);
    EXPECT_TRUE(to.allocator().memory.empty());
    return how ? errc{} : how.error().code;
  };
  const std::uint64_t exabyte = std::uint64_t{1} << 60;
  EXPECT_EQ(first(exabyte, 100, roomy), errc::too_large);
  EXPECT_EQ(first(exabyte, exabyte, roomy), errc::too_large);
  EXPECT_EQ(first(exabyte, ~std::uint64_t{0}, roomy), errc::too_large);
  EXPECT_EQ(first(100, 1000, roomy), errc::bad_frame) << "the header is longer than the image";
  EXPECT_EQ(first(100, 0, roomy), errc::bad_frame);
  landing longer({}, s.text.size() + 1, roomy);
  EXPECT_EQ(longer.write(0, s.part(0, s.header)).error().code, errc::schema_mismatch)
      << "the image is not as long as was said";
  landing many({}, s.text.size(), {.max_bytes = 16u << 20, .max_tensors = 1});
  EXPECT_EQ(many.write(0, s.text).error().code, errc::too_large);
  landing none({.memory = {}, .most = 100}, s.text.size(), roomy);
  EXPECT_EQ(none.write(0, s.text).error().code, errc::out_of_memory);
  EXPECT_TRUE(none.allocator().memory.empty());
}

TEST(ImageLanding, An_image_that_is_too_short_for_a_header_is_none) {
  const sample s;
  for (const std::uint64_t length : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{7}}) {
    landing to({}, length, roomy);
    ASSERT_TRUE(to.write(0, s.part(0, length)));
    EXPECT_EQ(to.finish(0).error().code, errc::bad_frame) << length;
    EXPECT_TRUE(to.over()) << length;
    EXPECT_EQ(to.write(0, {}).error().code, errc::invalid_argument);
  }
}

TEST(ImageLanding, Has_a_bound_for_ranges_that_lie_apart) {
  std::vector<std::byte> data(4 * landing::most_ranges + 16);
  std::array<std::uint64_t, 1> shape{data.size()};
  const tensor_view views[]{{"t", dtype::u8, shape, data.data()}};
  const auto image = dynamic_image::make(views);
  ASSERT_TRUE(image);
  bytes header(static_cast<std::size_t>(image->schema().header_bytes));
  write_header(image->schema(), 0, header);
  landing to({}, image->schema().image_bytes, roomy);
  ASSERT_TRUE(to.write(0, header));
  std::uint64_t at = header.size() + 1;
  for (std::size_t i = 0; i < landing::most_ranges; ++i, at += 2) ASSERT_TRUE(to.write(at, std::span(data).first(1)));
  const auto one_more = to.write(at, std::span(data).first(1));
  EXPECT_EQ(one_more.error().code, errc::too_large);
  EXPECT_FALSE(to.over());
  EXPECT_TRUE(to.write(header.size(), std::span(data).first(1))) << "one that joins others is taken";
}

}  // namespace image_landing_test
