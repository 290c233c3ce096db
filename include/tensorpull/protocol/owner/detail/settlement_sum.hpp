// How a transaction ended: the sum over its references, and the verdict.
#pragma once

#include <tensorpull/protocol/owner/owner_memory.hpp>

namespace tensorpull {

struct settlement_sum {
  recipient_table& records;
  std::span<publication> slots;

  void fill(transaction& t, std::uint64_t now_ms) const noexcept {
    publication_status& sum = t.outcome.counts;
    const publication* first = nullptr;
    for (const publication& p : slots) {
      if (!p.is_part_of(t.outcome.id)) continue;
      if (first == nullptr) sum = p.counts, first = &p;
      else sum.bytes_sent += p.counts.bytes_sent, sum.lost += p.counts.lost;
    }
    if (t.outcome.references > 1 && first != nullptr) worst_of_each(t, *first);
    if (!t.named && t.outcome.expected > sum.final()) sum.absent += t.outcome.expected - sum.final();
    t.outcome.lasted_ms = now_ms - t.started_ms;
    const std::uint32_t confirmed = sum.completed + sum.completed_unverified;
    const bool known = t.outcome.expected != 0;
    t.outcome.verdict = known && confirmed >= t.outcome.expected ? (sum.completed >= t.outcome.expected ? verdict::completed : verdict::completed_unverified)
                        : t.options.least != 0 && confirmed >= t.options.least ? verdict::quorum
                        : t.by_hand ? verdict::withdrawn : known ? verdict::failed : verdict::uncertified;
  }

 private:
  /// Over several references a recipient counts as what it did worst.
  void worst_of_each(transaction& t, const publication& first) const noexcept {
    publication_status& sum = t.outcome.counts;
    sum.completed = sum.completed_unverified = sum.failed = sum.cancelled = sum.vanished = sum.absent = sum.unfinished = 0;
    for (const recipient_record& r : records.all()) {
      if (!r.who || !is_of(r, first, slots) || (t.named && !r.expected)) continue;
      recipient_state worst = r.state;
      for (const publication& p : slots) {
        if (!p.is_part_of(t.outcome.id) || &p == &first) continue;
        const recipient_record* const other = records.find(p.id, r.who);
        const auto there = other != nullptr && is_of(*other, p, slots) ? other->state : recipient_state::absent;
        if (there > worst) worst = there;
      }
      ++sum.of(worst);
    }
  }
};

}  // namespace tensorpull
