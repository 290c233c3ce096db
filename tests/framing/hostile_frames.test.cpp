// F8 to F15: frames whose pointers lie.
#include "support/allocation_counter.hpp"
#include "support/messages.hpp"
#include "support/painted_stack.hpp"
#include "support/processor_time.hpp"
#include "support/sanitizers.hpp"

#include <algorithm>
#include <climits>
#include <optional>
#include <utility>

namespace hostile_frames_test {

using namespace test;
using kind = tp::frame_kind;
using tp::errc;

// A page, a locate and an application are the kinds with pointers below the root. Their struct is at word 10 of the
// frame.
constexpr std::uint64_t page_pointer = struct_pointer(0, 5, 1), locate_pointer = struct_pointer(0, 3, 1),
                        application_pointer = struct_pointer(0, 1, 2);

/// What both framings say of a frame that has to cost next to nothing: 10 ms of processor time, and no memory in the
/// framing without a library.
errc cheap_decode_error(const frame& f) {
  tp::word_framing::decode_storage lists;
  tp::frame m;
#ifndef TENSORPULL_TEST_WITHOUT_CAPNP
  tp::capnp_framing::decode_storage capnp_lists;
  EXPECT_LT(least_processor_seconds([&] { EXPECT_FALSE(tp::capnp_framing::decode(f.bytes(), m, capnp_lists)); }, 5),
            0.01);
#endif
  EXPECT_LT(least_processor_seconds([&] { EXPECT_FALSE(tp::word_framing::decode(f.bytes(), m, lists)); }, 5), 0.01);
  const allocation_watch watch;
  EXPECT_FALSE(tp::word_framing::decode(f.bytes(), m, lists));
  EXPECT_EQ(watch.count(), 0u);
  return decode_error(f);
}

TEST(Framing, The_hand_made_frames_of_this_file_are_valid_before_they_lie) {
  const decoded locate(single_segment(
      kind::locate, {locate_pointer, 1, 2, 3, list_pointer(0, of_pointer, 1), list_pointer(0, of_byte, 2), 'a'}));
  ASSERT_TRUE(locate.outcome);
  ASSERT_EQ(locate.m.names.size(), 1u);
  EXPECT_EQ(locate.m.names[0], "a");
  const decoded application(
      single_segment(kind::application, {application_pointer, 5, 0, list_pointer(0, of_byte, 3), 0x010203}));
  ASSERT_TRUE(application.outcome);
  EXPECT_EQ(application.m.body.size(), 3u);
}

TEST(Framing, F8_far_pointers_that_lead_nowhere) {
  const std::uint64_t far[] = {far_pointer(0, 16, false),
                               far_pointer(1, 0, false),
                               far_pointer(0xffffffff, 0, false),
                               far_pointer(0, 0x1fffffff, false),
                               far_pointer(0, 9, true),
                               far_pointer(0, 15, true),
                               far_pointer(5, 5, true)};
  for (const std::uint64_t p : far) {
    EXPECT_EQ(decode_error(single_segment(kind::schema_page, {p, 0, 0, 0, 0, 0, 0})), errc::bad_frame) << std::hex << p;
    EXPECT_EQ(decode_error(frame(words{segment_table(2), p, 0})), errc::bad_frame) << std::hex << p;
  }
}

TEST(Framing, F8_double_far_with_a_bad_landing_pad) {
  for (const std::uint64_t pad : {std::uint64_t{0}, struct_pointer(0, 1, 0), far_pointer(0, 1, true),
                                  far_pointer(7, 0, false), far_pointer(0, 1, false)})
    for (const std::uint64_t tag :
         {std::uint64_t{0}, far_pointer(0, 0, false), struct_pointer(5, 100, 100), list_pointer(0, of_byte, 1000)}) {
      words w{segment_table(10) | 1,
              2,
              struct_pointer(0, 7, 1),
              std::uint64_t{11} << 32,
              0,
              0,
              0,
              0,
              0,
              0,
              far_pointer(1, 0, true),
              0,
              pad,
              tag};
      w[0] = std::uint64_t{10} << 32 | 1;  // two segments: 10 words and 2
      const decoded d{frame(w)};
      EXPECT_TRUE(d.outcome || d.outcome.error() == errc::bad_frame);
    }
}

TEST(Framing, F9_struct_pointers_that_leave_their_segment) {
  for (const std::uint64_t p :
       {struct_pointer(-100, 5, 1), struct_pointer(-11, 5, 1), struct_pointer(0x1fffffff, 5, 1),
        struct_pointer(-0x20000000, 5, 1), struct_pointer(0, 7, 1), struct_pointer(0, 0xffff, 0xffff),
        struct_pointer(0, 5, 0xffff), struct_pointer(6, 5, 1)})
    EXPECT_EQ(decode_error(single_segment(kind::schema_page, {p, 0, 0, 0, 0, 0, 0})), errc::bad_frame) << std::hex << p;
  for (const std::uint64_t p :
       {struct_pointer(1, 7, 1), struct_pointer(-2, 7, 1), struct_pointer(0, 8, 1), struct_pointer(0, 7, 2)})
    EXPECT_EQ(decode_error(frame(words{segment_table(9), p, 1ull << 32, 0, 0, 0, 0, 0, 0, 0})), errc::bad_frame)
        << std::hex << p;
}

// No type of the schema contains itself, so a cycle can be followed only as far as the types go, and there the pointer
// is one of another kind.
const std::pair<frame, std::optional<errc>> cyclic_frames[]{
    // A page whose only pointer is the root's: as a list of tensors it is a struct.
    {single_segment(kind::schema_page, {struct_pointer(-8, 7, 1)}), errc::bad_frame},
    // A page that begins at the root's own pointer. It shares the root's words, of which the last data word stands
    // where its pointer would. Cap'n Proto lets objects overlap, and says what a page with those words says: no
    // tensors.
    {single_segment(kind::schema_page, {struct_pointer(-9, 7, 1)}), std::nullopt},
    {single_segment(kind::schema_page, {struct_pointer(-9, 0, 1)}), errc::bad_frame},  // the root's pointer as a list
    {single_segment(kind::locate, {struct_pointer(-9, 0, 1)}), errc::bad_frame},
    {single_segment(kind::application, {struct_pointer(-9, 0, 2)}), errc::bad_frame},
    // A list that contains itself, and a tensor whose name is the list of tensors.
    {single_segment(kind::locate, {locate_pointer, 0, 0, 0, list_pointer(-1, of_pointer, 1)}), errc::bad_frame},
    {single_segment(kind::schema_page, {page_pointer, 0, 0, 0, 0, 0, list_pointer(-1, of_composite, 1)}),
     errc::bad_frame},
    {single_segment(kind::schema_page, {page_pointer, 0, 0, 0, 0, 0, list_pointer(0, of_composite, 3),
                                        struct_pointer(1, 0, 3), list_pointer(-2, of_composite, 3), 0, 0}),
     errc::bad_frame}};

TEST(Framing, F10_cyclic_pointers_are_bad_frames_or_read_as_what_they_overlap) {
  for (const auto& [f, error] : cyclic_frames) {
    const decoded d(f);
    if (error) {
      ASSERT_FALSE(d.outcome) << std::hex << f.word(9);
      EXPECT_EQ(d.outcome.error().code, *error) << std::hex << f.word(9);
      continue;
    }
    ASSERT_TRUE(d.outcome) << std::hex << f.word(9);
    EXPECT_EQ(d.m.kind, kind::schema_page);
    EXPECT_TRUE(d.m.rows.empty());
  }
}
TEST(Framing, A_cycle_takes_no_more_than_64_KiB_of_stack) {
#if !defined(TENSORPULL_TEST_SANITIZED)  // whose stacks are larger
  // glibc gives no thread less than 128 KiB on some machines, such as 64-bit ARM
  const auto stack_bytes = std::max<std::size_t>(64 * 1024, static_cast<std::size_t>(PTHREAD_STACK_MIN));
  on_a_stack_of(stack_bytes, [] {
    static tp::word_framing::decode_storage lists;
    for (const auto& [f, error] : cyclic_frames) {
      tp::frame m;
      EXPECT_EQ(tp::word_framing::decode(f.bytes(), m, lists).has_value(), !error);
    }
  });
#endif
}
template <int levels>
struct levels_of : tp::default_limits {
  static constexpr int nesting_levels = levels;
};
TEST(Framing, Frames_deeper_than_the_nesting_limit_are_bad_frames) {
  tp::frame page, flat;
  page.kind = kind::schema_page, page.rows = some_rows;
  flat.kind = kind::description;
  const auto outcome = []<class Limits>(const frame& f, Limits) {
    typename tp::basic_word_framing<Limits>::decode_storage lists;
    tp::frame m;
    const bool read = tp::basic_word_framing<Limits>::decode(f.bytes(), m, lists).has_value();
#ifndef TENSORPULL_TEST_WITHOUT_CAPNP
    typename tp::basic_capnp_framing<Limits>::decode_storage capnp_lists;
    EXPECT_EQ(tp::basic_capnp_framing<Limits>::decode(f.bytes(), m, capnp_lists).has_value(), read);
#endif
    return read;
  };
  // the root and its body
  EXPECT_FALSE(outcome(encode(flat), levels_of<1>{}));
  EXPECT_TRUE(outcome(encode(flat), levels_of<2>{}));
  // tensors and their shapes as well
  EXPECT_FALSE(outcome(encode(page), levels_of<2>{}));
  EXPECT_FALSE(outcome(encode(page), levels_of<3>{}));
  EXPECT_TRUE(outcome(encode(page), levels_of<5>{}));
}

TEST(Framing, F11_lists_of_half_a_billion_things_without_size) {
  constexpr std::uint32_t most = (1u << 29) - 1;
  const frame lists[]{
      single_segment(kind::schema_page, {page_pointer, 0, 0, 0, 0, 0, list_pointer(0, of_void, most)}),
      single_segment(kind::locate, {locate_pointer, 0, 0, 0, list_pointer(0, of_void, most)}),
      single_segment(kind::schema_page,
                     {page_pointer, 0, 0, 0, 0, 0, list_pointer(0, of_composite, 0), std::uint64_t{most} << 2}),
      single_segment(kind::application,
                     {application_pointer, 0, list_pointer(1, of_composite, 0), 0, std::uint64_t{most} << 2}),
      single_segment(kind::schema_page, {page_pointer, 0, 0, 0, 0, 0, list_pointer(0, of_composite, 3),
                                         struct_pointer(1, 0, 3), 0, 0, list_pointer(0, of_void, most)}),
      single_segment(kind::application, {application_pointer, 0, 0, list_pointer(0, of_bit, most)})};
  for (const frame& f : lists)
    EXPECT_EQ(cheap_decode_error(f), errc::bad_frame) << std::hex << f.word(f.size() / 8 - 1);
}

TEST(Framing, F12_many_pointers_to_one_list_are_bounded) {
  // 64 names that are all the same 1,600 letters: the limit of traversal
  words names{0,
              struct_pointer(0, 7, 1),
              std::uint64_t{static_cast<std::uint16_t>(kind::locate)} << 32,
              0,
              0,
              0,
              0,
              0,
              0,
              locate_pointer,
              0,
              0,
              0,
              list_pointer(0, of_pointer, 64)};
  const std::size_t text = names.size() + 64;
  while (names.size() < text)
    names.push_back(list_pointer(static_cast<std::int32_t>(text - names.size() - 1), of_byte, 1600));
  names.resize(text + 200);
  names[0] = segment_table(static_cast<std::uint32_t>(names.size() - 1));
  EXPECT_EQ(cheap_decode_error(frame(names)), errc::bad_frame);
  // 64 rows whose shapes are all the same 200 numbers: the limit of a page's numbers
  words w{0,
          struct_pointer(0, 7, 1),
          std::uint64_t{11} << 32,
          0,
          0,
          0,
          0,
          0,
          0,
          page_pointer,
          0,
          0,
          0,
          0,
          0,
          list_pointer(0, of_composite, 64 * 3),
          std::uint64_t{64} << 2 | std::uint64_t{3} << 48};
  const std::size_t target = w.size() + 64 * 3;
  for (int i = 0; i < 64; ++i) {
    w.insert(w.end(), {0, 0, 0});
    w.back() = list_pointer(static_cast<std::int32_t>(target - w.size()), of_eight, 200);
  }
  w.resize(w.size() + 200, 1);
  w[0] = segment_table(static_cast<std::uint32_t>(w.size() - 1));
  EXPECT_EQ(cheap_decode_error(frame(w)), errc::too_large);
}

TEST(Framing, F13_text_that_is_no_text) {
  const auto name = [](std::uint64_t pointer, std::uint64_t content) {
    return single_segment(kind::locate, {locate_pointer, 0, 0, 0, list_pointer(0, of_pointer, 1), pointer, content});
  };
  EXPECT_EQ(decode_error(name(list_pointer(0, of_byte, 0), 0)), errc::bad_frame) << "no terminating zero in nothing";
  EXPECT_EQ(decode_error(name(list_pointer(0, of_byte, 8), 0x4141414141414141)), errc::bad_frame)
      << "no terminating zero";
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
  constexpr auto elements = [](std::uint64_t count, std::uint64_t data, std::uint64_t pointers) {
    return count << 2 | data << 32 | pointers << 48;
  };
  const auto names = [](std::uint64_t tag) {
    return single_segment(kind::locate, {locate_pointer, 0, 0, 0, list_pointer(0, of_composite, 2), tag, 0, 0});
  };
  const decoded nameless(names(elements(2, 1, 0)));  // no pointer in an element: it is null
  ASSERT_TRUE(nameless.outcome);
  EXPECT_TRUE(nameless.m.names.size() == 2 && nameless.m.names[0].empty() && nameless.m.names[1].empty());
  EXPECT_EQ(decode_error(names(elements(0x3fffffff >> 1, 0, 0))), errc::bad_frame) << "elements of nothing";
  EXPECT_EQ(decode_error(names(elements(2, 0, 0xffff))), errc::bad_frame) << "longer than the list";
  // a struct whose first member is the text: a later version may write it so
  const decoded upgraded(names(elements(1, 0, 1)));
  ASSERT_TRUE(upgraded.outcome);
  ASSERT_EQ(upgraded.m.names.size(), 1u);
  EXPECT_EQ(upgraded.m.names[0], "");
  // and the reverse: pointers or numbers where structs belong
  for (const list_size s : {of_bit, of_byte, of_two, of_four, of_eight, of_pointer}) {
    const decoded d(single_segment(kind::schema_page, {page_pointer, 0, 0, 0, 0, 0, list_pointer(0, s, 1), 0}));
    ASSERT_EQ(d.outcome.has_value(), s != of_bit)
        << "an older version may have had numbers or pointers there, and no version bits: " << s;
    if (d.outcome) {
      ASSERT_EQ(d.m.rows.size(), 1u);
      EXPECT_EQ(d.m.rows[0].name, "");
    } else {
      EXPECT_EQ(d.outcome.error().code, errc::bad_frame);
    }
  }
}

TEST(Framing, F15_capabilities_and_reserved_pointers) {
  for (const std::uint64_t p : {std::uint64_t{3}, std::uint64_t{0xffffffff00000003}, std::uint64_t{7},
                                ~std::uint64_t{0}, list_pointer(0, of_byte, 8), list_pointer(0, of_composite, 1)}) {
    EXPECT_EQ(decode_error(frame(words{segment_table(9), p, 0, 0, 0, 0, 0, 0, 0, 0})), errc::bad_frame)
        << std::hex << p;
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
  const decoded d{
      frame(words{std::uint64_t{9} << 32 | 1, 6, struct_pointer(0, 7, 1), std::uint64_t{12} << 32 | 5, 0, 0, 0, 0, 0, 0,
                  far_pointer(1, 0, false), struct_pointer(0, 3, 1), 1, 2, 3, list_pointer(0, of_pointer, 1), 0})};
  ASSERT_TRUE(d.outcome);
  EXPECT_EQ(d.m.kind, kind::locate);
  EXPECT_EQ(d.m.names.size(), 1u);
}

}  // namespace hostile_frames_test
