// The one layout in which our encoders write control frames: where each field lies in a frame, as one constant table,
// and what is made of it. A test compares the table with the schema of protocol.capnp.
//
// A frame has the segment table (word 0), the root pointer (1), the frame's own data words (2 to 8) and its pointer
// (9). The fields of a kind are in the words from 3 on, or from 10 on if they are a struct of their own, to which the
// pointer leads then.
#pragma once

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/core/error.hpp>
#include <tensorpull/framing/detail/control_words.hpp>
#include <tensorpull/framing/detail/payload_prefix.hpp>
#include <tensorpull/framing/frame_set.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace tensorpull {

/// A field of a frame, named like the member of `frame` that has it. ref_high and ref_low are the halves of `ref`,
/// kind_of_digest is `chunk_digest`.
enum class frame_field : std::uint8_t {
  ref_high,
  ref_low,
  version,
  nonce,
  fingerprint,
  digest,
  offset,
  image_bytes,
  data_start,
  tensors,
  length,
  delay_ms,
  application,
  window,
  reason,
  recipient,
  kind_of_digest,
  flag,
  memory,
  status,
};

namespace detail {

/// One row of the table: the bits [bit, bit + bits) of a word of the frame.
struct layout_row {
  frame_kind kind{};
  frame_field field{};
  std::uint8_t word = 0, bit = 0, bits = 64;
};

/// The words of a frame up to its own pointer, in bytes: the length of every kind whose fields are not a struct.
inline constexpr std::size_t frame_head_bytes = 80;
inline constexpr std::size_t group_word = 3, body_word = 10;

// In the order of the words, kind by kind.
inline constexpr layout_row layout_rows[] = {
    {frame_kind::describe, frame_field::memory, 2, 48, 1},
    {frame_kind::describe, frame_field::ref_high, 3},
    {frame_kind::describe, frame_field::ref_low, 4},
    {frame_kind::describe, frame_field::recipient, 5},

    {frame_kind::pull, frame_field::ref_high, 3},
    {frame_kind::pull, frame_field::ref_low, 4},
    {frame_kind::pull, frame_field::version, 5},
    {frame_kind::pull, frame_field::offset, 6},
    {frame_kind::pull, frame_field::fingerprint, 7},
    {frame_kind::pull, frame_field::length, 8, 0, 32},
    {frame_kind::pull, frame_field::kind_of_digest, 8, 32, 8},

    {frame_kind::end, frame_field::ref_high, 3},
    {frame_kind::end, frame_field::ref_low, 4},
    {frame_kind::end, frame_field::version, 5},
    {frame_kind::end, frame_field::image_bytes, 6},
    {frame_kind::end, frame_field::nonce, 7},

    {frame_kind::confirm, frame_field::flag, 2, 48, 1},
    {frame_kind::confirm, frame_field::ref_high, 3},
    {frame_kind::confirm, frame_field::ref_low, 4},
    {frame_kind::confirm, frame_field::version, 5},
    {frame_kind::confirm, frame_field::nonce, 6},
    {frame_kind::confirm, frame_field::digest, 7},
    {frame_kind::confirm, frame_field::recipient, 8},

    {frame_kind::confirmed, frame_field::ref_high, 3},
    {frame_kind::confirmed, frame_field::ref_low, 4},
    {frame_kind::confirmed, frame_field::version, 5},
    {frame_kind::confirmed, frame_field::nonce, 6},
    {frame_kind::confirmed, frame_field::status, 7, 0, 16},

    {frame_kind::cancel, frame_field::ref_high, 3},
    {frame_kind::cancel, frame_field::ref_low, 4},
    {frame_kind::cancel, frame_field::version, 5},
    {frame_kind::cancel, frame_field::nonce, 6},
    {frame_kind::cancel, frame_field::recipient, 7},
    {frame_kind::cancel, frame_field::reason, 8, 0, 32},
    {frame_kind::cancel, frame_field::status, 8, 32, 16},

    {frame_kind::refused, frame_field::ref_high, 3},
    {frame_kind::refused, frame_field::ref_low, 4},
    {frame_kind::refused, frame_field::version, 5},
    {frame_kind::refused, frame_field::offset, 6},
    {frame_kind::refused, frame_field::status, 7, 0, 16},
    {frame_kind::refused, frame_field::delay_ms, 7, 32, 32},

    {frame_kind::schema, frame_field::ref_high, 3},
    {frame_kind::schema, frame_field::ref_low, 4},
    {frame_kind::schema, frame_field::version, 5},
    {frame_kind::schema, frame_field::offset, 6},

    {frame_kind::description, frame_field::ref_high, 10},
    {frame_kind::description, frame_field::ref_low, 11},
    {frame_kind::description, frame_field::version, 12},
    {frame_kind::description, frame_field::fingerprint, 13},
    {frame_kind::description, frame_field::image_bytes, 14},
    {frame_kind::description, frame_field::data_start, 15},
    {frame_kind::description, frame_field::nonce, 16},
    {frame_kind::description, frame_field::length, 17, 0, 32},
    {frame_kind::description, frame_field::tensors, 17, 32, 32},
    {frame_kind::description, frame_field::window, 18, 0, 16},
    {frame_kind::description, frame_field::flag, 18, 16, 1},
    {frame_kind::description, frame_field::memory, 18, 17, 1},

    {frame_kind::schema_page, frame_field::ref_high, 10},
    {frame_kind::schema_page, frame_field::ref_low, 11},
    {frame_kind::schema_page, frame_field::version, 12},
    {frame_kind::schema_page, frame_field::offset, 13},
    {frame_kind::schema_page, frame_field::tensors, 14},

    {frame_kind::locate, frame_field::ref_high, 10},
    {frame_kind::locate, frame_field::ref_low, 11},
    {frame_kind::locate, frame_field::version, 12},

    {frame_kind::located, frame_field::ref_high, 10},
    {frame_kind::located, frame_field::ref_low, 11},
    {frame_kind::located, frame_field::version, 12},
    {frame_kind::located, frame_field::nonce, 13},
    {frame_kind::located, frame_field::digest, 14},
    {frame_kind::located, frame_field::fingerprint, 15},

    {frame_kind::application, frame_field::application, 10, 0, 32},
};

/// Where a field's member lies in a `frame`.
struct member_place {
  std::size_t at = 0, bytes = 0;
};
constexpr member_place place_of(frame_field field) noexcept {
  switch (field) {
    case frame_field::ref_high: return {offsetof(frame, ref) + offsetof(ref_id, high), 8};
    case frame_field::ref_low: return {offsetof(frame, ref) + offsetof(ref_id, low), 8};
    case frame_field::version: return {offsetof(frame, version), 8};
    case frame_field::nonce: return {offsetof(frame, nonce), 8};
    case frame_field::fingerprint: return {offsetof(frame, fingerprint), 8};
    case frame_field::digest: return {offsetof(frame, digest), 8};
    case frame_field::offset: return {offsetof(frame, offset), 8};
    case frame_field::image_bytes: return {offsetof(frame, image_bytes), 8};
    case frame_field::data_start: return {offsetof(frame, data_start), 8};
    case frame_field::tensors: return {offsetof(frame, tensors), 8};
    case frame_field::length: return {offsetof(frame, length), 4};
    case frame_field::delay_ms: return {offsetof(frame, delay_ms), 4};
    case frame_field::application: return {offsetof(frame, application), 4};
    case frame_field::window: return {offsetof(frame, window), 2};
    case frame_field::reason: return {offsetof(frame, reason), 4};
    case frame_field::recipient: return {offsetof(frame, recipient) + offsetof(recipient_id, value), 8};
    case frame_field::kind_of_digest: return {offsetof(frame, chunk_digest), 1};
    case frame_field::flag: return {offsetof(frame, flag), 1};
    case frame_field::memory: return {offsetof(frame, memory), 1};
    case frame_field::status: return {offsetof(frame, status), 2};
  }
  return {};
}
static_assert(std::is_standard_layout_v<frame> && sizeof(bool) == 1);

/// The fields of a kind as codes, in the order of the words; 0 ends them. A code is the place of the member in a
/// `frame`, shifted, plus the length of the field in bytes. Since a member lies at a multiple of its length, the lowest
/// bit of a code that is set is the length. Single bits are not among them.
inline constexpr bool members_are_aligned = offsetof(frame, recipient) % 8 == 0 && offsetof(frame, memory) < 126;
inline constexpr unsigned layout_shift = members_are_aligned ? 1 : 2;
using layout_code = std::conditional_t<members_are_aligned, std::uint8_t, std::uint16_t>;
/// Two bytes between two fields.
inline constexpr layout_code layout_hole = static_cast<layout_code>((126u << layout_shift) + 2);

constexpr layout_code layout_code_of(const layout_row& row) noexcept {
  const member_place m = place_of(row.field);
  const std::size_t bytes = row.bits / 8u;
  const std::size_t at = std::endian::native == std::endian::big ? m.at + m.bytes - bytes : m.at;  // where the low
                                                                                                   // bytes of the
                                                                                                   // member are
  return static_cast<layout_code>((at << layout_shift) + bytes);
}
constexpr std::size_t layout_length(std::size_t code) noexcept { return code & (~code + 1); }
constexpr std::size_t layout_member(std::size_t code) noexcept { return (code - layout_length(code)) >> layout_shift; }

/// body_size() for the kinds of a set alone.
template <frame_set Kinds>
[[gnu::always_inline]] constexpr struct_size layout_body(frame_kind kind) noexcept {
  if (Kinds.has(frame_kind::description) && kind == frame_kind::description) return body_size(frame_kind::description);
  if (Kinds.has(frame_kind::schema_page) && kind == frame_kind::schema_page) return body_size(frame_kind::schema_page);
  if (Kinds.has(frame_kind::locate) && kind == frame_kind::locate) return body_size(frame_kind::locate);
  if (Kinds.has(frame_kind::located) && kind == frame_kind::located) return body_size(frame_kind::located);
  if (Kinds.has(frame_kind::application) && kind == frame_kind::application) return body_size(frame_kind::application);
  return {};
}
/// The byte of a frame where the fields of a kind begin.
template <frame_set Kinds>
[[gnu::always_inline]] constexpr std::size_t layout_first(frame_kind kind) noexcept {
  return 8 * (layout_body<Kinds>(kind).data > 0 ? body_word : group_word);
}

/// Writes `size` bytes: what is before the fields of a frame that ends there, and zeros.
inline void put_head(std::byte* out, std::size_t size, frame_kind kind, std::uint32_t id) noexcept {
  std::memset(out, 0, size);
  out[4] = static_cast<std::byte>(size / 8 - 1);
  out[12] = std::byte{payload_prefix::frame_data_words};
  out[14] = std::byte{payload_prefix::frame_pointers};
  out[20] = static_cast<std::byte>(kind);
  if constexpr (std::endian::native == std::endian::little) std::memcpy(out + 16, &id, 4);
  else
    for (unsigned i = 0; i < 4; ++i) out[16 + i] = static_cast<std::byte>(id >> 8 * i & 0xff);
}

/// Whether every bit of a field's bytes has a meaning: those of a bit do not.
constexpr bool whole_bytes(const layout_row& row) noexcept { return row.bits >= 8; }

/// The codec of a set of kinds. What has no kind in the set takes neither code nor a place in the table.
template <frame_set Kinds>
class layouts {
  static_assert((Kinds.bits & ~all_frames.bits) == 0, "tensorpull: chunks and pieces are no kinds of a framing");
  static constexpr bool describes = Kinds.has(frame_kind::description);

