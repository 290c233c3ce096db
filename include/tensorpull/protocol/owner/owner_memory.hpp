// The memory that an owner works in: handed in at start, never grown. One record for each reference, transaction and recipient.
#pragma once

#include <tensorpull/image/view.hpp>
#include <tensorpull/protocol/owner/transaction.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull {

/// What is published under one reference. `generation` grows with every change of what is published, so that whoever holds a slot's number notices.
struct publication {
  enum class state : std::uint8_t {
    empty,
    published,
    withdrawn,
  };

  ref_id id{};
  source_view image{};
  std::uint64_t version = 0;
  std::uint64_t order = 0;  ///< the lower, the earlier it was published
  publication_status counts{};
  transaction_id transaction{};
  std::uint32_t generation = 0;
  std::uint32_t pins = 0;  ///< transports that read the image's memory at this moment
  state now = state::empty;
  tensorpull::verdict verdict = verdict::open;  ///< its transaction's
  bool verifiable = false;

  bool is_part_of(transaction_id t) const noexcept { return now != state::empty && transaction == t; }
};

/// References that settle together.
struct transaction {
  enum class state : std::uint8_t {
    empty,
    open,
    sealed,
    settled,
    delivered,
  };

  transaction_options options{};
  settlement outcome{};
  std::chrono::milliseconds started_at{};
  std::chrono::milliseconds moved_at{};  ///< the last time that anything happened
  state now = state::empty;
  bool named = false;          ///< expected by name, so others do not count
  bool by_hand = false;        ///< the owner withdrew a part of it
};

/// One recipient of one version of one reference. Times are those of the owner's clock.
struct recipient_record {
  ref_id ref{};
  std::uint64_t version = 0;
  recipient_id who{};                ///< none: this record is free
  std::uint64_t nonce = 0;           ///< names the serve that a confirmation answers
  std::uint64_t subset_digest = 0;   ///< of the tensors that it named, if `subset`
  std::uint64_t subset_end = 0;
  std::uint64_t bytes = 0;           ///< payload handed to transports
  std::uint64_t marked_bytes = 0;    ///< of them at the last time it was fast enough
  std::chrono::milliseconds marked_at{};
  std::chrono::milliseconds announced_at{};  ///< when its last progress event was told
  std::uint64_t announced_bytes = 0;
  std::uint32_t slot = 0;            ///< of its publication
  std::uint32_t generation = 0;      ///< of its publication; another: the publication is gone, this is what is remembered of it
  std::uint32_t connection = 0;      ///< the connection that serves it now; 0: none
  std::uint32_t reason = 0;          ///< of a cancellation, the recipient's own
  std::uint32_t next = 0;            ///< in the bucket's list: index + 1
  recipient_state state = recipient_state::unseen;
  recipient_state announced = recipient_state::unseen;
  bool expected = false;             ///< by name
  bool anonymous = false;            ///< its connection is all that it has: gone with it
  bool subset = false;
  bool serving = false;              ///< a serve has begun under `nonce` and was not ended
};

/// Borrowed by the owner as long as it lives. `buckets`: as many as records.
struct owner_memory {
  std::span<publication> slots;
  std::span<transaction> transactions;
  std::span<recipient_record> records;
  std::span<std::uint32_t> buckets;
};

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
