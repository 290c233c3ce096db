// The library puts the fields of control frames where the accessors do that `capnp` generates from the schema, and
// finds them there.
#include <tensorpull/core/byte_order.hpp>
#include "support/generated_codec.hpp"
#include "support/random_messages.hpp"
#include "support/whole_schedule.hpp"

#include <tensorpull/framing/detail/control_words.hpp>
#include <tensorpull/framing/word_framing.hpp>

#include <set>
#include <tuple>

namespace generated_accessors_test {

using namespace test;
using kind = tp::frame_kind;
namespace wire = tp::wire;

// The sizes and the numbers that the tool `capnp` computed from protocol.capnp.
template <class Struct>
constexpr bool has_size(tp::detail::struct_size size) {
  return Struct::_capnpPrivate::dataWordSize == size.data && Struct::_capnpPrivate::pointerCount == size.pointers;
}
static_assert(has_size<wire::Frame>(tp::detail::size_of_frame) && has_size<wire::Tensor>(tp::detail::size_of_tensor));
static_assert(has_size<wire::Range>(tp::detail::size_of_range) &&
              has_size<wire::Reference>(tp::detail::size_of_reference));
static_assert(has_size<wire::Description>(tp::detail::body_size(kind::description)) &&
              has_size<wire::SchemaPage>(tp::detail::body_size(kind::schema_page)));
static_assert(has_size<wire::Wanted>(tp::detail::size_of_wanted));
static_assert(has_size<wire::Locate>(tp::detail::body_size(kind::locate)) &&
              has_size<wire::Located>(tp::detail::body_size(kind::located)));
static_assert(has_size<wire::Application>(tp::detail::body_size(kind::application)));
constexpr bool is_tag(kind k, wire::Frame::Which tag) { return static_cast<unsigned>(k) == static_cast<unsigned>(tag); }
static_assert(is_tag(kind::nothing, wire::Frame::NOTHING) && is_tag(kind::describe, wire::Frame::DESCRIBE) &&
              is_tag(kind::pull, wire::Frame::PULL) && is_tag(kind::chunk, wire::Frame::CHUNK) &&
              is_tag(kind::end, wire::Frame::END) && is_tag(kind::confirm, wire::Frame::CONFIRM) &&
              is_tag(kind::confirmed, wire::Frame::CONFIRMED) && is_tag(kind::cancel, wire::Frame::CANCEL) &&
              is_tag(kind::refused, wire::Frame::REFUSED) && is_tag(kind::schema, wire::Frame::SCHEMA));
static_assert(is_tag(kind::description, wire::Frame::DESCRIPTION) &&
              is_tag(kind::schema_page, wire::Frame::SCHEMA_PAGE) && is_tag(kind::locate, wire::Frame::LOCATE) &&
              is_tag(kind::located, wire::Frame::LOCATED) && is_tag(kind::application, wire::Frame::APPLICATION) &&
              is_tag(kind::piece, wire::Frame::PIECE) && is_tag(kind::taken, wire::Frame::TAKEN));
static_assert(static_cast<unsigned>(tp::status::owner_lost) == static_cast<unsigned>(wire::Status::OWNER_LOST) &&
              static_cast<unsigned>(tp::status::looked) == static_cast<unsigned>(wire::Status::LOOKED) &&
              static_cast<unsigned>(tp::status::ended) == static_cast<unsigned>(wire::Status::ENDED));

/// Every member of a frame that is a field of some kind.
constexpr std::tuple members{
    &tp::frame::ref,          &tp::frame::version,       &tp::frame::nonce,       &tp::frame::fingerprint,
    &tp::frame::digest,       &tp::frame::offset,        &tp::frame::image_bytes, &tp::frame::data_start,
    &tp::frame::tensors,      &tp::frame::length,        &tp::frame::delay_ms,    &tp::frame::application,
    &tp::frame::window,       &tp::frame::request_words, &tp::frame::reason,      &tp::frame::recipient,
    &tp::frame::chunk_digest, &tp::frame::flag,          &tp::frame::memory,      &tp::frame::status};

template <class T>
void set_all_bits(T& field) {
  if constexpr (std::is_enum_v<T>) field = static_cast<T>(static_cast<std::underlying_type_t<T>>(~std::uint64_t{0}));
  else field = static_cast<T>(~std::uint64_t{0});
}
void set_all_bits(tp::ref_id& ref) { ref = {~std::uint64_t{0}, ~std::uint64_t{0}}; }
void set_all_bits(tp::recipient_id& who) { who = {~std::uint64_t{0}}; }

/// The words of a frame of the generated builders.
std::vector<std::uint64_t> written(const tp::frame& m) {
  const auto words = generated::encode(m);
  return {words.begin(), words.end()};
}

TEST(GeneratedAccessors, Every_field_of_the_table_is_where_the_generated_builders_put_it_and_there_is_no_other) {
  std::size_t found = 0;
  std::set<kind> seen;
  for (const tp::frame& of_kind : every_message()) {
    if (!seen.insert(of_kind.kind).second) continue;
    tp::frame m;
    m.kind = of_kind.kind;
    const auto empty = written(m);
    // behind the segment table and the root pointer, or behind the frame and its pointer
    const std::size_t first = tp::detail::body_size(m.kind).data > 0 ? 10 : 3;
    tp::detail::visit_fields(m.kind, m, [&](auto& field, tp::detail::field_place p) {
      const auto was = field;
      set_all_bits(field);
      auto words = written(m);
      field = was;
      ASSERT_EQ(words.size(), empty.size());
      const std::size_t at = p.word == 0 ? 2 : first + p.word - 1;
      words[at] ^= ~std::uint64_t{0} >> (64 - p.bits) << p.bit;
      if (std::same_as<std::remove_cvref_t<decltype(field)>, tp::ref_id>) words[at + 1] ^= ~std::uint64_t{0};
      EXPECT_EQ(words, empty) << "kind " << static_cast<int>(m.kind) << ", word " << +p.word << ", bit " << +p.bit;
      ++found;
    });
    std::apply([&](auto... member) { (set_all_bits(m.*member), ...); }, members);
    tp::detail::visit_fields(m.kind, m, [](auto& field, tp::detail::field_place) { field = {}; });
    EXPECT_EQ(written(m), empty) << "kind " << static_cast<int>(m.kind);
  }
  EXPECT_EQ(seen.size(), 14u);
  EXPECT_EQ(found, 62u);
}

/// What is compared of a field: a number of any width, or the high half of a reference.
template <class T>
std::uint64_t number(T field) {
  return static_cast<std::uint64_t>(field);
}
std::uint64_t number(tp::ref_id ref) { return ref.high; }
std::uint64_t number(tp::recipient_id who) { return who.value; }

/// Reads each field of a frame in its place, and compares it with what a framing has read.
template <kind Kind>
std::size_t compare_in_place(const frame& f, const tp::frame& read) {
  std::size_t compared = 0;
  const auto one = [&]<std::size_t I>(std::integral_constant<std::size_t, I>) {
    constexpr auto member = std::get<I>(members);
    if constexpr (tp::detail::place_of<Kind, member>.bits > 0) {
      EXPECT_EQ((tp::detail::field_in<Kind, member>(f.bytes().data())), number(read.*member)) << I;
      ++compared;
    }
  };
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (one(std::integral_constant<std::size_t, I>{}), ...);
  }(std::make_index_sequence<std::tuple_size_v<decltype(members)>>{});
  return compared;
}

