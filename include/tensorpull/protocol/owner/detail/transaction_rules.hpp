// Rules that need a transaction and one record of it alone: its verdict, and the progress that is due.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/framing/frame.hpp>
#include <tensorpull/protocol/owner/owner_memory.hpp>
#include <tensorpull/protocol/progress.hpp>
#include <tensorpull/std/algorithm.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull::detail {

/// The index of the first name that is a repetition; names.size() if there is none. A name given twice would be waited
/// for twice and end once.
constexpr std::size_t repeated_name(std::span<const recipient_id> names) noexcept {
  for (std::size_t i = 0; i < names.size(); ++i)
    for (std::size_t k = 0; k < i; ++k)
      if (names[i] == names[k]) return i;
  return names.size();
}
/// How many recipients are expected; 0: their number is not known. invalid_argument: the name at that index is there
/// twice, or a number that the error names differs from that of the names or is above it.
inline result<std::uint32_t> expected_of(const transaction_options& options) noexcept {
  if (const std::size_t i = repeated_name(options.named); i != options.named.size())
    return failure(errc::invalid_argument, i);
  if (!options.named.empty() && options.recipients != 0 && options.recipients != options.named.size())
    return failure(errc::invalid_argument, options.recipients, {"recipients"});
  const std::size_t expected = options.named.empty() ? options.recipients : options.named.size();
  if (expected != 0 && options.least > expected) return failure(errc::invalid_argument, options.least, {"least"});
  return static_cast<std::uint32_t>(expected);
}
constexpr bool has_asked(recipient_state s) noexcept {
  return s != recipient_state::unseen && s != recipient_state::absent;
}
inline bool is_under_way(const transaction& t) noexcept {
  return t.now == transaction::state::open || t.now == transaction::state::sealed;
}
/// How many recipients have to end, or to confirm, for a transaction to end well.
inline std::uint64_t awaited(const transaction& t) noexcept {
  return std::max<std::uint64_t>(t.outcome.expected, t.options.least);
}
/// Whether ends are counted towards a number. Then a recipient that has ended has to be remembered: if it were
/// forgotten and returned, it would count twice.
constexpr bool counts_ends(const transaction& t) noexcept { return t.outcome.expected != 0 || t.options.least != 0; }
/// Whether a transaction that is under way would forget without this record how one of its recipients has ended. No
/// other record tells it, even if its publication has ended before.
inline bool tells_an_end(const recipient_record& r, const transaction& t) noexcept {
  return is_final(r.state) && r.state != recipient_state::absent && r.state != recipient_state::unfinished &&
         is_under_way(t) && (r.expected || !t.named);
}
/// The bytes that a recipient has to take within its budget.
inline std::uint64_t least_bytes(const transaction_budgets& b) noexcept {
  const std::uint64_t seconds = static_cast<std::uint64_t>(b.recipient_idle.count()) / 1000,
                      rate = b.least_bytes_per_second;
  return rate != 0 && seconds > ~std::uint64_t{0} / rate ? ~std::uint64_t{0} : seconds * rate;
}
/// The verdict over its counts.
inline verdict verdict_of(const transaction& t) noexcept {
  const publication_status& sum = t.outcome.counts;
  const std::uint32_t confirmed = sum.completed + sum.completed_unverified;
  const bool known = t.outcome.expected != 0;
  if (known && sum.completed >= t.outcome.expected) return verdict::completed;
  if (known && confirmed >= t.outcome.expected) return verdict::completed_unverified;
  if (t.options.least != 0 && confirmed >= t.options.least) return verdict::quorum;
  if (t.lost) return verdict::owner_lost;
  if (t.by_hand) return verdict::withdrawn;
  return known ? verdict::failed : verdict::uncertified;
}

/// Why a publication is over.
inline status status_over(const publication& p) noexcept {
  if (p.unreadable) return status::unreadable;
  return p.ended ? status::ended : status::withdrawn;
}
/// Whether events of a transaction are told now.
inline bool is_told_of(const transaction& t) noexcept {
  return t.options.progress && t.now != transaction::state::told && t.now != transaction::state::delivered;
}
/// Whether an event is due about a recipient of a transaction.
inline bool is_due(const recipient_record& r, const transaction& t, std::chrono::milliseconds now) noexcept {
  if (!is_told_of(t)) return false;
  if (is_final(r.state)) return r.announced != r.state;
  if (r.state == recipient_state::unseen) return false;
  return r.announced == recipient_state::unseen || (r.moved && now - r.announced_at >= t.options.progress_interval);
}

/// The event about a recipient that could not take a publication; takes note that it is told.
inline progress_event declined_event(publication& p, std::uint64_t sequence) noexcept {
  progress_event out;
  out.phase = progress_phase::failed;
  out.sequence = sequence;
  out.ref = p.id;
  out.recipient = p.declined_by;
  out.bytes_total = p.image_bytes;
  out.tensors_total = p.tensors;
  out.code = p.declined;
  p.declined = {};
  return out;
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
