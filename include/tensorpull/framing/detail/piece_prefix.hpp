// The constant layout of a piece, a part of a frame that does not fit one datagram: ten words, then the payload, padded
// to a word, like that of a chunk (payload_prefix.hpp). `taken` has the same words and an empty payload. A test
// compares them with what the library writes.
#pragma once

#include <tensorpull/framing/detail/payload_prefix.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace tensorpull::detail {

/// A piece, or how much has arrived of a frame in pieces.
struct piece {
  frame_kind kind = frame_kind::nothing;  ///< piece or taken
  std::uint64_t sender = 0;  ///< as in framing/protocol.capnp
  std::uint32_t number = 0;  ///< as in framing/protocol.capnp
  std::uint32_t offset = 0;  ///< as in framing/protocol.capnp
  std::uint32_t total = 0;  ///< as in framing/protocol.capnp
  std::uint32_t length = 0;  ///< bytes of payload
};

/// The table of its fields, as that of the fields of frames (control_words.hpp).
template <class Piece, class At>
  requires std::same_as<std::remove_const_t<Piece>, piece>
[[gnu::always_inline]] constexpr void visit_fields(frame_kind, Piece& p, At at) noexcept {
  at(p.sender, {1});
  at(p.number, {2, 0, 32});
  at(p.offset, {2, 32, 32});
  at(p.total, {3, 0, 32});
}

struct piece_prefix {
  static constexpr std::size_t bytes = payload_prefix::bytes;

  static constexpr void write(const piece& p, std::span<std::byte, bytes> out) noexcept {
    const std::uint64_t payload_words = payload_prefix::padded(p.length) / 8;
    std::array<std::uint64_t, payload_prefix::words> w{};
    w[0] = (payload_prefix::fixed_words + payload_words) << 32;
    w[1] = payload_prefix::root_pointer;
    w[2] = static_cast<std::uint64_t>(p.kind) << place_of_kind.bit;
    visit_fields(p.kind, p, field_writer{w.data() + 2});
    w[9] = payload_pointer(p);
    for (std::size_t i = 0; i < payload_prefix::words; ++i) store_le64(out.data() + 8 * i, w[i]);
  }

  /// Whether a frame begins like one of these; it has at least 24 bytes.
  static constexpr bool announced(std::span<const std::byte> head) noexcept {
    const std::uint64_t kind = load_le64(head.data() + 16) >> 32 & 0xffff;
    return (load_le64(head.data()) & 0xffffffffu) == 0 && load_le64(head.data() + 8) == payload_prefix::root_pointer &&
           (kind == static_cast<std::uint64_t>(frame_kind::piece) ||
            kind == static_cast<std::uint64_t>(frame_kind::taken));
  }
  /// Reads the ten words of one that is announced(). bad_frame: it has another layout than this one.
  static constexpr result<piece> read(std::span<const std::byte, bytes> in) noexcept {
    const auto word = [&](std::size_t i) { return load_le64(in.data() + 8 * i); };
    const std::array<std::uint64_t, 4> w{word(2), word(3), word(4), word(5)};
    piece p;
    p.kind = static_cast<frame_kind>(w[0] >> place_of_kind.bit & 0xffff);
    visit_fields(p.kind, p, field_reader{w.data()});
    p.length = static_cast<std::uint32_t>(word(9) >> 35);
    if (word(9) != payload_pointer(p) ||
        word(0) >> 32 != payload_prefix::fixed_words + payload_prefix::padded(p.length) / 8)
      return failure(errc::bad_frame, 4);
    if (p.kind == frame_kind::piece && (p.length > p.total || p.offset > p.total - p.length))
      return failure(errc::bad_frame, p.offset);
    return p;
  }

 private:
  static constexpr std::uint64_t payload_pointer(const piece& p) noexcept {
    return p.kind == frame_kind::piece ? 1u | std::uint64_t{2} << 32 | std::uint64_t{p.length} << 35 : 0;
  }
};

}  // namespace tensorpull::detail
