// Which field of a frame is in which data word: the data sections of protocol.capnp, kind by kind. A test compares them
// with the accessors that the `capnp` tool generates from the schema.
//
// If a kind is a group in the schema, its fields are in the Frame's own words after the first. If it is a struct, they
// are in that struct's words. Most kinds begin with the reference and the version either way, so both are one array of
// words here.
#pragma once

#include <tensorpull/framing/frame.hpp>

#include <cstddef>
#include <cstdint>

namespace tensorpull::detail {

/// The size of a struct in protocol.capnp: words of data, and pointers after them.
struct struct_size {
  std::uint16_t data = 0;
  std::uint16_t pointers = 0;
};
inline constexpr struct_size size_of_frame{7, 1}, size_of_tensor{0, 3}, size_of_range{2, 0}, size_of_reference{4, 0};

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

/// Words of the longest data section, without the frame's first word.
inline constexpr std::size_t most_body_words = 9;

/// Bytes of the longest frame without lists, texts and bodies, a description: a segment table and a root pointer of a
/// word each, the frame, its body.
inline constexpr std::size_t short_frame_bytes = 8 *
                                                 (2 + size_of_frame.data + size_of_frame.pointers + most_body_words);

/// The Frame's first word: the request's id, the kind, `verified` of a confirmation, and `memory` of a request for a
/// description.
constexpr std::uint64_t first_word(const frame& m) noexcept {
  const std::uint64_t tag = m.kind == frame_kind::chunk ? 0 : static_cast<std::uint64_t>(m.kind);
  return m.id | tag << 32 |
         std::uint64_t{(m.kind == frame_kind::confirm && m.flag) || (m.kind == frame_kind::describe && m.memory)} << 48;
}
constexpr void take_first_word(std::uint64_t w, frame& m) noexcept {
  m.id = static_cast<std::uint32_t>(w);
  m.kind = static_cast<frame_kind>(static_cast<std::uint16_t>(w >> 32));
  m.flag = m.kind == frame_kind::confirm && (w >> 48 & 1) != 0;
  m.memory = m.kind == frame_kind::describe && (w >> 48 & 1) != 0;
}

/// Writes the data words of any kind but chunk. `w`: most_body_words words, all zero.
constexpr void put_words(const frame& m, std::uint64_t* w) noexcept {
  if (m.kind == frame_kind::nothing || m.kind == frame_kind::chunk) return;
  if (m.kind == frame_kind::application) {
    w[0] = m.application;
    return;
  }
  w[0] = m.ref.high;
  w[1] = m.ref.low;
  if (m.kind == frame_kind::describe) {
    w[2] = m.recipient.value;
    return;
  }
  w[2] = m.version;
  const std::uint64_t flag = m.flag ? 1 : 0;
  switch (m.kind) {
    case frame_kind::pull:
      w[3] = m.offset;
      w[4] = m.fingerprint;
      w[5] = m.length | std::uint64_t{static_cast<std::uint8_t>(m.chunk_digest)} << 32;
      break;
    case frame_kind::end:
      w[3] = m.image_bytes;
      w[4] = m.nonce;
      break;
    case frame_kind::confirm:
      w[3] = m.nonce;
      w[4] = m.digest;
      w[5] = m.recipient.value;
      break;
    case frame_kind::confirmed:
      w[3] = m.nonce;
      w[4] = static_cast<std::uint16_t>(m.status);
      break;
    case frame_kind::cancel:
      w[3] = m.nonce;
      w[4] = m.recipient.value;
      w[5] = m.reason | std::uint64_t{static_cast<std::uint16_t>(m.status)} << 32;
      break;
    case frame_kind::refused:
      w[3] = m.offset;
      w[4] = static_cast<std::uint16_t>(m.status) | std::uint64_t{m.delay_ms} << 32;
      break;
    case frame_kind::schema: w[3] = m.offset; break;
    case frame_kind::description:
      w[3] = m.fingerprint;
      w[4] = m.image_bytes;
      w[5] = m.data_start;
      w[6] = m.nonce;
      w[7] = m.length | m.tensors << 32;
      w[8] = m.window | flag << 16 | std::uint64_t{m.memory} << 17;
      break;
    case frame_kind::schema_page:
      w[3] = m.offset;
      w[4] = m.tensors;
      break;
    case frame_kind::located:
      w[3] = m.nonce;
      w[4] = m.digest;
      w[5] = m.fingerprint;
      break;
    default: break;
  }
}

constexpr status to_status(std::uint64_t word) noexcept {
  const auto s = static_cast<status>(static_cast<std::uint16_t>(word));
  return s <= status::owner_lost ? s : status::unsupported;  // a newer peer's status that is not known here is still a
                                                             // refusal
}

/// The reverse of put_words(), for the kind that `m` has already. Words that an older peer did not send must be zero.
constexpr void take_words(const std::uint64_t* w, frame& m) noexcept {
  if (m.kind == frame_kind::nothing) return;
  if (m.kind == frame_kind::application) {
    m.application = static_cast<std::uint32_t>(w[0]);
    return;
  }
  m.ref = {w[0], w[1]};
  if (m.kind == frame_kind::describe) {
    m.recipient = {w[2]};
    return;
  }
  m.version = w[2];
  switch (m.kind) {
    case frame_kind::pull:
      m.offset = w[3];
      m.fingerprint = w[4];
      m.length = static_cast<std::uint32_t>(w[5]);
      m.chunk_digest = static_cast<digest_kind>(static_cast<std::uint8_t>(w[5] >> 32));
      break;
    case frame_kind::end:
      m.image_bytes = w[3];
      m.nonce = w[4];
      break;
    case frame_kind::confirm:
      m.nonce = w[3];
      m.digest = w[4];
      m.recipient = {w[5]};
      break;
    case frame_kind::confirmed:
      m.nonce = w[3];
      m.status = to_status(w[4]);
      break;
    case frame_kind::cancel:
      m.nonce = w[3];
      m.recipient = {w[4]};
      m.reason = static_cast<std::uint32_t>(w[5]);
      m.status = to_status(w[5] >> 32);
      break;
    case frame_kind::refused:
      m.offset = w[3];
      m.status = to_status(w[4]);
      m.delay_ms = static_cast<std::uint32_t>(w[4] >> 32);
      break;
    case frame_kind::schema: m.offset = w[3]; break;
    case frame_kind::description:
      m.fingerprint = w[3];
      m.image_bytes = w[4];
      m.data_start = w[5];
      m.nonce = w[6];
      m.length = static_cast<std::uint32_t>(w[7]);
      m.tensors = w[7] >> 32;
      m.window = static_cast<std::uint16_t>(w[8]);
      m.flag = (w[8] >> 16 & 1) != 0;
      m.memory = (w[8] >> 17 & 1) != 0;
      break;
    case frame_kind::schema_page:
      m.offset = w[3];
      m.tensors = w[4];
      break;
    case frame_kind::located:
      m.nonce = w[3];
      m.digest = w[4];
      m.fingerprint = w[5];
      break;
    default: break;
  }
}

}  // namespace tensorpull::detail