TEST(GeneratedAccessors, Fields_that_are_read_in_place_are_those_of_the_generated_builders) {
  generator random(53);
  std::size_t compared = 0;
  for (int round = 0; round < 100; ++round) {
    std::vector<std::vector<std::string_view>> names;
    std::vector<std::vector<tp::schema_row>> rows;
    for (const tp::frame& m : random_messages(random, names, rows)) {
      const frame f(generated::encode(m));
      const decoded d(f);
      EXPECT_EQ(tp::detail::kind_in(f.bytes().data()), m.kind);
      EXPECT_EQ(tp::detail::id_in(f.bytes().data()), m.id);
      [&]<std::size_t... K>(std::index_sequence<K...>) {
        ((compared += static_cast<std::size_t>(m.kind) == K ? compare_in_place<static_cast<kind>(K)>(f, d.m) : 0), ...);
      }(std::make_index_sequence<static_cast<std::size_t>(kind::piece)>{});
      ASSERT_FALSE(HasFailure()) << "kind " << static_cast<int>(m.kind);
    }
  }
  EXPECT_GE(compared, 6000u);
}

TEST(GeneratedAccessors, Every_kind_has_the_bytes_that_the_generated_builders_write) {
  generator random(31);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::vector<std::string_view>> names;
    std::vector<std::vector<tp::schema_row>> rows;
    for (const tp::frame& m : random_messages(random, names, rows)) {
      const frame ours = encode(m);
      const auto theirs = generated::encode(m);
      ASSERT_EQ(ours.size(), 8 * theirs.size()) << "kind " << static_cast<int>(m.kind);
      ASSERT_EQ(std::memcmp(ours.bytes().data(), theirs.data(), ours.size()), 0) << "kind " << static_cast<int>(m.kind);
    }
  }
}

