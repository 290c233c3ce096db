// Which field of a frame is in which data word: the data sections of protocol.capnp, kind by kind, as one table. The
// framings read and write frames by it, the prefix of a chunk is made by it, and the small engine finds fields in place
// by it. A test compares it with the accessors that the `capnp` tool generates from the schema.
//
// If a kind is a group in the schema, its fields are in the Frame's own words after the first. If it is a struct, they
// are in that struct's words. Most kinds begin with the reference and the version either way, so both are one array of
// words here.
#pragma once

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/core/limits.hpp>
#include <tensorpull/framing/frame.hpp>

#include <cstddef>
#include <cstdint>

namespace tensorpull::detail {

/// The size of a struct in protocol.capnp: words of data, and pointers after them.
struct struct_size {
  std::uint16_t data = 0;
  std::uint16_t pointers = 0;
};
inline constexpr struct_size size_of_frame{7, 1}, size_of_tensor{0, 3}, size_of_range{2, 0}, size_of_reference{4, 0},
    size_of_wanted{3, 1};

/// The size of the struct that the frame's pointer leads to; zero for the kinds that are groups.
constexpr struct_size body_size(frame_kind kind) noexcept {
  switch (kind) {
    case frame_kind::description: return {9, 0};
    case frame_kind::schema_page: return {5, 1};
    case frame_kind::locate: return {3, 1};
    case frame_kind::located: return {6, 1};
    case frame_kind::application: return {1, 2};
    default: return {};
  }
}

/// Words of the longest data section, without the Frame's first word.
inline constexpr std::size_t most_body_words = 9;

/// Bytes of the longest frame without lists, texts and bodies, a description: a segment table and a root pointer of a
/// word each, the frame, its body.
inline constexpr std::size_t short_frame_bytes = 8 *
                                                 (2 + size_of_frame.data + size_of_frame.pointers + most_body_words);
static_assert(short_frame_bytes == description_frame_bytes);

/// Where a field lies: the bits [bit, bit + bits) of a data word of its kind. Word 0 is the Frame's first, and the
/// kind's own words follow it.
struct field_place {
  std::uint8_t word = 0, bit = 0, bits = 64;
};
inline constexpr field_place place_of_id{0, 0, 32}, place_of_kind{0, 32, 16};

/// The table. Calls at(field, position) for each field that frames of a kind have besides id and kind, word by word and
/// from the low bits up. A reference takes two words.
template <class Frame, class At>
[[gnu::always_inline]] constexpr void visit_fields(frame_kind kind, Frame& m, At at) noexcept {
  if (kind == frame_kind::nothing) return;
  if (kind == frame_kind::application) return at(m.application, {1, 0, 32});
  at(m.ref, {1});
  if (kind == frame_kind::describe) {
    at(m.memory, {0, 48, 1});
    return at(m.recipient, {3});
  }
  at(m.version, {3});
  if (kind == frame_kind::pull || kind == frame_kind::confirm) at(m.flag, {0, 48, 1});
  switch (kind) {
    case frame_kind::pull:
      at(m.offset, {4});
      at(m.fingerprint, {5});
      at(m.length, {6, 0, 32});
      at(m.chunk_digest, {6, 32, 8});
      break;
    case frame_kind::chunk:
      at(m.offset, {4});
      at(m.nonce, {5});
      at(m.digest, {6});
      break;
    case frame_kind::end:
      at(m.image_bytes, {4});
      at(m.nonce, {5});
      break;
    case frame_kind::confirm:
      at(m.nonce, {4});
      at(m.digest, {5});
      at(m.recipient, {6});
      break;
    case frame_kind::confirmed:
      at(m.nonce, {4});
      at(m.status, {5, 0, 16});
      break;
    case frame_kind::cancel:
      at(m.nonce, {4});
      at(m.recipient, {5});
      at(m.reason, {6, 0, 32});
      at(m.status, {6, 32, 16});
      break;
    case frame_kind::refused:
      at(m.offset, {4});
      at(m.status, {5, 0, 16});
      at(m.delay_ms, {5, 32, 32});
      break;
    case frame_kind::schema: at(m.offset, {4}); break;
    case frame_kind::description:
      at(m.fingerprint, {4});
      at(m.image_bytes, {5});
      at(m.data_start, {6});
      at(m.nonce, {7});
      at(m.length, {8, 0, 32});
      at(m.tensors, {8, 32, 32});
      at(m.window, {9, 0, 16});
      at(m.flag, {9, 16, 1});
      at(m.memory, {9, 17, 1});
      at(m.request_words, {9, 32, 16});
      break;
    case frame_kind::schema_page:
      at(m.offset, {4});
      at(m.tensors, {5});
      break;
    case frame_kind::located:
      at(m.nonce, {4});
      at(m.digest, {5});
      at(m.fingerprint, {6});
      break;
    default: break;
  }
}

/// The status that a word has in its low bits. One of a newer peer that is not known here is still a refusal.
constexpr status to_status(std::uint64_t word) noexcept {
  const auto s = static_cast<status>(static_cast<std::uint16_t>(word));
  return s <= status::ended ? s : status::unsupported;
}

/// Writes fields to words that are zero.
struct field_writer {
  std::uint64_t* words;

