// What an owner answers about what is over, or was never there.
#pragma once

#include <tensorpull/protocol/owner/owner_memory.hpp>
#include <tensorpull/protocol/pending_reply.hpp>

namespace tensorpull::detail {

/// How long a peer is to wait that is told `busy`; limits_policy has bounded it.
template <class Limits>
inline constexpr auto busy_delay_ms = static_cast<std::uint32_t>(Limits::busy_delay.count());
/// Answers `busy`, which is always an answer.
template <class Limits>
void put_off(frame& answer) noexcept {
  answer.status = status::busy;
  answer.delay_ms = busy_delay_ms<Limits>;
}

/// The answer for what was published and is not any more. `p`: where it was; nullptr: nobody knows. True, as refuse().
inline bool refuse_over(pending_reply& out, const publication* p) noexcept {
  const bool known = p != nullptr && p->id == out.ref;
  out.length = known ? p->reason : 0;
  return refuse(out, known && p->unreadable ? status::unreadable : status::withdrawn);
}
/// The answer about a serve that is not known. `there`: what is under the reference now.
inline void refuse_serve(pending_reply& out, const publication* there) noexcept {
  if (there == nullptr) refuse(out, status::unknown_reference);
  else if (there->now == publication::state::withdrawn) refuse_over(out, there);
  else refuse(out, status::bad_request);
}
/// The answer about a serve that was over before its recipient had ended. If the same content was published again, it
/// is a serve that nobody knows: its recipient begins another.
inline void refuse_late(pending_reply& out, const publication* there) noexcept {
  if (there == nullptr || there->now != publication::state::published) refuse_over(out, there);
  else refuse(out, there->version == out.version ? status::bad_request : status::stale);
}
/// The answer to a confirmation from a recipient that has ended before.
inline status verdict_on(const recipient_record& r, const frame& m) noexcept {
  const std::uint64_t digest = r.subset ? r.subset_digest : r.version;
  switch (r.state) {
    case recipient_state::completed: return !m.flag || m.digest == digest ? status::ok : status::digest_mismatch;
    case recipient_state::completed_unverified: return status::ok;
    case recipient_state::failed: return status::digest_mismatch;
    default: return status::already_final;
  }
}

}  // namespace tensorpull::detail
