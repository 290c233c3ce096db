// The owner's progress events: what changed in the recipients' records since it was last told.
#pragma once

#include <tensorpull/image/schema.hpp>
#include <tensorpull/protocol/owner/detail/transaction_table.hpp>

namespace tensorpull {

class progress_feed {
 public:
  /// The next event that is due, and who is to hear it. False: none. Cost: one pass over the records for the last of a series.
  bool next(transaction_table& book, std::span<publication> slots, progress_event& out, callback<const progress_event&>& tell) noexcept {
    for (recipient_record& r : book.records.all()) {
      if (!r.who) continue;
      const publication& p = slots[r.slot];
      const transaction* const t = is_of(r, p, slots) ? book.find(p.transaction) : nullptr;
      if (t == nullptr || !t->options.progress || !due(r, *t, book.now_ms)) continue;
      fill(out, r, p, book.now_ms);
      tell = t->options.progress;
      return true;
    }
    return false;
  }

 private:
  static bool due(const recipient_record& r, const transaction& t, std::uint64_t now) noexcept {
    if (is_final(r.state)) return r.announced != r.state;
    if (r.state == recipient_state::unseen) return false;
    return r.announced == recipient_state::unseen || (r.bytes > r.announced_bytes && now - r.announced_ms >= t.options.progress_interval_ms);
  }

  void fill(progress_event& out, recipient_record& r, const publication& p, std::uint64_t now) noexcept {
    const bool first = r.announced == recipient_state::unseen && r.state != recipient_state::absent;
    out = {};
    out.sequence = ++sequence_;
    out.ref = r.ref;
    out.recipient = r.anonymous ? recipient_id{} : r.who;
    if (p.image.schema != nullptr) count_done(out, *p.image.schema, r.bytes);
    if (first) out.phase = progress_phase::started;
    else if (!is_final(r.state)) out.phase = progress_phase::active;
    else if (r.state == recipient_state::completed || r.state == recipient_state::completed_unverified) out.phase = progress_phase::completed;
    else if (r.state == recipient_state::cancelled) out.phase = progress_phase::aborted, out.code = errc::cancelled_by_peer;
    else out.phase = progress_phase::failed, out.code = r.state == recipient_state::failed ? errc::digest_mismatch : errc::timed_out;
    r.announced = first ? recipient_state::acquired : r.state;
    r.announced_bytes = r.bytes;
    r.announced_ms = now;
  }

  std::uint64_t sequence_ = 0;
};

}  // namespace tensorpull
