// How far a transfer is, in 48 bytes that a program can keep: enough to continue after the program or its machine was
// restarted.
#pragma once

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/core/ids.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/image/schema.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull {

/// `digest` is XXH3-64 over the image's first `offset` bytes. It proves that what lies in the destination is what had
/// landed; a cursor is not trusted beyond that. An empty one ({}) resumes nothing.
struct resume_cursor {
  static constexpr std::size_t encoded_bytes = 48;  ///< The bytes that encode() writes.

  ref_id ref{};  ///< The reference that was pulled.
  std::uint64_t fingerprint = 0;  ///< of the image's schema
  std::uint64_t version = 0;  ///< of the image
  std::uint64_t offset = 0;  ///< bytes of the image, its header included
  std::uint64_t digest = 0;  ///< XXH3-64 of these bytes

  friend constexpr bool operator==(const resume_cursor&, const resume_cursor&) noexcept = default;
  constexpr explicit operator bool() const noexcept { return offset != 0; }
};

/// Six words, little-endian.
constexpr std::array<std::byte, resume_cursor::encoded_bytes> encode(const resume_cursor& c) noexcept {
  std::array<std::byte, resume_cursor::encoded_bytes> out{};
  const std::uint64_t words[6] = {c.ref.high, c.ref.low, c.fingerprint, c.version, c.offset, c.digest};
  for (std::size_t i = 0; i < 6; ++i) store_le64(&out[8 * i], words[i]);
  return out;
}

/// bad_frame: another length, or a cursor that can belong to no transfer (no reference, no version, nothing landed).
constexpr result<resume_cursor> decode_cursor(std::span<const std::byte> bytes) noexcept {
  if (bytes.size() != resume_cursor::encoded_bytes) return failure(errc::bad_frame, bytes.size());
  std::uint64_t words[6] = {};
  for (std::size_t i = 0; i < 6; ++i) words[i] = load_le64(&bytes[8 * i]);
  const resume_cursor c{{words[0], words[1]}, words[2], words[3], words[4], words[5]};
  if (!c.ref || c.version == 0 || c.offset == 0) return failure(errc::bad_frame);
  return c;
}

}  // namespace tensorpull
