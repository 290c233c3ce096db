// Offsets have 64 bits even if a size_t has 32. What is longer than this machine's memory can be is refused by name;
// what is only far away is reached.
#include <tensorpull/consumers/resume_cursor.hpp>
#include <tensorpull/image/dynamic.hpp>
#include <tensorpull/image/gather_scatter.hpp>
#include <tensorpull/system/files.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

using namespace tensorpull;

constexpr std::uint64_t each = 0x6000'0000;  // 1.5 GiB
constexpr bool small_machine = sizeof(std::size_t) == 4;

/// The byte at a place of the tensor with this token.
std::byte byte_at(std::uintptr_t token, std::uint64_t offset) {
  return static_cast<std::byte>(token * 37 + offset * 11 + (offset >> 20));
}

result<void> read(const void*, std::uintptr_t token, std::uint64_t offset, std::span<std::byte> out) noexcept {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = byte_at(token, offset + i);
  return {};
}

struct taken {
  std::uintptr_t token = 0;
  std::uint64_t offset = 0;
  std::size_t bytes = 0;
  bool right = true;
};
result<void> write(void* context, std::uintptr_t token, std::uint64_t offset,
                   std::span<const std::byte> bytes) noexcept {
  taken& t = *static_cast<taken*>(context);
  t = {token, offset, bytes.size(), true};
  for (std::size_t i = 0; i < bytes.size(); ++i) t.right &= bytes[i] == byte_at(token, offset + i);
  return {};
}

TEST(WideOffsets, A_tensor_that_no_memory_of_this_machine_holds_is_refused_by_name) {
  const std::uint64_t shapes[][1] = {{0x7fff'ffff}, {0x8000'0000}, {0xffff'ffff}, {0x1'0000'0000}, {0x1'0000'0001}};
  for (const auto& shape : shapes) {
    const auto bytes = size_bytes(dtype::u8, shape);
    EXPECT_EQ(bytes.has_value(), !small_machine || shape[0] <= 0x7fff'ffff) << shape[0];
    if (!bytes) {
      EXPECT_EQ(bytes.error().code, errc::size_overflow);
    }
    const tensor_view view{"long", dtype::u8, shape, nullptr, {}, 0, true};
    const auto image = dynamic_image::make(std::span(&view, 1), {}, {&read, nullptr});
    EXPECT_EQ(image.has_value(), bytes.has_value());
    if (!image) {
      EXPECT_EQ(image.error().code, errc::size_overflow);
      EXPECT_EQ(image.error().name.view(), "long");
    }
  }
  // four wrap to nothing in 32 bits
  const std::uint64_t words[] = {0x4000'0000};
  EXPECT_EQ(size_bytes(dtype::f32, words).has_value(), !small_machine);
}

TEST(WideOffsets, An_image_above_4_GiB_is_read_and_written_anywhere) {
  const std::uint64_t shape[] = {each};
  std::vector<mutable_tensor_view> views;
  for (const char* const name : {"a", "b", "c", "d"})
    views.push_back({name, dtype::u8, shape, reinterpret_cast<std::byte*>(views.size() + 1), {}, true});
  std::vector<std::byte> staging(300);
  taken last;
  const source_reader reader{&read, nullptr};
  auto image = dynamic_image::make(std::span<const mutable_tensor_view>(views), {}, {&write, &last, staging, &reader});
  ASSERT_TRUE(image) << to_string(image.error().code);
  const image_schema& schema = image->schema();
  ASSERT_EQ(schema.data_bytes(), 4 * each);
  for (const std::uint64_t place :
       std::array<std::uint64_t, 5>{0, each - 5, 0x1'0000'0000 - 3, 3 * each - 1, 4 * each - 200}) {
    const std::uint64_t at = schema.header_bytes + place;
    std::array<std::byte, 200> slice{};
    std::array<std::span<const std::byte>, 4> pieces;
    const std::uint64_t wanted = std::min<std::uint64_t>(slice.size(), each - place % each);
    const gathered got = gather(image->source(), at, wanted, pieces, slice);
    ASSERT_EQ(got.bytes, wanted) << place;
    for (std::uint64_t i = 0; i < wanted; ++i)
      ASSERT_EQ(slice[static_cast<std::size_t>(i)],
                byte_at(1 + static_cast<std::uintptr_t>((place + i) / each), (place + i) % each))
          << place;

    std::array<std::span<std::byte>, 4> room;
    ASSERT_EQ(scatter(image->destination(), at, wanted, room).bytes, wanted) << place;
    ASSERT_TRUE(hand_over(image->destination(), at, std::span(slice).first(static_cast<std::size_t>(wanted))));
    EXPECT_EQ(last.token, 1 + place / each);
    EXPECT_EQ(last.offset, place % each);
    EXPECT_EQ(last.bytes, wanted);
    EXPECT_TRUE(last.right);
  }
}

TEST(WideOffsets, A_cursor_keeps_them) {
  const resume_cursor far{{1, 2}, 3, 4, 0x1'2345'6789, 6};
  const auto bytes = encode(far);
  const auto again = decode_cursor(bytes);
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, far);
}

// armhf has an off_t of 32 bits unless the program says otherwise.
TEST(WideOffsets, A_file_above_4_GiB_is_written_and_read_or_refused_by_errno) {
  const char* const folder = std::getenv("TMPDIR");
  std::string path = std::string(folder != nullptr ? folder : "/tmp") + "/tensorpull-wide-XXXXXX";
  const detail::file_descriptor fd(::mkstemp(path.data()));
  ASSERT_TRUE(fd);
  constexpr std::uint64_t far = 0x1'4000'0007;
  const std::array<std::byte, 3> content{std::byte{1}, std::byte{2}, std::byte{3}};
  const int system = detail::write_all(fd.get(), far, content);
  if constexpr (sizeof(off_t) == 4) {
    EXPECT_EQ(system, EFBIG);
  } else {
    ASSERT_EQ(system, 0);
    const auto file = positioned_file::open(path);
    ASSERT_TRUE(file);
    EXPECT_EQ(file->size(), far + 3);
    std::array<std::byte, 3> back{};
    ASSERT_TRUE(file->read_at(far, back));
    EXPECT_EQ(back, content);
    std::array<std::byte, 3> hole{content};
    ASSERT_TRUE(file->read_at(0x4000'0007, hole));
    EXPECT_EQ(hole, (std::array<std::byte, 3>{})) << "the offset's upper half counts";
  }
  ::unlink(path.c_str());
}

}  // namespace
