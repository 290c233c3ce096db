// The constant layout of a frame that carries tensor bytes: ten words, then the payload, padded to a word.
// It is written and read without a Cap'n Proto library, so that a chunk costs neither a builder nor a traversal. The
// layout follows the Cap'n Proto encoding specification, https://capnproto.org/encoding.html; a test compares it with
// what the library writes.
#pragma once

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/core/limits.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/framing/detail/control_words.hpp>
#include <tensorpull/framing/frame.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull::detail {

struct payload_prefix {
  static constexpr std::size_t words = 10;
  static constexpr std::size_t bytes = 8 * words;
  static constexpr std::uint64_t frame_data_words = size_of_frame.data, frame_pointers = size_of_frame.pointers;
  /// words of the segment before the payload: root pointer, data section, list pointer
  static constexpr std::uint64_t fixed_words = 1 + frame_data_words + frame_pointers;
  /// struct pointer with offset 0
  static constexpr std::uint64_t root_pointer = frame_data_words << 32 | frame_pointers << 48;
  static constexpr std::uint64_t chunk_tag = static_cast<std::uint64_t>(frame_kind::chunk);

  static constexpr std::uint64_t padded(std::uint64_t payload) noexcept { return (payload + 7) & ~std::uint64_t{7}; }
  /// the whole frame: prefix, payload, padding
  static constexpr std::uint64_t frame_bytes(std::uint64_t payload) noexcept { return bytes + padded(payload); }

  /// Writes the prefix of the chunk `m`, whose length is at most max_payload_bytes.
  static constexpr void write(const frame& m, std::span<std::byte, bytes> out) noexcept {
    const std::uint64_t payload_words = padded(m.length) / 8;
    std::array<std::uint64_t, words> w{};
    w[0] = (fixed_words + payload_words) << 32;  // segment table: one segment
    w[1] = root_pointer;
    const field_writer to{w.data() + 2};
    to(m.id, place_of_id);
    to(frame_kind::chunk, place_of_kind);
    visit_fields(frame_kind::chunk, m, to);
    w[9] = 1u | std::uint64_t{2} << 32 | std::uint64_t{m.length} << 35;  // a list of bytes, right behind this word
    for (std::size_t i = 0; i < words; ++i) store_le64(out.data() + 8 * i, w[i]);
  }

  /// Whether the first 24 bytes of a frame are those of a chunk in this layout; read() then checks the rest of the
  /// prefix.
  static constexpr bool announces_payload(std::span<const std::byte> head) noexcept {
    return head.size() >= 24 && (load_le64(head.data()) & 0xffffffffu) == 0 &&
           load_le64(head.data() + 8) == root_pointer && ((load_le64(head.data() + 16) >> 32) & 0xffff) == chunk_tag;
  }

  /// Reads the ten words and checks those that announces_payload() did not. unsupported_layout: the payload does not
  /// follow right after the prefix. too_large: it is longer than max_payload_bytes. bad_frame: segment size and payload
  /// length disagree.
  static constexpr result<frame> read(std::span<const std::byte, bytes> in) noexcept {
    const auto word = [&](std::size_t i) { return load_le64(in.data() + 8 * i); };
    const std::uint64_t list = word(9);
    if ((list & 0xffffffffu) != 1 || ((list >> 32) & 7) != 2) return failure(errc::unsupported_layout, 72);
    frame m;
    m.kind = frame_kind::chunk;
    m.length = static_cast<std::uint32_t>(list >> 35);
    if (m.length > max_payload_bytes) return failure(errc::too_large, m.length);
    if (word(0) >> 32 != fixed_words + padded(m.length) / 8) return failure(errc::bad_frame, 4);
    const std::array<std::uint64_t, frame_data_words> w{word(2), word(3), word(4), word(5), word(6), word(7), word(8)};
    take_head(w[0], m);
    visit_fields(frame_kind::chunk, m, field_reader{w.data()});
    return m;
  }
};

}  // namespace tensorpull::detail