/// Both framings and the generated readers agree on a frame, whatever it is. What they read is compared as the
/// generated builders write it.
void expect_agreement(const frame& f) {
  const decoded ours(f);
  tp::frame theirs, ours_of_words;
  const auto lists = std::make_unique<tp::capnp_framing::decode_storage>();
  const auto more = std::make_unique<tp::word_framing::decode_storage>();
  const auto outcome = generated::decode(f.bytes(), theirs, *lists);
  const auto of_words = tp::word_framing::decode(f.bytes(), ours_of_words, *more);
  ASSERT_EQ(ours.outcome.has_value(), outcome.has_value());
  ASSERT_EQ(of_words.has_value(), outcome.has_value());
  if (!outcome) {
    EXPECT_EQ(ours.outcome.error().code, outcome.error().code);
    EXPECT_EQ(of_words.error().code, outcome.error().code);
    return;
  }
  ASSERT_EQ(ours.m.kind, theirs.kind);
  ASSERT_EQ(ours_of_words.kind, theirs.kind);
  ASSERT_EQ(generated::encode(ours.m), generated::encode(theirs));
  ASSERT_EQ(generated::encode(ours_of_words), generated::encode(theirs));
}

TEST(GeneratedAccessors, Readers_agree_on_every_kind_with_any_word_changed) {
  generator random(32);
  for (const tp::frame& m : every_message()) {
    frame f = encode(m);
    expect_agreement(f);
    for (std::uint64_t round = repetitions(3000); round > 0; --round) {
      const std::size_t word = 1 + random.below(f.size() / 8 - 1);
      const std::uint64_t was = f.word(word), pick = random.below(4);
      const auto any = [&] {
        switch (pick) {
          case 0: return random();
          case 1: return was ^ std::uint64_t{1} << random.below(64);
          case 2: return f.word(random.below(f.size() / 8));
          default: break;
        }
        return list_pointer(static_cast<std::int32_t>(random.below(8)) - 4, static_cast<list_size>(random.below(8)),
                            static_cast<std::uint32_t>(random.below(20)));
      };
      tp::store_le64(f.bytes().data() + 8 * word, any());
      expect_agreement(f);
      if (HasFatalFailure())
        FAIL() << "kind " << static_cast<int>(m.kind) << ", word " << word << ": " << std::hex << f.word(word);
      tp::store_le64(f.bytes().data() + 8 * word, was);
    }
  }
}

}  // namespace generated_accessors_test
