// The memory of an owner about its recipients: one record for each recipient of each version of a reference, found by
// a hash table.
#pragma once

#include <tensorpull/protocol/owner/owner_memory.hpp>
#include <tensorpull/protocol/pending_reply.hpp>

namespace tensorpull::detail {

/// Records in memory that is handed in, found by reference and recipient in constant time on average. Not thread-safe:
/// the owner has the lock.
class recipient_table {
 public:
  /// Why a record is kept.
  enum worth {
    gone,  ///< its transaction is over
    current,  ///< its transaction is under way
    counted_on,  ///< it counts towards a number of recipients, and must not count twice, or its end is not told yet
  };

  /// `buckets`: one word for each record is a good number; zeroed here.
  recipient_table(std::span<recipient_record> records, std::span<std::uint32_t> buckets) noexcept
      : records_(records), buckets_(buckets) {
    for (auto& b : buckets_) b = 0;
    for (std::size_t i = records_.size(); i > 0; --i) set_free(records_[i - 1]);
  }

  /// The last record that was made for a recipient of a reference; nullptr: there is none.
  recipient_record* find(const ref_id& ref, recipient_id who) noexcept {
    return buckets_.empty() ? nullptr : first_from(bucket(ref, who), ref, who);
  }
  /// The one that was made before that, for the same recipient and an earlier version of the reference.
  recipient_record* before(const recipient_record& r) noexcept { return first_from(r.next, r.ref, r.who); }

  /// A record for a recipient that has none. If there is no room, a record is reused: of `looked_at` records, one of a
  /// publication that is gone, or else the one without a connection that has taken least (a recipient that returns
  /// is counted anew). nullptr: all are connected, expected by name, or counted on. `judge(record)`: why it is kept.
  /// `forgotten(record)`: called before a record is reused. Cost: if the table is full, a look at `looked_at` records,
  /// and at more only if none of those may go.
  template <class Worth, class Forgotten>
  recipient_record* add(const ref_id& ref, recipient_id who, Worth judge, Forgotten forgotten) noexcept {
    if (buckets_.empty()) return nullptr;
    if (free_ == 0) {
      recipient_record* const old = dispensable(judge);
      if (old == nullptr) return nullptr;
      forgotten(*old);
      remove(*old);
    }
    const std::uint32_t number = free_;
    recipient_record& r = records_[number - 1];
    free_ = r.next;
    r.ref = ref;
    r.who = who;
    std::uint32_t& first = bucket(ref, who);
    r.next = first;
    first = number;
    return &r;
  }
  void remove(recipient_record& r) noexcept {
    unlink(r);
    set_free(r);
  }
  /// How many records are compared before one is reused. Each request of a stranger can cost this much.
  static constexpr std::size_t looked_at = 64;

  std::span<recipient_record> all() noexcept { return records_; }
  std::span<const recipient_record> all() const noexcept { return records_; }
  std::uint32_t index(const recipient_record& r) const noexcept {
    return static_cast<std::uint32_t>(&r - records_.data());
  }
  recipient_record& at(std::uint32_t i) noexcept { return records_[i]; }
  /// The record behind a reply; nullptr: it is of another serve by now.
  recipient_record* behind(const pending_reply& r) const noexcept {
    recipient_record& to = records_[r.record];
    return to.nonce == r.nonce && to.ref == r.ref ? &to : nullptr;
  }

 private:
  recipient_record* first_from(std::uint32_t i, const ref_id& ref, recipient_id who) noexcept {
    for (; i != 0; i = records_[i - 1].next)
      if (records_[i - 1].who == who && records_[i - 1].ref == ref) return &records_[i - 1];
    return nullptr;
  }
  std::uint32_t& bucket(const ref_id& ref, recipient_id who) noexcept {
    const std::uint64_t mixed = (ref.low ^ who.value * 0x9e3779b97f4a7c15u) * 0xff51afd7ed558ccdu;
    return buckets_[static_cast<std::size_t>((mixed >> 32) % buckets_.size())];
  }
  /// nullptr: none may go.
  template <class Worth>
  recipient_record* dispensable(Worth judge) noexcept {
    recipient_record* least = nullptr;
    for (std::size_t i = 0; i < records_.size() && (least == nullptr || i < looked_at); ++i) {
      hand_ = hand_ + 1 < records_.size() ? hand_ + 1 : 0;
      recipient_record& r = records_[hand_];
      const worth kept_for = judge(r);
      if (kept_for == gone) return &r;
      if (kept_for == current && !r.expected && r.connection == 0 && (least == nullptr || r.bytes < least->bytes))
        least = &r;
    }
    return least;
  }
  void set_free(recipient_record& r) noexcept {
    r = {};
    r.next = free_;
    free_ = index(r) + 1;
  }
  void unlink(recipient_record& r) noexcept {
    std::uint32_t* at = &bucket(r.ref, r.who);
    while (&records_[*at - 1] != &r) at = &records_[*at - 1].next;
    *at = r.next;
  }

  std::span<recipient_record> records_;
  std::span<std::uint32_t> buckets_;
  std::size_t hand_ = 0;  ///< the record that was looked at last
  std::uint32_t free_ = 0;  ///< the first record that is not in use, + 1; `next` leads on
};

}  // namespace tensorpull::detail
