// The tables of an owner, and how a row of one leads to a row of another.
#pragma once

#include <tensorpull/protocol/owner/detail/publication_table.hpp>
#include <tensorpull/protocol/owner/detail/recipient_table.hpp>

#include <span>

namespace tensorpull::detail {

/// What is published, to whom, and in which transactions. A row that is named by a number of its own is only found as
/// long as it is what it was when it was named. Not thread-safe: the owner has the lock.
struct owner_tables {
  explicit owner_tables(const owner_memory& m) noexcept
      : publications(m.slots), records(m.records, m.buckets), transactions(m.transactions) {}

  publication_table publications;
  recipient_table records;
  std::span<transaction> transactions;
  std::chrono::milliseconds now{};

  transaction* find(transaction_id id) const noexcept {
    if (id.index >= transactions.size() || !id || transactions[id.index].outcome.id != id) return nullptr;
    return &transactions[id.index];
  }
  /// The publication that a record belongs to, if that is still published as it was.
  publication* publication_of(const recipient_record& r) const noexcept {
    if (!r.who) return nullptr;
    publication& p = publications.at(r.slot);
    return p.generation == r.generation && p.now == publication::state::published ? &p : nullptr;
  }
  /// What is known of a recipient of `p`; nullptr: nothing.
  recipient_record* record_of(const publication& p, recipient_id who) noexcept {
    recipient_record* r = records.find(p.id, who);
    while (r != nullptr && !is_of(*r, p)) r = records.before(*r);
    return r;
  }
  /// The transaction that a record is, or was last, a part of, although another publication may have taken the place of
  /// its own. nullptr: it is not remembered any more.
  transaction* transaction_of(const recipient_record& r) const noexcept {
    return r.who ? find(r.transaction) : nullptr;
  }
  /// Whether a record is of what is, or was last, published in a slot: not of an earlier publication under the same
  /// reference.
  bool is_of(const recipient_record& r, const publication& p) const noexcept {
    const bool over = p.now == publication::state::withdrawn;
    return r.ref == p.id && &publications.at(r.slot) == &p &&
           (r.generation == p.generation || (over && r.generation + 1 == p.generation));
  }
  /// How many references of a transaction are published now.
  std::size_t published_of(const transaction& t) const noexcept {
    std::size_t n = 0;
    for (const publication& p : publications.all())
      n += p.is_part_of(t.outcome.id) && p.now == publication::state::published;
    return n;
  }
  /// Whether an image of a transaction is read at this moment.
  bool is_read(const transaction& t) const noexcept {
    for (const publication& p : publications.all())
      if (p.is_part_of(t.outcome.id) && p.pins != 0) return true;
    return false;
  }
};

}  // namespace tensorpull::detail