  [[gnu::always_inline]] constexpr void operator()(const ref_id& ref, field_place p) const noexcept {
    words[p.word] = ref.high;
    words[p.word + 1] = ref.low;
  }
  [[gnu::always_inline]] constexpr void operator()(recipient_id who, field_place p) const noexcept {
    words[p.word] = who.value;
  }
  template <class T>
  [[gnu::always_inline]] constexpr void operator()(T value, field_place p) const noexcept {
    const std::uint64_t bits = static_cast<std::uint64_t>(value) << p.bit;
    words[p.word] = p.bit == 0 ? bits : words[p.word] | bits;
  }
};
/// Reads fields from words.
struct field_reader {
  const std::uint64_t* words;

  [[gnu::always_inline]] constexpr void operator()(ref_id& ref, field_place p) const noexcept {
    ref = {words[p.word], words[p.word + 1]};
  }
  [[gnu::always_inline]] constexpr void operator()(recipient_id& who, field_place p) const noexcept {
    who = {words[p.word]};
  }
  [[gnu::always_inline]] constexpr void operator()(status& s, field_place p) const noexcept {
    s = to_status(words[p.word] >> p.bit);
  }
  template <class T>
  [[gnu::always_inline]] constexpr void operator()(T& value, field_place p) const noexcept {
    value = static_cast<T>(words[p.word] >> p.bit & ~std::uint64_t{0} >> (64 - p.bits));
  }
};

/// Writes the words of any kind but chunk; one of a chunk is nothing. `words`: 1 + most_body_words words, all zero.
constexpr void put_words(const frame& m, std::uint64_t* words) noexcept {
  const frame_kind kind = m.kind == frame_kind::chunk ? frame_kind::nothing : m.kind;
  const field_writer to{words};
  to(m.id, place_of_id);
  to(kind, place_of_kind);
  visit_fields(kind, m, to);
}
/// Reads the id and the kind from the Frame's first word.
constexpr void take_head(std::uint64_t word, frame& m) noexcept {
  const field_reader from{&word};
  from(m.id, place_of_id);
  from(m.kind, place_of_kind);
}
/// The reverse of put_words(), for the kind that `m` has already. Words that an older peer did not send must be zero.
constexpr void take_words(const std::uint64_t* words, frame& m) noexcept {
  visit_fields(m.kind, m, field_reader{words});
}

template <class Content, class Field>
Content content_of(Field Content::*) noexcept;

/// Where the member `Member` of `frame`, or of `piece`, lies in frames of a kind; a kind that does not have it: no
/// bits.
template <frame_kind Kind, auto Member>
inline constexpr field_place place_of = [] {
  decltype(content_of(Member)) m;
  field_place found{.bits = 0};
  visit_fields(Kind, m, [&](const auto& field, field_place p) {
    if constexpr (requires { &field == &(m.*Member); })
      if (&field == &(m.*Member)) found = p;
  });
  return found;
}();
/// The byte in which such a member begins in a frame of the one layout that our encoders write: segment table, root
/// pointer, the Frame's words, its pointer, and behind it the words of the kinds that are structs.
template <frame_kind Kind, auto Member>
inline constexpr std::size_t byte_of = [] {
  constexpr field_place p = place_of<Kind, Member>;
  static_assert(p.bits > 0, "tensorpull: frames of this kind have no such field");
  constexpr bool is_struct = body_size(Kind).data > 0 && p.word > 0;
  return 8 * ((is_struct ? 2 + size_of_frame.data + size_of_frame.pointers - 1u : 2u) + p.word) + p.bit / 8u;
}();
inline frame_kind kind_in(const std::byte* frame) noexcept {
  return static_cast<frame_kind>(static_cast<std::uint16_t>(load_le16(frame + 20)));
}
inline std::uint32_t id_in(const std::byte* frame) noexcept {
  return static_cast<std::uint32_t>(load_le32(frame + 16));
}
static_assert(place_of_kind.bit == 32 && place_of_id.bit == 0);
/// Its value in such a frame; a status is given as it is.
template <frame_kind Kind, auto Member>
[[gnu::always_inline]] inline std::uint64_t field_in(const std::byte* frame) noexcept {
  constexpr field_place p = place_of<Kind, Member>;
  const std::byte* const at = frame + byte_of<Kind, Member>;
  if constexpr (p.bits == 64) return load_le64(at);
  else if constexpr (p.bits == 32) return load_le32(at);
  else if constexpr (p.bits == 16) return load_le16(at);
  else return static_cast<std::uint64_t>(*at) >> p.bit % 8 & ((1u << p.bits) - 1);
}

}  // namespace tensorpull::detail
