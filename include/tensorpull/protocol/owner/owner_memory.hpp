// The memory that an owner works in: handed in at start, never grown.
#pragma once

#include <tensorpull/protocol/owner/recipient_table.hpp>
#include <tensorpull/protocol/owner/transaction.hpp>

#include <array>
#include <span>

namespace tensorpull {

/// Borrowed by the owner as long as it lives. `buckets`: as many as records.
struct owner_memory {
  std::span<publication> slots;
  std::span<transaction> transactions;
  std::span<recipient_record> records;
  std::span<std::uint32_t> buckets;
};

/// Whether a record is of what is, or was last, published in a slot: not of an earlier publication under the same reference.
inline bool is_of(const recipient_record& r, const publication& p, std::span<publication> slots) noexcept {
  const bool over = p.now == publication::state::withdrawn;
  return r.ref == p.id && &slots[r.slot] == &p && (r.generation == p.generation || (over && r.generation + 1 == p.generation));
}

/// The same as an object: so many references at a time, and so many recipients of all of them together.
template <std::size_t References, std::size_t Recipients>
class owner_storage {
 public:
  owner_memory view() noexcept { return {slots_, transactions_, records_, buckets_}; }
  operator owner_memory() noexcept { return view(); }

 private:
  std::array<publication, References> slots_{};
  std::array<transaction, References + 2> transactions_{};  // a version that takes the place of another has one while the other ends
  std::array<recipient_record, Recipients> records_{};
  std::array<std::uint32_t, Recipients> buckets_{};
};

}  // namespace tensorpull
