// Tensors in the other byte order, and tensors behind a reader: any range in any steps is the image.
#include "random_image.hpp"

#include <tensorpull/image/dynamic.hpp>
#include <tensorpull/image/gather_scatter.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace packed_test {

using namespace tensorpull;

/// Everything up to where the reader fails, taken in steps of a slice.
std::vector<std::byte> collect(const source_view& source, std::uint64_t offset, std::uint64_t length,
                               std::size_t slice_bytes, bool& failed) {
  std::vector<std::byte> out, slice(slice_bytes);
  std::span<const std::byte> spans[3];
  failed = false;
  while (out.size() < length && !failed) {
    const gathered got = gather(source, offset + out.size(), length - out.size(), spans, slice);
    for (std::size_t i = 0; i < got.pieces; ++i) out.insert(out.end(), spans[i].begin(), spans[i].end());
    failed = got.failed;
    if (got.bytes == 0 && !failed) break;
  }
  return out;
}

struct numbers {
  dtype type;
  std::uint8_t width;
};

TEST(PackedLaw, Numbers_in_the_other_byte_order_arrive_in_this_one) {
  std::mt19937_64 random(3);
  const auto below = [&random](std::uint64_t n) { return random() % n; };
  const std::uint64_t shape[] = {3, 5, 4};
  for (const numbers n :
       {numbers{dtype::i16, 2}, {dtype::bf16, 2}, {dtype::f32, 4}, {dtype::c64, 4}, {dtype::f64, 8}, {dtype::u64, 8}}) {
    const std::size_t element = bits(n.type) / 8, bytes = 60 * element;
    std::vector<std::byte> wanted(bytes), swapped(bytes);
    for (auto& b : wanted) b = static_cast<std::byte>(below(256));
    for (std::size_t i = 0; i < bytes; ++i) swapped[i / n.width * n.width + (n.width - 1 - i % n.width)] = wanted[i];
    const auto &own = little_endian_machine ? wanted : swapped, &other = little_endian_machine ? swapped : wanted;
    // the same numbers with the outer two dimensions exchanged in memory
    std::vector<std::byte> transposed(bytes);
    for (std::size_t i = 0; i < 3; ++i)
      for (std::size_t k = 0; k < 5; ++k)
        std::copy_n(other.begin() + static_cast<std::ptrdiff_t>((i * 5 + k) * 4 * element), 4 * element,
                    transposed.begin() + static_cast<std::ptrdiff_t>((k * 3 + i) * 4 * element));
    const auto s = static_cast<std::int64_t>(element);
    const std::int64_t strides[] = {4 * s, 12 * s, s};
    const tensor_view views[] = {{"w", n.type, shape, other.data(), {}, n.width},
                                 {"x", n.type, shape, transposed.data(), strides, n.width},
                                 {"y", n.type, shape, own.data()}};
    const auto image = dynamic_image::make(views);
    ASSERT_TRUE(image) << to_string(image.error().code);
    std::vector<std::byte> expected;
    for (int i = 0; i < 3; ++i) expected.insert(expected.end(), wanted.begin(), wanted.end());
    const std::uint64_t start = image->schema().header_bytes;
    bool failed;
    for (int round = 0; round < 300; ++round) {
      const std::size_t offset = below(expected.size()), length = 1 + below(expected.size() - offset);
      const std::vector part(expected.begin() + static_cast<std::ptrdiff_t>(offset),
                             expected.begin() + static_cast<std::ptrdiff_t>(offset + length));
      ASSERT_EQ(collect(image->source(), start + offset, length, 1 + below(round % 2 == 0 ? 9 : 500), failed), part)
          << to_string(n.type);
      ASSERT_FALSE(failed);
    }
  }
}

// As numbers land on a big-endian machine: ranges in any order, which cut numbers anywhere, and some of them twice.
TEST(PackedLaw, Bytes_written_in_reverse_are_read_as_they_arrived) {
  std::mt19937_64 random(4);
  for (const std::size_t width : {2u, 4u, 8u})
    for (int round = 0; round < 200; ++round) {
      const std::size_t bytes = width * (1 + random() % 30);
      std::vector<std::byte> wanted(bytes), landed(bytes + 1, std::byte{0x5a});
      for (auto& b : wanted) b = static_cast<std::byte>(random());
      std::vector<std::size_t> ends{bytes};
      for (std::size_t at = 0; at < bytes; at += 1 + random() % (2 * width)) ends.push_back(at);
      std::sort(ends.begin(), ends.end());
      std::vector<std::pair<std::size_t, std::size_t>> ranges;
      for (std::size_t i = 1; i < ends.size(); ++i)
        ranges.insert(ranges.end(), 1 + random() % 2, {ends[i - 1], ends[i] - ends[i - 1]});
      std::shuffle(ranges.begin(), ranges.end(), random);
      for (const auto& [at, n] : ranges)
        detail::write_swapped(width, landed.data(), at, std::span(wanted).subspan(at, n));
      for (std::size_t i = 0; i < bytes; ++i)
        ASSERT_EQ(landed[i], wanted[i / width * width + (width - 1 - i % width)]) << "width " << width;
      ASSERT_EQ(landed.back(), std::byte{0x5a}) << "behind the last number";
    }
}

