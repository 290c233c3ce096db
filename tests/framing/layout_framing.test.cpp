// The framing for small machines: its layouts are those of the schema, it reads all that our encoders write, and it
// refuses every other frame.
#include "support/generated_codec.hpp"
#include "support/random_messages.hpp"

#include <tensorpull/framing/frame_fields.hpp>
#include <tensorpull/framing/layout_framing.hpp>

#include <bit>
#include <set>

namespace {

using namespace test;
using tp::errc;
using tp::frame_field;
using kind = tp::frame_kind;

// The sizes and the numbers that the tool `capnp` computed from protocol.capnp.
namespace wire = tp::wire;
template <class Struct>
constexpr bool has_size(tp::detail::struct_size size) {
  return Struct::_capnpPrivate::dataWordSize == size.data && Struct::_capnpPrivate::pointerCount == size.pointers;
}
static_assert(has_size<wire::Frame>(tp::detail::size_of_frame) && has_size<wire::Tensor>(tp::detail::size_of_tensor));
static_assert(has_size<wire::Range>(tp::detail::size_of_range) &&
              has_size<wire::Reference>(tp::detail::size_of_reference));
static_assert(has_size<wire::Description>(tp::detail::layout_body<tp::all_frames>(kind::description)));
static_assert(has_size<wire::SchemaPage>(tp::detail::layout_body<tp::all_frames>(kind::schema_page)));
static_assert(has_size<wire::Locate>(tp::detail::layout_body<tp::all_frames>(kind::locate)) &&
              has_size<wire::Located>(tp::detail::layout_body<tp::all_frames>(kind::located)));
static_assert(has_size<wire::Application>(tp::detail::layout_body<tp::all_frames>(kind::application)));
static_assert(tp::detail::frame_head_bytes ==
              8 * (2 + wire::Frame::_capnpPrivate::dataWordSize + wire::Frame::_capnpPrivate::pointerCount));
constexpr bool is_tag(kind k, wire::Frame::Which tag) { return static_cast<unsigned>(k) == static_cast<unsigned>(tag); }
static_assert(is_tag(kind::nothing, wire::Frame::NOTHING) && is_tag(kind::describe, wire::Frame::DESCRIBE) &&
              is_tag(kind::pull, wire::Frame::PULL) && is_tag(kind::chunk, wire::Frame::CHUNK) &&
              is_tag(kind::end, wire::Frame::END) && is_tag(kind::confirm, wire::Frame::CONFIRM) &&
              is_tag(kind::confirmed, wire::Frame::CONFIRMED) && is_tag(kind::cancel, wire::Frame::CANCEL) &&
              is_tag(kind::refused, wire::Frame::REFUSED) && is_tag(kind::schema, wire::Frame::SCHEMA) &&
              is_tag(kind::description, wire::Frame::DESCRIPTION) &&
              is_tag(kind::schema_page, wire::Frame::SCHEMA_PAGE) && is_tag(kind::locate, wire::Frame::LOCATE) &&
              is_tag(kind::located, wire::Frame::LOCATED) && is_tag(kind::application, wire::Frame::APPLICATION));
static_assert(static_cast<unsigned>(tp::status::owner_lost) == static_cast<unsigned>(wire::Status::OWNER_LOST));

// The rows of the table are where put_words() puts the fields, and it puts none elsewhere.
constexpr void set_field(tp::frame& m, frame_field f) {
  constexpr std::uint64_t all = ~std::uint64_t{0};
  switch (f) {
    case frame_field::ref_high: m.ref.high = all; break;
    case frame_field::ref_low: m.ref.low = all; break;
    case frame_field::version: m.version = all; break;
    case frame_field::nonce: m.nonce = all; break;
    case frame_field::fingerprint: m.fingerprint = all; break;
    case frame_field::digest: m.digest = all; break;
    case frame_field::offset: m.offset = all; break;
    case frame_field::image_bytes: m.image_bytes = all; break;
    case frame_field::data_start: m.data_start = all; break;
    case frame_field::tensors: m.tensors = all; break;
    case frame_field::length: m.length = 0xffffffff; break;
    case frame_field::delay_ms: m.delay_ms = 0xffffffff; break;
    case frame_field::application: m.application = 0xffffffff; break;
    case frame_field::window: m.window = 0xffff; break;
    case frame_field::reason: m.reason = 0xffffffff; break;
    case frame_field::recipient: m.recipient.value = all; break;
    case frame_field::kind_of_digest: m.chunk_digest = static_cast<tp::digest_kind>(0xff); break;
    case frame_field::flag: m.flag = true; break;
    case frame_field::memory: m.memory = true; break;
    case frame_field::status: m.status = static_cast<tp::status>(0xffff); break;
  }
}
constexpr bool table_is_that_of_the_writer() {
  for (unsigned k = 0; k <= static_cast<unsigned>(kind::application); ++k) {
    if (static_cast<kind>(k) == kind::chunk) continue;
    for (unsigned f = 0; f <= static_cast<unsigned>(frame_field::status); ++f) {
      tp::frame m;
      m.kind = static_cast<kind>(k);
      const std::uint64_t empty = tp::detail::first_word(m);
      set_field(m, static_cast<frame_field>(f));
      std::uint64_t words[1 + tp::detail::most_body_words]{};
      words[0] = tp::detail::first_word(m) ^ empty;
      tp::detail::put_words(m, words + 1);
      const std::size_t first = tp::detail::layout_first<tp::all_frames>(m.kind) / 8;
      for (const tp::detail::layout_row& r : tp::detail::layout_rows)
        if (r.kind == m.kind && r.field == static_cast<frame_field>(f))
          words[r.word == 2 ? 0 : r.word - first + 1] ^= (r.bits == 64 ? ~std::uint64_t{0}
                                                                       : (std::uint64_t{1} << r.bits) - 1)
                                                         << r.bit;
      for (const std::uint64_t w : words)
        if (w != 0) return false;
    }
  }
  return true;
}
static_assert(table_is_that_of_the_writer());

TEST(LayoutFraming, Every_field_is_where_the_generated_accessors_put_it) {
  std::size_t found = 0;
  for (const tp::frame& of_kind : every_message()) {
    tp::frame empty;
    empty.kind = of_kind.kind;
    const auto without = generated::encode(empty);
    for (unsigned f = 0; f <= static_cast<unsigned>(frame_field::status); ++f) {
      tp::frame m = empty;
      set_field(m, static_cast<frame_field>(f));
      auto with = generated::encode(m);
      ASSERT_EQ(with.size(), without.size());
      for (std::size_t i = 0; i < with.size(); ++i) with[i] ^= without[i];
      for (const tp::detail::layout_row& r : tp::detail::layout_rows)
        if (r.kind == m.kind && r.field == static_cast<frame_field>(f))
          with[r.word] ^= (~std::uint64_t{0} >> (64 - r.bits)) << r.bit, ++found;
      EXPECT_EQ(std::ranges::count(with, std::uint64_t{0}), static_cast<std::ptrdiff_t>(with.size()))
          << "kind " << static_cast<int>(m.kind) << ", field " << f;
    }
  }
  EXPECT_GE(found, std::size(tp::detail::layout_rows));
}

template <tp::frame_set Kinds>
void expect_the_same_frame(const tp::frame& m) {
  using layout = tp::basic_layout_framing<Kinds>;
  std::vector<std::uint64_t> room(10'000);
  const auto out = std::as_writable_bytes(std::span(room));
  const auto n = layout::encode(m, out);
  if (!Kinds.has(m.kind)) {
    ASSERT_FALSE(n);
    EXPECT_EQ(n.error(), errc::invalid_argument);
    return;
  }
  const auto theirs = generated::encode(m);
  ASSERT_TRUE(n);
  ASSERT_TRUE(std::ranges::equal(out.first(*n), std::as_bytes(std::span(theirs))))
      << "kind " << static_cast<int>(m.kind);
  bool accepted = false;
  const char* const what = layout_disagreement<Kinds>(frame(theirs).bytes(), accepted);
  ASSERT_EQ(what, nullptr) << what << ": kind " << static_cast<int>(m.kind);
  ASSERT_TRUE(accepted) << "kind " << static_cast<int>(m.kind);
}

TEST(LayoutFraming, Random_frames_of_every_kind_have_the_bytes_of_the_generated_builders_and_are_read) {
  generator random(51);
  for (int round = 0; round < 60; ++round) {
    std::vector<std::vector<std::string_view>> names;
    std::vector<std::vector<tp::schema_row>> rows;
    for (tp::frame m : random_messages(random, names, rows)) {
      if (random.below(8) == 0) m.status = static_cast<tp::status>(random.below(65536));  // that of a newer peer
      expect_the_same_frame<tp::all_frames>(m);
      expect_the_same_frame<tp::owner_frames>(m);
      expect_the_same_frame<tp::recipient_frames>(m);
      expect_the_same_frame<tp::frame_set::of(kind::located, kind::nothing)>(m);
      expect_the_same_frame<tp::frame_set::of(kind::application)>(m);
      ASSERT_FALSE(HasFatalFailure()) << "round " << round;
    }
  }
}

TEST(LayoutFraming, Encoding_into_too_little_memory_does_not_fit_and_writes_nothing_behind) {
  for (const tp::frame& m : every_message()) {
    const frame whole = encode(m);
    for (std::size_t room = 0; room < whole.size() + 8; ++room) {
      std::vector<std::uint64_t> memory(room / 8 + 2, 0x5a5a5a5a5a5a5a5a);
      const auto n = tp::layout_framing::encode(m, std::as_writable_bytes(std::span(memory)).first(room));
      if (room < whole.size()) EXPECT_EQ(n.error(), errc::does_not_fit) << room;
      else EXPECT_EQ(*n, whole.size());
      for (std::size_t i = room; i < memory.size() * 8; ++i)
        ASSERT_EQ(reinterpret_cast<unsigned char*>(memory.data())[i], 0x5a) << room;
    }
  }
}

TEST(LayoutFraming, Chunks_and_pieces_are_not_encoded) {
  std::vector<std::uint64_t> room(100);
  for (const unsigned k : {3u, 15u, 16u, 31u, 32u, 200u, 65535u}) {
    tp::frame m;
    m.kind = static_cast<kind>(k);
    EXPECT_EQ(tp::layout_framing::encode(m, std::as_writable_bytes(std::span(room))).error(), errc::invalid_argument)
        << k;
  }
}

errc error_of(const frame& f) {
  tp::layout_framing::decode_storage lists;
  tp::frame m;
  const auto read = tp::layout_framing::decode(f.bytes(), m, lists);
  return read ? errc{} : read.error().code;
}

TEST(LayoutFraming, Lists_are_as_long_as_the_limits_allow_and_no_longer) {
  using limits = tp::default_limits;
  const auto of = [](kind k, auto change) {
    tp::frame m;
    m.kind = k;
    change(m);
    const frame f = encode(m, 200'000);
    const char* const what = layout_disagreement(f.bytes());
    EXPECT_EQ(what, nullptr) << what;
    tp::word_framing::decode_storage lists;
    tp::frame back;
    const auto by_words = tp::word_framing::decode(f.bytes(), back, lists);
    EXPECT_EQ(error_of(f), by_words ? errc{} : by_words.error().code);
    return error_of(f);
  };
  for (const std::size_t more : {0u, 1u}) {
    const errc expected = more == 0 ? errc{} : errc::too_large;
    const std::vector<tp::schema_row> rows(limits::control_frame_bytes / 32 + more, {"n", "F32", some_shape});
    EXPECT_EQ(of(kind::schema_page, [&](tp::frame& m) { m.rows = rows; }), expected);
    const std::vector<std::uint64_t> shape(limits::control_frame_bytes / 8 + more, 7);
    const std::vector<tp::schema_row> one{{"n", "F32", shape}};
    EXPECT_EQ(of(kind::schema_page, [&](tp::frame& m) { m.rows = one; }), expected);
    const std::vector<tp::schema_row> two{{"n", "F32", std::span(shape).first(100)},
                                          {"n", "F32", std::span(shape).first(shape.size() - 100)}};
    EXPECT_EQ(of(kind::schema_page, [&](tp::frame& m) { m.rows = two; }), expected);
    const std::vector<std::string_view> names(limits::control_frame_bytes / 16 + more, "a name");
    EXPECT_EQ(of(kind::locate, [&](tp::frame& m) { m.names = names; }), expected);
    const std::vector<tp::byte_range> ranges(limits::control_frame_bytes / 16 + more, tp::byte_range{1, 2});
    EXPECT_EQ(of(kind::located, [&](tp::frame& m) { m.ranges = ranges; }), expected);
    const std::vector<tp::reference> references(limits::application_references + more, some_references[0]);
    EXPECT_EQ(of(kind::application, [&](tp::frame& m) { m.references = references; }), expected);
    const std::vector<std::byte> body(limits::application_body_bytes + more, std::byte{7});
    EXPECT_EQ(of(kind::application, [&](tp::frame& m) { m.body = body; }), expected);
  }
}

TEST(LayoutFraming, Every_bit_that_is_changed_gives_what_the_others_read_or_a_refusal) {
  std::size_t accepted = 0, refused = 0;
  std::set<kind> seen;
  for (const tp::frame& m : every_message()) {
    frame f = encode(m);
    for (std::size_t bit = 0; bit < 8 * f.size(); ++bit) {
      f.bytes()[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      const char* const what = layout_disagreement(f.bytes());
      ASSERT_EQ(what, nullptr) << what << ": kind " << static_cast<int>(m.kind) << ", bit " << bit;
      ++(error_of(f) == errc{} ? accepted : refused);
      f.bytes()[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    }
    seen.insert(m.kind);
  }
  EXPECT_EQ(seen.size(), 15u - 1);
  EXPECT_GT(accepted, 5000u);
  EXPECT_GT(refused, 5000u);
}

TEST(LayoutFraming, A_bit_without_a_meaning_is_an_unsupported_layout) {
  for (const tp::frame& m : every_message()) {
    if (tp::detail::layout_body<tp::all_frames>(m.kind).pointers > 0) continue;
    frame f = encode(m);
    std::vector<std::uint64_t> meaning(f.size() / 8, 0);
    meaning[0] = meaning[1] = meaning[9] = ~std::uint64_t{0};
    meaning[2] = 0x0000ffffffffffff;
    for (const tp::detail::layout_row& r : tp::detail::layout_rows)
      if (r.kind == m.kind) meaning[r.word] |= (~std::uint64_t{0} >> (64 - r.bits)) << r.bit;
    for (std::size_t bit = 0; bit < 8 * f.size(); ++bit) {
      if ((meaning[bit / 64] >> bit % 64 & 1) != 0) continue;
      f.bytes()[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      EXPECT_EQ(error_of(f), errc::unsupported_layout) << "kind " << static_cast<int>(m.kind) << ", bit " << bit;
      tp::word_framing::decode_storage lists;
      tp::frame back;
      EXPECT_TRUE(tp::word_framing::decode(f.bytes(), back, lists)) << "the other framings ignore it";
      f.bytes()[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    }
  }
}

TEST(LayoutFraming, Every_part_of_a_frame_is_a_bad_frame) {
  for (const tp::frame& m : every_message()) {
    const frame f = encode(m);
    for (std::size_t n = 0; n < f.size(); ++n) {
      const frame part(f.bytes().first(n));
      EXPECT_EQ(error_of(part), errc::bad_frame) << n;
      const char* const what = layout_disagreement(part.bytes());
      ASSERT_EQ(what, nullptr) << what << ": kind " << static_cast<int>(m.kind) << ", " << n << " bytes";
    }
    std::vector<std::byte> longer(f.bytes().begin(), f.bytes().end());
    longer.resize(longer.size() + 8);
    EXPECT_EQ(error_of(frame(longer)), errc::bad_frame);
    longer[4] = static_cast<std::byte>(longer.size() / 8 - 1);  // a word that nothing leads to
    EXPECT_EQ(error_of(frame(longer)), errc::unsupported_layout);
  }
}

TEST(LayoutFraming, Every_part_of_a_frame_whose_segment_table_fits_is_refused) {
  for (const tp::frame& m : every_message()) {
    const frame f = encode(m);
    for (std::size_t n = 16; n < f.size(); n += 8) {
      frame part(f.bytes().first(n));
      tp::store_le64(part.bytes().data(), segment_table(static_cast<std::uint32_t>(n / 8 - 1)));
      EXPECT_NE(error_of(part), errc{}) << n;
      const char* const what = layout_disagreement(part.bytes());
      ASSERT_EQ(what, nullptr) << what << ": kind " << static_cast<int>(m.kind) << ", " << n << " bytes";
    }
  }
}

TEST(LayoutFraming, Random_words_and_pointers_in_every_kind) {
  generator random(52);
  for (const tp::frame& m : every_message()) {
    frame f = encode(m);
    for (int round = 0; round < 2000; ++round) {
      const std::size_t word = random.below(f.size() / 8);
      const std::uint64_t was = f.word(word), pick = random.below(5);
      tp::store_le64(f.bytes().data() + 8 * word, pick == 0   ? random()
                                                  : pick == 1 ? random.below(16)
                                                  : pick == 2 ? f.word(random.below(f.size() / 8))
                                                  : pick == 3
                                                      ? was + (std::uint64_t{1} << random.below(64))
                                                      : list_pointer(static_cast<std::int32_t>(random.below(8)) - 4,
                                                                     static_cast<list_size>(random.below(8)),
                                                                     static_cast<std::uint32_t>(random.below(20))));
      const char* const what = layout_disagreement(f.bytes());
      ASSERT_EQ(what, nullptr) << what << ": kind " << static_cast<int>(m.kind) << ", word " << word << ": " << std::hex
                               << f.word(word);
      tp::store_le64(f.bytes().data() + 8 * word, was);
    }
  }
}

TEST(LayoutFraming, Other_valid_layouts_are_refused_by_name) {
  const frame pull = encode(every_message()[2]);
  words newer{segment_table(1 + 9 + 3), struct_pointer(0, 9, 3)},
      two{std::uint64_t{9} << 32 | 1, 0, struct_pointer(0, 7, 1)};
  for (std::size_t i = 2; i < 9; ++i) newer.push_back(pull.word(i)), two.push_back(pull.word(i));
  newer.insert(newer.end(), {0x1234, 0x5678, 0, 0, 0});
  two.push_back(0);
  words described{segment_table(19), struct_pointer(0, 7, 1)};  // the description has a word between the frame and
                                                                // itself
  tp::frame m;
  m.kind = kind::description, m.image_bytes = 7;
  const frame description = encode(m);
  for (std::size_t i = 2; i < 9; ++i) described.push_back(description.word(i));
  described.insert(described.end(), {struct_pointer(1, 9, 0), 0});
  for (std::size_t i = 10; i < 19; ++i) described.push_back(description.word(i));
  const frame others[]{
      frame(newer),
      frame(two),
      frame(described),
      frame(words{segment_table(4), struct_pointer(0, 3, 0), std::uint64_t{2} << 32 | 5, 11, 12}),
      single_segment(kind::locate, {struct_pointer(0, 3, 1), 1, 2, 3, 0}),
      single_segment(kind::locate, {struct_pointer(0, 3, 1), 1, 2, 3, list_pointer(0, of_pointer, 1), 0}),
      single_segment(kind::description, {0})};
  for (const frame& f : others) {
    tp::word_framing::decode_storage lists;
    tp::frame back;
    EXPECT_TRUE(tp::word_framing::decode(f.bytes(), back, lists));
    EXPECT_EQ(error_of(f), errc::unsupported_layout) << static_cast<int>(back.kind);
  }
}

TEST(LayoutFraming, A_chunk_is_read_elsewhere_and_a_kind_outside_the_set_is_unexpected) {
  EXPECT_EQ(error_of(chunk_frame(every_message()[2], some_body)), errc::unsupported_layout);
  EXPECT_EQ(error_of(single_segment(static_cast<kind>(15), {0})), errc::unexpected_frame);
  for (unsigned k = 15; k < 65536; k += k < 300 ? 1 : 97)
    EXPECT_EQ(error_of(single_segment(static_cast<kind>(k), {0})), errc::unexpected_frame) << k;
  for (const tp::frame& m : every_message()) {
    tp::basic_layout_framing<tp::recipient_frames>::decode_storage lists;
    tp::frame back;
    const frame f = encode(m);
    const auto read = tp::basic_layout_framing<tp::recipient_frames>::decode(f.bytes(), back, lists);
    EXPECT_EQ(read.has_value(), tp::recipient_frames.has(m.kind));
    if (read) continue;
    EXPECT_EQ(read.error().code, errc::unexpected_frame);
    EXPECT_EQ(read.error().at, static_cast<std::uint64_t>(m.kind));
  }
}

/// Calls f with each row of the table whose kind has no lists, as a constant.
template <class F>
void for_each_row(F f) {
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (f(std::integral_constant<std::size_t, I>{}), ...);
  }(std::make_index_sequence<std::size(tp::detail::layout_rows)>{});
}
std::uint64_t value_of(const tp::frame& m, frame_field f) {
  switch (f) {
    case frame_field::ref_high: return m.ref.high;
    case frame_field::ref_low: return m.ref.low;
    case frame_field::version: return m.version;
    case frame_field::nonce: return m.nonce;
    case frame_field::fingerprint: return m.fingerprint;
    case frame_field::digest: return m.digest;
    case frame_field::offset: return m.offset;
    case frame_field::image_bytes: return m.image_bytes;
    case frame_field::data_start: return m.data_start;
    case frame_field::tensors: return m.tensors;
    case frame_field::length: return m.length;
    case frame_field::delay_ms: return m.delay_ms;
    case frame_field::application: return m.application;
    case frame_field::window: return m.window;
    case frame_field::reason: return m.reason;
    case frame_field::recipient: return m.recipient.value;
    case frame_field::kind_of_digest: return static_cast<std::uint64_t>(m.chunk_digest);
    case frame_field::flag: return m.flag ? 1 : 0;
    case frame_field::memory: return m.memory ? 1 : 0;
    case frame_field::status: return static_cast<std::uint64_t>(m.status);
  }
  return 0;
}

TEST(FrameFields, Frames_that_are_read_and_written_in_place_are_those_of_the_framings) {
  generator random(53);
  for (int round = 0; round < 100; ++round) {
    std::vector<std::vector<std::string_view>> names;
    std::vector<std::vector<tp::schema_row>> rows;
    for (const tp::frame& m : random_messages(random, names, rows)) {
      const frame f = encode(m);
      const decoded d(f);
      ASSERT_EQ(tp::check_frame<tp::all_frames>(f.bytes()), errc{});
      EXPECT_EQ(tp::kind_of_frame(f.bytes().data()), m.kind);
      EXPECT_EQ(tp::id_of_frame(f.bytes().data()), m.id);
      for_each_row([&]<std::size_t I>(std::integral_constant<std::size_t, I>) {
        constexpr auto row = tp::detail::layout_rows[I];
        if (row.kind != m.kind) return;
        const std::uint64_t read = tp::field_of_frame<row.kind, row.field>(f.bytes().data());
        EXPECT_EQ(read, value_of(d.m, row.field)) << I;
      });
    }
  }
  for_each_row([&]<std::size_t I>(std::integral_constant<std::size_t, I>) {
    constexpr auto row = tp::detail::layout_rows[I];
    if constexpr (tp::detail::body_size(row.kind).pointers == 0) {
      constexpr std::size_t bytes = tp::frame_bytes<row.kind>;
      std::vector<std::uint64_t> room(bytes / 8, ~std::uint64_t{0});
      auto* const out = reinterpret_cast<std::byte*>(room.data());
      tp::begin_frame<row.kind>(out, 0x01020304);
      tp::set_field_of_frame<row.kind, row.field>(out, ~std::uint64_t{0});
      tp::frame m;
      m.kind = row.kind, m.id = 0x01020304;
      set_field(m, row.field);
      const frame f = encode(m);
      EXPECT_EQ(std::vector<std::uint64_t>(room),
                words(reinterpret_cast<const std::uint64_t*>(f.bytes().data()),
                      reinterpret_cast<const std::uint64_t*>(f.bytes().data() + f.size())))
          << I;
    }
  });
  std::uint64_t room[10];
  auto* const out = reinterpret_cast<std::byte*>(room);
  tp::begin_frame<kind::nothing>(out, 7);
  EXPECT_EQ(tp::check_frame<tp::recipient_frames>({out, sizeof room}), errc{});
}

}  // namespace
