// F8 to F15: frames whose pointers lie.
#include "support/messages.hpp"

namespace {

using namespace test;
using kind = tp::frame_kind;
using tp::errc;

// A page, a locate and an application are the kinds with pointers below the root. Their struct is at word 10 of the frame.
constexpr std::uint64_t page_pointer = struct_pointer(0, 5, 1), locate_pointer = struct_pointer(0, 3, 1), application_pointer = struct_pointer(0, 1, 2);

TEST(Framing, The_hand_made_frames_of_this_file_are_valid_before_they_lie) {
  const decoded locate(single_segment(kind::locate, {locate_pointer, 1, 2, 3, list_pointer(0, of_pointer, 1), list_pointer(0, of_byte, 2), 'a'}));
  ASSERT_TRUE(locate.outcome);
  ASSERT_EQ(locate.m.names.size(), 1u);
  EXPECT_EQ(locate.m.names[0], "a");
  const decoded application(single_segment(kind::application, {application_pointer, 5, 0, list_pointer(0, of_byte, 3), 0x010203}));
  ASSERT_TRUE(application.outcome);
  EXPECT_EQ(application.m.body.size(), 3u);
}

TEST(Framing, F8_far_pointers_that_lead_nowhere) {
  const std::uint64_t far[] = {far_pointer(0, 16, false), far_pointer(1, 0, false), far_pointer(0xffffffff, 0, false), far_pointer(0, 0x1fffffff, false),
                               far_pointer(0, 9, true), far_pointer(0, 15, true), far_pointer(5, 5, true)};
  for (const std::uint64_t p : far) {
    EXPECT_EQ(decode_error(single_segment(kind::schema_page, {p, 0, 0, 0, 0, 0, 0})), errc::bad_frame) << std::hex << p;
    EXPECT_EQ(decode_error(frame(words{segment_table(2), p, 0})), errc::bad_frame) << std::hex << p;
  }
}

TEST(Framing, F8_double_far_with_a_bad_landing_pad) {
  for (const std::uint64_t pad : {std::uint64_t{0}, struct_pointer(0, 1, 0), far_pointer(0, 1, true), far_pointer(7, 0, false), far_pointer(0, 1, false)})
    for (const std::uint64_t tag : {std::uint64_t{0}, far_pointer(0, 0, false), struct_pointer(5, 100, 100), list_pointer(0, of_byte, 1000)}) {
      words w{segment_table(10) | 1, 2, struct_pointer(0, 7, 1), std::uint64_t{11} << 32, 0, 0, 0, 0, 0, 0, far_pointer(1, 0, true), 0, pad, tag};
      w[0] = std::uint64_t{10} << 32 | 1;  // two segments: 10 words and 2
      const decoded d{frame(w)};
      EXPECT_TRUE(d.outcome || d.outcome.error() == errc::bad_frame);
    }
}

TEST(Framing, F9_struct_pointers_that_leave_their_segment) {
  for (const std::uint64_t p : {struct_pointer(-100, 5, 1), struct_pointer(-11, 5, 1), struct_pointer(0x1fffffff, 5, 1), struct_pointer(-0x20000000, 5, 1), struct_pointer(0, 7, 1), struct_pointer(0, 0xffff, 0xffff),
                                struct_pointer(0, 5, 0xffff), struct_pointer(6, 5, 1)})
    EXPECT_EQ(decode_error(single_segment(kind::schema_page, {p, 0, 0, 0, 0, 0, 0})), errc::bad_frame) << std::hex << p;
  for (const std::uint64_t p : {struct_pointer(1, 7, 1), struct_pointer(-2, 7, 1), struct_pointer(0, 8, 1), struct_pointer(0, 7, 2)})
    EXPECT_EQ(decode_error(frame(words{segment_table(9), p, 1ull << 32, 0, 0, 0, 0, 0, 0, 0})), errc::bad_frame) << std::hex << p;
}

TEST(Framing, F10_cyclic_pointers_end_at_a_limit) {
  // page -> the frame itself; a list that contains itself; a row whose name is its own list
  (void)decoded(single_segment(kind::schema_page, {struct_pointer(-9, 7, 1)}));
  EXPECT_EQ(decode_error(single_segment(kind::locate, {locate_pointer, 0, 0, 0, list_pointer(-1, of_pointer, 1)})), errc::bad_frame);
  EXPECT_EQ(decode_error(single_segment(kind::schema_page, {page_pointer, 0, 0, 0, 0, 0, list_pointer(-1, of_composite, 1)})), errc::bad_frame);
}

TEST(Framing, F11_lists_of_half_a_billion_things_without_size) {
  constexpr std::uint32_t most = (1u << 29) - 1;
  const decoded voids(single_segment(kind::locate, {locate_pointer, 0, 0, 0, list_pointer(0, of_void, most)}));
  EXPECT_FALSE(voids.outcome);
  const decoded structs(single_segment(kind::schema_page, {page_pointer, 0, 0, 0, 0, 0, list_pointer(0, of_composite, 0), std::uint64_t{most} << 2}));
  EXPECT_FALSE(structs.outcome);
  const decoded references(single_segment(kind::application, {application_pointer, 0, list_pointer(1, of_composite, 0), 0, std::uint64_t{most} << 2}));
  EXPECT_FALSE(references.outcome);
  const decoded shape(single_segment(kind::schema_page, {page_pointer, 0, 0, 0, 0, 0, list_pointer(0, of_composite, 3), struct_pointer(1, 0, 3), 0, 0, list_pointer(0, of_void, most)}));
  EXPECT_FALSE(shape.outcome);
  const decoded bits(single_segment(kind::application, {application_pointer, 0, 0, list_pointer(0, of_bit, most)}));
  EXPECT_FALSE(bits.outcome);
}

TEST(Framing, F12_many_pointers_to_one_list_are_bounded_by_the_traversal_limit) {
  // 64 rows whose shapes are all the same 400 numbers
  words w{0, struct_pointer(0, 7, 1), std::uint64_t{11} << 32, 0, 0, 0, 0, 0, 0, page_pointer, 0, 0, 0, 0, 0, list_pointer(0, of_composite, 64 * 3), std::uint64_t{64} << 2 | std::uint64_t{3} << 48};
  const std::size_t target = w.size() + 64 * 3;
  for (int i = 0; i < 64; ++i) {
    w.insert(w.end(), {0, 0, 0});
    w.back() = list_pointer(static_cast<std::int32_t>(target - w.size()), of_eight, 200);
  }
  w.resize(w.size() + 200, 1);
  w[0] = segment_table(static_cast<std::uint32_t>(w.size() - 1));
  const decoded d{frame(w)};
  ASSERT_FALSE(d.outcome);
  EXPECT_TRUE(d.outcome.error() == errc::bad_frame || d.outcome.error() == errc::too_large);
}

TEST(Framing, F13_text_that_is_no_text) {
  const auto name = [](std::uint64_t pointer, std::uint64_t content) { return single_segment(kind::locate, {locate_pointer, 0, 0, 0, list_pointer(0, of_pointer, 1), pointer, content}); };
  EXPECT_EQ(decode_error(name(list_pointer(0, of_byte, 0), 0)), errc::bad_frame) << "no terminating zero in nothing";
  EXPECT_EQ(decode_error(name(list_pointer(0, of_byte, 8), 0x4141414141414141)), errc::bad_frame) << "no terminating zero";
  EXPECT_EQ(decode_error(name(list_pointer(0, of_eight, 1), 0)), errc::bad_frame);
  EXPECT_EQ(decode_error(name(list_pointer(0, of_bit, 8), 0)), errc::bad_frame);
  EXPECT_EQ(decode_error(name(list_pointer(0, of_byte, 9), 0)), errc::bad_frame) << "past the end";
  EXPECT_EQ(decode_error(name(struct_pointer(0, 1, 0), 0)), errc::bad_frame);
  const decoded absent(name(0, 0));  // a null pointer is the empty text
  ASSERT_TRUE(absent.outcome);
  EXPECT_EQ(absent.m.names[0], "");
}

TEST(Framing, F14_a_list_of_structs_where_a_list_of_pointers_belongs) {
  // CVE-2022-46149: a composite list read as List(Text), with and without pointers in its elements
  for (const std::uint64_t tag : {std::uint64_t{2} << 2 | std::uint64_t{1} << 32, std::uint64_t{1} << 2 | std::uint64_t{1} << 48, std::uint64_t{0x3fffffff} << 2, std::uint64_t{2} << 2 | std::uint64_t{0xffff} << 48}) {
    const decoded d(single_segment(kind::locate, {locate_pointer, 0, 0, 0, list_pointer(0, of_composite, 2), tag, 0, 0}));
    if (d.outcome)
      for (const std::string_view n : d.m.names) EXPECT_EQ(n, "");
    else EXPECT_TRUE(d.outcome.error() == errc::bad_frame || d.outcome.error() == errc::too_large);
  }
  // and the reverse: pointers or numbers where structs belong
  for (const list_size s : {of_bit, of_byte, of_two, of_four, of_eight, of_pointer}) (void)decoded(single_segment(kind::schema_page, {page_pointer, 0, 0, 0, 0, 0, list_pointer(0, s, 1), 0}));
}

TEST(Framing, F15_capabilities_and_reserved_pointers) {
  for (const std::uint64_t p : {std::uint64_t{3}, std::uint64_t{0xffffffff00000003}, std::uint64_t{7}, ~std::uint64_t{0}, list_pointer(0, of_byte, 8), list_pointer(0, of_composite, 1)}) {
    EXPECT_EQ(decode_error(frame(words{segment_table(9), p, 0, 0, 0, 0, 0, 0, 0, 0})), errc::bad_frame) << std::hex << p;
    EXPECT_EQ(decode_error(single_segment(kind::application, {p, 0, 0, 0})), errc::bad_frame) << std::hex << p;
  }
}

TEST(Framing, A_root_that_points_nowhere_is_the_message_nothing) {
  const decoded d{frame(words{segment_table(1), 0})};
  ASSERT_TRUE(d.outcome);
  EXPECT_EQ(d.m.kind, kind::nothing);
}

TEST(Framing, Lists_above_the_limits_are_too_large) {
  std::vector<std::string_view> names(257);
  std::vector<tp::byte_range> ranges(300);
  std::vector<tp::reference> references(9);
  std::vector<tp::schema_row> rows(129);
  std::vector<std::byte> body(65 * 1024);
  tp::frame m;
  m.kind = kind::locate, m.names = names;
  EXPECT_EQ(decode_error(encode(m)), errc::too_large);
  m.kind = kind::located, m.ranges = ranges;
  EXPECT_EQ(decode_error(encode(m)), errc::too_large);
  m.kind = kind::application, m.references = references;
  EXPECT_EQ(decode_error(encode(m)), errc::too_large);
  m.kind = kind::schema_page, m.rows = rows;
  EXPECT_EQ(decode_error(encode(m)), errc::too_large);
  m.kind = kind::application, m.references = {}, m.body = std::span(body).first(64 * 1024 + 1);
  EXPECT_EQ(decode_error(encode(m)), errc::too_large) << "a body of 64 KiB and a byte";
}

TEST(Framing, Valid_frames_of_several_segments_are_read) {
  const decoded d{frame(words{std::uint64_t{9} << 32 | 1, 6, struct_pointer(0, 7, 1), std::uint64_t{12} << 32 | 5, 0, 0, 0, 0, 0, 0, far_pointer(1, 0, false),
                              struct_pointer(0, 3, 1), 1, 2, 3, list_pointer(0, of_pointer, 1), 0})};
  ASSERT_TRUE(d.outcome);
  EXPECT_EQ(d.m.kind, kind::locate);
  EXPECT_EQ(d.m.names.size(), 1u);
}

}  // namespace