TEST(Packed, A_width_that_the_numbers_do_not_have_is_refused) {
  const std::uint64_t shape[] = {4};
  const std::byte memory[64]{};
  const auto refusal = [&](dtype type, std::uint8_t width) {
    const tensor_view view{"w", type, shape, memory, {}, width};
    const auto made = dynamic_image::make(std::span(&view, 1));
    return made ? errc{} : made.error().code;
  };
  EXPECT_EQ(refusal(dtype::f32, 4), errc{});
  for (const auto& [type, width] : std::initializer_list<std::pair<dtype, std::uint8_t>>{{dtype::f32, 2},
                                                                                         {dtype::f32, 8},
                                                                                         {dtype::c64, 8},
                                                                                         {dtype::u8, 1},
                                                                                         {dtype::u8, 2},
                                                                                         {dtype::f64, 255},
                                                                                         {dtype::f4, 4},
                                                                                         {dtype::boolean, 1}})
    EXPECT_EQ(refusal(type, width), errc::invalid_argument) << to_string(type) << ' ' << int{width};
}

/// Tensors whose bytes lie in strings; a token is an index. Fails at the place that it is told.
struct strings {
  std::vector<std::string> at;
  std::size_t fails_from = ~std::size_t{0};  ///< of the tensor with token 1
  static result<void> read(const void* context, std::uintptr_t token, std::uint64_t offset,
                           std::span<std::byte> out) noexcept {
    const auto& self = *static_cast<const strings*>(context);
    if (token == 1 && offset + out.size() > self.fails_from) return failure(errc::io);
    std::copy_n(reinterpret_cast<const std::byte*>(self.at[token].data()) + offset, out.size(), out.data());
    return {};
  }
};

TEST(PackedLaw, A_reader_gives_what_no_address_leads_to) {
  const std::uint64_t shape[] = {10};
  strings far{{"0123456789", "abcdefghij"}};
  const std::byte near[10]{};
  const std::int64_t backwards[] = {-1};
  const tensor_view views[] = {
      {"b", dtype::u8, shape, reinterpret_cast<const std::byte*>(std::uintptr_t{1}), {}, 0, true},
      {"c", dtype::u8, shape, near},
      {"a", dtype::u8, shape, nullptr, {}, 0, true}};
  EXPECT_EQ(dynamic_image::make(views).error(), errc::invalid_argument) << "a token without a reader";
  auto broken = views[0];
  broken.strides_bytes = backwards;
  EXPECT_EQ(dynamic_image::make(std::span(&broken, 1), {}, {&strings::read, &far}).error(), errc::invalid_argument);
  broken = views[0];
  broken.swap_bytes = 2;
  EXPECT_EQ(dynamic_image::make(std::span(&broken, 1), {}, {&strings::read, &far}).error(), errc::invalid_argument);

  auto image = dynamic_image::make(views, {}, {&strings::read, &far});
  ASSERT_TRUE(image);
  const auto moved = std::move(*image);  // the reader moves along
  const std::string expected = "0123456789abcdefghij" + std::string(10, '\0');
  const std::uint64_t start = moved.schema().header_bytes;
  bool failed;
  for (const std::size_t slice : {1u, 3u, 10u, 64u})
    for (std::size_t offset = 0; offset < 30; ++offset)
      for (std::size_t length = 1; length <= 30 - offset; ++length) {
        const auto got = collect(moved.source(), start + offset, length, slice, failed);
        ASSERT_EQ(std::string(reinterpret_cast<const char*>(got.data()), got.size()), expected.substr(offset, length));
        ASSERT_FALSE(failed);
      }
  far.fails_from = 5;
  for (const std::size_t slice : {1u, 3u, 10u, 64u}) {
    const auto got = collect(moved.source(), start, 30, slice, failed);
    EXPECT_TRUE(failed);
    EXPECT_LE(got.size(), 15u);
    EXPECT_GE(got.size(), 10u) << "what lies before is there";
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(got.data()), got.size()), expected.substr(0, got.size()));
  }
}

}  // namespace packed_test
