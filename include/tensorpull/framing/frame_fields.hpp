// Control frames read and written in place, without a `frame`: each field is at a constant place of its kind. For
// machines where the bytes of a program count; the frames are those of layout_framing.hpp.
#pragma once

#include <tensorpull/framing/detail/layouts.hpp>

namespace tensorpull {

/// Whether `bytes` are one whole frame that our encoders write, of a kind of the set, as far as its lists: errc{}, or
/// the name under which decode() of basic_layout_framing refuses it. The fields of a frame that passed may be read.
/// Reads nowhere but in `bytes`, whatever they are.
template <frame_set Kinds>
errc check_frame(std::span<const std::byte> bytes) noexcept {
  return detail::layouts<Kinds>::check(bytes);
}
/// The kind of a frame that passed check_frame(), or of any bytes that are at least 24.
inline frame_kind kind_of_frame(const std::byte* bytes) noexcept {
  return static_cast<frame_kind>(static_cast<std::uint16_t>(load_le16(bytes + 20)));
}
/// Its id, with the same requirement.
inline std::uint32_t id_of_frame(const std::byte* bytes) noexcept {
  return static_cast<std::uint32_t>(load_le32(bytes + 16));
}

/// The length in bytes of the frames of a kind, or of those of its bytes that are before its lists.
template <frame_kind Kind>
inline constexpr std::size_t frame_bytes = detail::layouts<frame_set::of(Kind)>::fixed_bytes(Kind);

namespace detail {
template <frame_kind Kind, frame_field Field>
consteval layout_row row_of() {
  for (const layout_row& r : layout_rows)
    if (r.kind == Kind && r.field == Field) return r;
  return {Kind, Field, 0, 0, 0};
}
}  // namespace detail

/// One field of a frame that passed check_frame() and has this kind. A status that is unknown here is given as it is. A
/// field that the kind does not have does not compile.
template <frame_kind Kind, frame_field Field>
[[gnu::always_inline]] constexpr std::uint64_t field_of_frame(const std::byte* bytes) noexcept {
  constexpr detail::layout_row row = detail::row_of<Kind, Field>();
  static_assert(row.bits > 0, "tensorpull: frames of this kind have no such field");
  const std::byte* const p = bytes + 8 * row.word + row.bit / 8;
  if constexpr (row.bits == 64) return load_le64(p);
  else if constexpr (row.bits == 32) return load_le32(p);
  else if constexpr (row.bits == 16) return load_le16(p);
  else return static_cast<std::uint64_t>(p[0]) >> row.bit % 8 & ((1u << row.bits) - 1);
}

/// Writes a frame of a kind whose fields are all 0, without lists, to the frame_bytes<Kind> bytes at `out`;
/// set_field_of_frame() then sets them.
template <frame_kind Kind>
void begin_frame(std::byte* out, std::uint32_t id) noexcept {
  constexpr detail::struct_size body = detail::body_size(Kind);
  static_assert(all_frames.has(Kind) && body.pointers == 0,
                "tensorpull: chunks, pieces and frames with lists are not written in place");
  detail::put_head(out, frame_bytes<Kind>, Kind, id);
  if constexpr (body.data > 0) out[76] = std::byte{body.data};
}
/// Sets a field of a frame that begin_frame() has begun, to the low bits of `value`.
template <frame_kind Kind, frame_field Field>
void set_field_of_frame(std::byte* out, std::uint64_t value) noexcept {
  constexpr detail::layout_row row = detail::row_of<Kind, Field>();
  static_assert(row.bits > 0, "tensorpull: frames of this kind have no such field");
  std::byte* const p = out + 8 * row.word + row.bit / 8;
  if constexpr (row.bits < 8) *p |= static_cast<std::byte>((value & ((1u << row.bits) - 1)) << row.bit % 8);
  else if constexpr (std::endian::native == std::endian::little) std::memcpy(p, &value, row.bits / 8);
  else
    for (unsigned i = 0; i < row.bits / 8u; ++i) p[i] = static_cast<std::byte>(value >> 8 * i & 0xff);
}

}  // namespace tensorpull
