// The constant layout of a piece, a part of a frame that does not fit one datagram: ten words, then the payload, padded
// to a word, like that of a chunk (payload_prefix.hpp). `taken` has the same words and an empty payload. A test
// compares them with what the library writes.
#pragma once

#include <tensorpull/framing/detail/payload_prefix.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull::detail {

/// A piece, or how much has come of a frame in pieces.
struct piece {
  frame_kind kind = frame_kind::nothing;  ///< piece or taken
  std::uint64_t sender = 0;  ///< as in framing/protocol.capnp
  std::uint32_t number = 0;  ///< as in framing/protocol.capnp
  std::uint32_t offset = 0;  ///< as in framing/protocol.capnp
  std::uint32_t total = 0;  ///< as in framing/protocol.capnp
  std::uint32_t length = 0;  ///< bytes of payload
};

struct piece_prefix {
  static constexpr std::size_t bytes = payload_prefix::bytes;

  static constexpr void write(const piece& p, std::span<std::byte, bytes> out) noexcept {
    const std::uint64_t payload_words = payload_prefix::padded(p.length) / 8;
    const std::array<std::uint64_t, payload_prefix::words> w{
        (payload_prefix::fixed_words + payload_words) << 32,
        payload_prefix::root_pointer,
        static_cast<std::uint64_t>(p.kind) << 32,
        p.sender,
        p.number | std::uint64_t{p.offset} << 32,
        p.total,
        0,
        0,
        0,
        p.kind == frame_kind::piece ? 1u | std::uint64_t{2} << 32 | std::uint64_t{p.length} << 35 : 0,
    };
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
    piece p;
    p.kind = static_cast<frame_kind>(word(2) >> 32 & 0xffff);
    p.sender = word(3);
    p.number = static_cast<std::uint32_t>(word(4));
    p.offset = static_cast<std::uint32_t>(word(4) >> 32);
    p.total = static_cast<std::uint32_t>(word(5));
    p.length = static_cast<std::uint32_t>(word(9) >> 35);
    const std::uint64_t list = p.kind == frame_kind::piece ? 1u | std::uint64_t{2} << 32 | std::uint64_t{p.length} << 35
                                                           : 0;
    if (word(9) != list || word(0) >> 32 != payload_prefix::fixed_words + payload_prefix::padded(p.length) / 8)
      return failure(errc::bad_frame, 4);
    if (p.kind == frame_kind::piece && (p.length > p.total || p.offset > p.total - p.length))
      return failure(errc::bad_frame, p.offset);
    return p;
  }
};

}  // namespace tensorpull::detail