 public:
  /// The kind that a frame claims; it has at least 24 bytes.
  static frame_kind kind_of(const std::byte* p) noexcept {
    return static_cast<frame_kind>(static_cast<std::uint16_t>(load_le16(p + 20)));
  }
  /// The bytes of a frame before its lists.
  static constexpr std::size_t fixed_bytes(frame_kind kind) noexcept {
    const struct_size body = layout_body<Kinds>(kind);
    return frame_head_bytes + 8u * (body.data + body.pointers);
  }

  /// Checks what every frame of its kind has: the segment table, the pointers, and that bits without a meaning are
  /// zero. A frame of a kind without lists is then one that our encoders write. errc{}: it is; otherwise as
  /// basic_layout_framing::decode() says.
  [[gnu::flatten]] static errc check(std::span<const std::byte> frame) noexcept {
    const std::byte* const p = frame.data();
    const std::size_t size = frame.size();
    if (size < 16 || size % 8 != 0) return errc::bad_frame;
    if (word32(p) != 0) return errc::unsupported_layout;  // several segments
    if (word32(p + 4) != size / 8 - 1) return errc::bad_frame;
    if (size < frame_head_bytes || word32(p + 8) != 0 || word32(p + 12) != payload_prefix::root_pointer >> 32)
      return errc::unsupported_layout;
    const frame_kind kind = kind_of(p);
    if (kind == frame_kind::chunk) return errc::unsupported_layout;
    if (!Kinds.has(kind)) return errc::unexpected_frame;
    const struct_size body = layout_body<Kinds>(kind);
    std::size_t first = 8 * group_word, fixed = frame_head_bytes;
    if (body.data > 0) first = fixed, fixed += 8u * body.data;
    const std::size_t data_end = fixed;
    if constexpr (has_pointers) fixed += 8u * body.pointers;
    if (has_pointers && body.pointers > 0 ? size < fixed : size != fixed) return errc::unsupported_layout;
    unsigned spare = load_le16(p + 22) > (kind == frame_kind::describe || kind == frame_kind::confirm ? 1u : 0u);
    for (std::size_t i = 24; i < data_end; ++i)
      if (i - first >= used_.of[static_cast<std::size_t>(kind)])
        spare |= static_cast<unsigned>(p[i]) ^ (i == 76 ? body.data : has_pointers && i == 78 ? body.pointers : 0u);
    if (kind == frame_kind::refused) spare |= static_cast<unsigned>(load_le16(p + 58));
    if (describes && kind == frame_kind::description) spare |= static_cast<unsigned>(p[146]) & ~3u;
    return spare == 0 ? errc{} : errc::unsupported_layout;
  }

