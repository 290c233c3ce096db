// Which progress of a recipient is to be told, and as which event.
#pragma once

#include <tensorpull/protocol/owner/owner_memory.hpp>
#include <tensorpull/protocol/progress.hpp>
#include <tensorpull/std/algorithm.hpp>

#include <cstdint>

namespace tensorpull::detail {

/// Whether an event is due about a recipient of a transaction.
inline bool is_due(const recipient_record& r, const transaction& t, std::chrono::milliseconds now) noexcept {
  if (!t.options.progress || t.now == transaction::state::told || t.now == transaction::state::delivered) return false;
  if (is_final(r.state)) return r.announced != r.state;
  if (r.state == recipient_state::unseen) return false;
  return r.announced == recipient_state::unseen || (r.moved && now - r.announced_at >= t.options.progress_interval);
}

/// The event that is due, and takes note that it is told.
inline progress_event take_event(recipient_record& r, std::uint64_t sequence, std::chrono::milliseconds now) noexcept {
  const bool first = r.announced == recipient_state::unseen && r.state != recipient_state::absent;
  progress_event out;
  out.sequence = sequence;
  out.ref = r.ref;
  out.recipient = r.anonymous ? recipient_id{} : r.who;
  out.bytes_total = r.image_bytes;
  out.bytes_done = std::min(r.bytes, r.image_bytes);
  out.tensors_total = r.tensors;
  out.tensors_done = r.tensors_done;
  if (first) {
    out.phase = progress_phase::started;
  } else if (!is_final(r.state)) {
    out.phase = progress_phase::active;
  } else if (has_completed(r.state)) {
    out.phase = progress_phase::completed;
  } else if (r.state == recipient_state::cancelled) {
    out.phase = progress_phase::aborted;
    out.code = errc::cancelled_by_peer;
  } else {
    out.phase = progress_phase::failed;
    out.code = r.state == recipient_state::failed ? errc::digest_mismatch : r.ended_by;
  }
  r.announced = first ? recipient_state::acquired : r.state;
  r.moved = false;
  r.announced_at = now;
  return out;
}

}  // namespace tensorpull::detail
