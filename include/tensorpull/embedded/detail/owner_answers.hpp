// The answers of a small machine's owner: where their fields are, how long they get, and a description in pieces.
#pragma once

#include <tensorpull/framing/detail/control_words.hpp>
#include <tensorpull/framing/detail/payload_prefix.hpp>
#include <tensorpull/framing/detail/piece_prefix.hpp>
#include <tensorpull/framing/frame.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tensorpull::detail {

/// A description that is longer than a datagram, on its way in pieces: which of them is next. A piece leaves only in
/// answer to a datagram.
class described_in_pieces {
 public:
  /// A description is asked for. A repeated request goes on with what was not taken, and begins again if that was
  /// answered twice without being heard.
  void ask(std::uint32_t id, std::uint64_t random) noexcept {
    if (sender_ == 0) sender_ = random | 1;
    if (under_way_ && id == id_) {
      if (++again_ > 2) {
        again_ = 0;
        taken_ = 0;
      }
      return;
    }
    under_way_ = true;
    id_ = id;
    again_ = 0;
    taken_ = 0;
    ++number_;
  }
  /// The published model has changed.
  void give_up() noexcept { under_way_ = false; }
  /// How much the other end has. True: the next piece may leave.
  bool taken(const piece& p, std::size_t total) noexcept {
    if (!under_way_ || p.kind != frame_kind::taken || p.sender != sender_) return false;
    if (p.number == number_ + 1) {
      under_way_ = false;
      return false;
    }
    if (p.number != number_ || p.offset <= taken_ || p.offset >= total || p.offset % 8 != 0) return false;
    taken_ = p.offset;
    again_ = 0;
    return true;
  }
  /// The request that the description answers.
  std::uint32_t id() const noexcept { return id_; }
  /// Writes the next piece of the frame, in at most `room` bytes, and gives its length.
  std::size_t write(std::span<const std::byte> whole, std::byte* out, std::size_t room) const noexcept {
    const std::size_t left = whole.size() - taken_, most = (room - piece_prefix::bytes) / 8 * 8,
                      n = left < most ? left : most;  // a frame is whole words
    const piece head{frame_kind::piece,
                     sender_,
                     number_,
                     taken_,
                     static_cast<std::uint32_t>(whole.size()),
                     static_cast<std::uint32_t>(n)};
    piece_prefix::write(head, std::span<std::byte, piece_prefix::bytes>(out, piece_prefix::bytes));
    std::memcpy(out + piece_prefix::bytes, whole.data() + taken_, n);
    return piece_prefix::bytes + n;
  }

 private:
  std::uint64_t sender_ = 0;
  std::uint32_t number_ = 0, id_ = 0, taken_ = 0;
  std::uint8_t again_ = 0;
  bool under_way_ = false;
};
struct described_at_once {};

/// Whether frames of a kind have two fields of their own in the two words behind the reference and the version.
template <frame_kind Kind, auto First, auto Second>
inline constexpr bool is_short_answer = byte_of<Kind, &frame::ref> == 24 && byte_of<Kind, &frame::version> == 40 &&
                                        byte_of<Kind, First> == 48 && byte_of<Kind, Second> == 56;
static_assert(is_short_answer<frame_kind::refused, &frame::offset, &frame::status> &&
              byte_of<frame_kind::refused, &frame::delay_ms> == 60);
static_assert(is_short_answer<frame_kind::confirmed, &frame::nonce, &frame::status> &&
              is_short_answer<frame_kind::end, &frame::image_bytes, &frame::nonce> &&
              is_short_answer<frame_kind::chunk, &frame::offset, &frame::nonce> &&
              byte_of<frame_kind::chunk, &frame::digest> == 64);

/// The shortest input whose digest a hash gives.
template <class H>
constexpr std::size_t least_bytes_of() noexcept {
  if constexpr (requires { H::least_bytes; }) return H::least_bytes;
  else return 0;
}

/// Bytes of the longest answer with chunks of at most `chunk` bytes: a description or a chunk.
constexpr std::size_t embedded_answer_bytes(std::size_t chunk) noexcept {
  const auto with_payload = static_cast<std::size_t>(payload_prefix::frame_bytes(chunk));
  return with_payload > short_frame_bytes ? with_payload : short_frame_bytes;
}

}  // namespace tensorpull::detail