  /// Writes the fixed bytes of a frame, as if it ended behind them. Requires a kind of the set.
  static void put(const frame& m, std::byte* out) noexcept {
    const frame_kind kind = m.kind;
    const struct_size body = layout_body<Kinds>(kind);
    put_head(out, fixed_bytes(kind), kind, m.id);
    out[22] = static_cast<std::byte>((kind == frame_kind::confirm && m.flag) ||
                                     (kind == frame_kind::describe && m.memory));
    out[76] = static_cast<std::byte>(body.data);
    if constexpr (has_pointers) out[78] = static_cast<std::byte>(body.pointers);
    if (describes && kind == frame_kind::description)
      out[146] = static_cast<std::byte>((m.flag ? 1 : 0) | (m.memory ? 2 : 0));
    copy(kind, reinterpret_cast<std::byte*>(const_cast<frame*>(&m)), out, false);  // which only reads `m`
  }

  /// Reads the fields of a frame that passed check().
  static void take(const std::byte* p, frame& m) noexcept {
    static_assert(std::is_trivially_copyable_v<frame>);
    std::memset(static_cast<void*>(&m), 0, sizeof m);  // as an assignment of frame{}, which takes four times the code
    m.id = word32(p + 16);
    const frame_kind kind = kind_of(p);
    m.kind = kind;
    (kind == frame_kind::confirm ? m.flag : m.memory) = static_cast<bool>(p[22]);
    if (describes && kind == frame_kind::description)
      m.flag = (p[146] & std::byte{1}) != std::byte{0}, m.memory = (p[146] & std::byte{2}) != std::byte{0};
    copy(kind, reinterpret_cast<std::byte*>(&m), const_cast<std::byte*>(p), true);  // which only reads `p`
    if (m.status > status::owner_lost) m.status = status::unsupported;
  }

