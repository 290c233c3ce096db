// What an owner remembers about its recipients: one record for each recipient of each reference, found by a hash table.
#pragma once

#include <tensorpull/protocol/owner/owner_memory.hpp>

namespace tensorpull::detail {

/// Records in memory that is handed in, found by reference and recipient in constant time on average. Not thread-safe: the owner has the lock.
class recipient_table {
 public:
  /// Why a record is kept.
  enum worth {
    gone,        ///< its transaction is over
    looked_in,   ///< its recipient was described the publication and sent nothing
    current,     ///< its recipient was sent something
    counted_on,  ///< it counts towards a number of recipients, and must not count twice
  };

  /// `buckets`: one word for each record is a good number; zeroed here.
  recipient_table(std::span<recipient_record> records, std::span<std::uint32_t> buckets) noexcept : records_(records), buckets_(buckets) {
    for (auto& b : buckets_) b = 0;
  }

  recipient_record* find(const ref_id& ref, recipient_id who) noexcept {
    if (buckets_.empty()) return nullptr;
    for (std::uint32_t i = bucket(ref, who); i != 0; i = records_[i - 1].next)
      if (records_[i - 1].who == who && records_[i - 1].ref == ref) return &records_[i - 1];
    return nullptr;
  }

  /// A record for a recipient that has none. If there is no room, a record of a transaction that is over is reused, or else one without a connection,
  /// of those first that were sent nothing: so invented identities cost payload before they push out who is between two connections. nullptr: all are
  /// connected, expected by name, or counted on. `judge(record)`: why it is kept. `forgotten(record)`: called before a record is reused.
  /// Cost: up to four passes over the table if it is full.
  template <class Worth, class Forgotten>
  recipient_record* add(const ref_id& ref, recipient_id who, Worth judge, Forgotten forgotten) noexcept {
    for (int pass = 0; pass < 4; ++pass)
      for (std::size_t i = 0; i < records_.size(); ++i) {
        hand_ = hand_ + 1 < records_.size() ? hand_ + 1 : 0;
        recipient_record& r = records_[hand_];
        const bool may_go = !r.who || (pass > 0 && judge(r) == gone) || (pass > 1 && !r.expected && r.connection == 0 && judge(r) <= (pass == 2 ? looked_in : current));
        if (!may_go) continue;
        if (r.who) forgotten(r), unlink(r);
        r = {};
        r.ref = ref;
        r.who = who;
        std::uint32_t& first = bucket(ref, who);
        r.next = first;
        first = static_cast<std::uint32_t>(hand_ + 1);
        return &r;
      }
    return nullptr;
  }
  void remove(recipient_record& r) noexcept {
    unlink(r);
    r = {};
  }

  std::span<recipient_record> all() noexcept { return records_; }
  std::span<const recipient_record> all() const noexcept { return records_; }
  std::uint32_t index(const recipient_record& r) const noexcept { return static_cast<std::uint32_t>(&r - records_.data()); }
  recipient_record& at(std::uint32_t i) noexcept { return records_[i]; }

 private:
  std::uint32_t& bucket(const ref_id& ref, recipient_id who) noexcept {
    const std::uint64_t mixed = (ref.low ^ who.value * 0x9e3779b97f4a7c15u) * 0xff51afd7ed558ccdu;
    return buckets_[static_cast<std::size_t>((mixed >> 32) % buckets_.size())];
  }
  void unlink(recipient_record& r) noexcept {
    std::uint32_t* at = &bucket(r.ref, r.who);
    while (&records_[*at - 1] != &r) at = &records_[*at - 1].next;
    *at = r.next;
  }

  std::span<recipient_record> records_;
  std::span<std::uint32_t> buckets_;
  std::size_t hand_ = 0;
};

}  // namespace tensorpull::detail
