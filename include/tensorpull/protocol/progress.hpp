// Progress of a transfer, as owners and recipients report it.
#pragma once

#include <tensorpull/core/error.hpp>
#include <tensorpull/core/ids.hpp>
#include <tensorpull/image/schema.hpp>

#include <cstdint>
#include <string_view>

namespace tensorpull {

/// The kinds of events.
enum class progress_phase : std::uint8_t {
  started,    ///< the first request, or the first bytes
  active,     ///< bytes have moved
  completed,  ///< the transfer is confirmed, with or without a digest
  failed,     ///< it ended with an error
  aborted,    ///< the recipient gave up
};

/// The enumerator's name.
constexpr std::string_view to_string(progress_phase p) noexcept {
  constexpr std::string_view names[]{"started", "active", "completed", "failed", "aborted"};
  return detail::name_among<progress_phase::aborted>(names, p);
}

/// One event of one recipient of one reference. In the events of one transfer `bytes_done` never decreases, `started`
/// is told once, and `active` at most once in each interval.
struct progress_event {
  std::uint64_t sequence = 0;  ///< grows by one with each event of its source
  progress_phase phase = progress_phase::started;  ///< what is reported
  ref_id ref{};                ///< of which reference
  recipient_id recipient{};    ///< none: anonymous
  std::uint64_t bytes_done = 0;   ///< of the image: landed at a recipient; handed to the transport by an owner
  std::uint64_t bytes_total = 0;  ///< of the image, or of the subset that a recipient pulls
  std::uint64_t tensors_done = 0;   ///< tensors of which all bytes are done
  std::uint64_t tensors_total = 0;  ///< tensors of the image, or those that are pulled by name
  /// failed, aborted: why; otherwise 0. An owner's: cancelled_by_peer, digest_mismatch, timed_out (a budget), withdrawn
  /// or unreadable (what was published had ended before its recipient).
  errc code{};
};

/// How many tensors of an image with this schema are done, if its first `bytes` bytes are.
constexpr std::uint64_t tensors_in(const image_schema& schema, std::uint64_t bytes) noexcept {
  return bytes < schema.header_bytes ? 0 : tensor_at(schema, bytes - schema.header_bytes);
}

/// Fills in how much of an image with this schema is done, if its first `bytes` bytes are.
constexpr void count_done(progress_event& e, const image_schema& schema, std::uint64_t bytes) noexcept {
  e.bytes_total = schema.image_bytes;
  e.bytes_done = bytes < schema.image_bytes ? bytes : schema.image_bytes;
  e.tensors_total = schema.tensor_count;
  e.tensors_done = tensors_in(schema, e.bytes_done);
}

}  // namespace tensorpull