 private:
  static constexpr bool has_pointers = Kinds.has(frame_kind::schema_page) || Kinds.has(frame_kind::locate) ||
                                       Kinds.has(frame_kind::located) || Kinds.has(frame_kind::application);
  static constexpr std::size_t kinds = static_cast<std::size_t>(std::bit_width(Kinds.bits));
  static constexpr std::size_t code_count = [] {
    std::size_t n = 1;
    for (std::size_t k = 0; k < kinds; ++k) {
      if (!Kinds.has(static_cast<frame_kind>(k))) continue;
      ++n;
      for (const layout_row& r : layout_rows)
        n += r.kind == static_cast<frame_kind>(k) && whole_bytes(r) ? (r.field == frame_field::delay_ms ? 2 : 1) : 0;
    }
    return n;
  }();
  /// Bytes from the first of a kind's fields to the end of the last. It is an object of its own, since a program that
  /// reads fields in place needs no codes.
  struct lengths {
    std::uint8_t of[kinds]{};
  };
  static constexpr lengths used_ = [] {
    lengths used;
    for (const layout_row& r : layout_rows) {
      const std::size_t end = 8u * r.word + (r.bit + r.bits + 7u) / 8, first = layout_first<Kinds>(r.kind);
      if (Kinds.has(r.kind) && end > first)
        used.of[static_cast<std::size_t>(r.kind)] = static_cast<std::uint8_t>(end - first);
    }
    return used;
  }();
  struct table {
    std::uint8_t first[kinds]{};  // of the codes of each kind
    layout_code codes[code_count]{};
  };
  static constexpr table table_ = [] {
    table t;
    std::size_t n = 1;  // the first code is the end of no fields
    for (std::size_t k = 0; k < kinds; ++k) {
      const auto kind = static_cast<frame_kind>(k);
      if (!Kinds.has(kind)) continue;
      t.first[k] = static_cast<std::uint8_t>(n);
      std::size_t next = layout_first<Kinds>(kind);
      for (const layout_row& r : layout_rows) {
        if (r.kind != kind || !whole_bytes(r)) continue;
        const std::size_t at = 8u * r.word + r.bit / 8u;
        if (at != next) t.codes[n++] = layout_hole;
        t.codes[n++] = layout_code_of(r);
        next = at + r.bits / 8u;
      }
      ++n;
    }
    return t;
  }();

  [[gnu::always_inline]] static std::uint32_t word32(const std::byte* p) noexcept {
    return static_cast<std::uint32_t>(load_le32(p));
  }
  /// Copies the fields between a `frame` and the bytes of one: one loop for both directions takes half the code.
  [[gnu::noinline]] static void copy(frame_kind kind, std::byte* members, std::byte* bytes, bool in) noexcept {
    bytes += layout_first<Kinds>(kind);
    const layout_code* code = table_.codes + table_.first[static_cast<std::size_t>(kind)];
    while (const std::size_t c = *code++) {
      const std::size_t n = layout_length(c);
      if (c != layout_hole) swap(in, members + layout_member(c), bytes, n);
      bytes += n;
    }
  }
  /// One field: its bytes on the wire are those of a little-endian machine.
  [[gnu::always_inline]] static void swap(bool in, std::byte* member, std::byte* bytes, std::size_t n) noexcept {
    if constexpr (std::endian::native == std::endian::little) {
      std::memcpy(in ? member : bytes, in ? bytes : member, n);
    } else {
      for (std::size_t i = 0; i < n; ++i) (in ? member[n - 1 - i] : bytes[i]) = in ? bytes[i] : member[n - 1 - i];
    }
  }
  static constexpr std::size_t in_member(std::size_t i, std::size_t n) noexcept {
    return std::endian::native == std::endian::big ? n - 1 - i : i;
  }
};

}  // namespace detail
}  // namespace tensorpull
