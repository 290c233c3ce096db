// The memory that an owner works in. It is handed in at start and never grows: records of references, transactions and
// recipients.
#pragma once

#include <tensorpull/image/view.hpp>
#include <tensorpull/protocol/owner/transaction.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull {

/// The publication under one reference. `generation` grows with every change of what is published, so that a slot's
/// number with an older generation is known to be out of date.
struct publication {
  /// How far it is.
  enum class state : std::uint8_t {
    empty,      ///< the slot was never used
    published,  ///< recipients may pull it
    withdrawn,  ///< it is over: withdrawn, replaced or settled
  };

  ref_id id{};                ///< what it is published under
  /// borrowed from the program that published it, which may free it when nothing is published here and nothing is
  /// pinned
  source_view image{};
  std::uint64_t version = 0;  ///< the image's digest if `verifiable`, otherwise random
  std::uint64_t order = 0;  ///< the lower, the earlier it was published
  publication_status counts{};    ///< of its recipients
  transaction_id transaction{};   ///< which it is a part of
  std::uint32_t generation = 0;   ///< see above
  std::uint32_t pins = 0;  ///< transports that read the image's memory at this moment
  state now = state::empty;  ///< how far it is now
  tensorpull::verdict verdict = verdict::open;  ///< its transaction's
  bool verifiable = false;  ///< whether `version` is the digest that recipients compare with
  bool unreadable = false;  ///< it is over because it could not be read
  bool ended = false;  ///< it is over because its transaction has settled, and nobody withdrew it
  bool leaving = false;  ///< it will be replaced, if there is room for what replaces it
  bool beside = false;  ///< it helps to take the others of its transaction: nobody has to take it
  bool replaced = false;  ///< another version is published under its ID: it stays for those who have begun with it
  errc declined{};  ///< why a recipient could not take it, if that has not been told yet
  std::uint32_t reason = 0;  ///< of withdrawing it: a number chosen by the application
  std::uint32_t tensors = 0;  ///< of the image
  std::uint64_t image_bytes = 0;  ///< of the image
  recipient_id declined_by{};  ///< which recipient that was; none: it has no name

  /// Whether it is, or was last, a part of this transaction.
  bool is_part_of(transaction_id t) const noexcept { return now != state::empty && transaction == t; }
};

/// References that settle together.
struct transaction {
  /// How far it is.
  enum class state : std::uint8_t {
    empty,      ///< the entry is free
    open,       ///< references may join
    sealed,     ///< no more join; it may settle
    settled,    ///< its end has not been told yet
    told,       ///< its last callback has begun: no other begins
    delivered,  ///< its callbacks have returned and its images are released; the entry may be used again
  };

  transaction_options options{};  ///< as it was opened; without the names once it is sealed
  settlement outcome{};  ///< complete once it has settled; the counts of those that have ended always
  std::chrono::milliseconds started_at{};  ///< when it was opened
  std::chrono::milliseconds moved_at{};  ///< the last time that a recipient did something, or when it was sealed
  state now = state::empty;  ///< how far it is now
  bool named = false;  ///< the recipients are expected by name, so others do not count
  bool by_hand = false;  ///< the owner withdrew a part of it
  bool replaced = false;  ///< its reference is
  bool lost = false;  ///< the owner that coordinates it is gone
  std::uint32_t callbacks = 0;  ///< of it that run now, on any thread
};

/// The serve of one connection: the whole, or tensors that it has named.
struct serve_state {
  std::uint64_t nonce = 0;  ///< names the serve that a confirmation answers
  std::uint64_t subset_digest = 0;  ///< of the tensors that were named, if `subset`
  std::uint64_t subset_end = 0;  ///< where the last byte of those ends in the image; 0: they have no bytes
  bool subset = false;  ///< of named tensors
  bool serving = false;  ///< it has begun under `nonce` and has not ended
};

/// One recipient of one version of one reference. Its serve is that of the connection that used the
/// record last. Times are those of the owner's clock.
struct recipient_record : serve_state {
  ref_id ref{};  ///< what it pulls
  std::uint64_t version = 0;  ///< which version of it
  recipient_id who{};  ///< none: this record is free
  std::uint64_t bytes = 0;  ///< payload handed to transports
  std::uint64_t hashed = 0;  ///< bytes that were hashed for digests with its chunks, against `bytes`
  std::uint64_t marked_bytes = 0;  ///< of `bytes`, when it was last fast enough
  std::chrono::milliseconds marked_at{};  ///< when that was
  std::chrono::milliseconds announced_at{};  ///< when its last progress event was told
  std::uint32_t slot = 0;  ///< of its publication
  /// of its publication; if that has another now, this is what is remembered of an earlier one
  std::uint32_t generation = 0;
  std::uint32_t connection = 0;  ///< the connection that serves it now; 0: none
  std::uint32_t reason = 0;  ///< of a cancellation: a number chosen by the application
  std::uint32_t next = 0;  ///< in the bucket's list: index + 1
  // what progress tells of its publication, which may have made room by then
  transaction_id transaction{};  ///< which it is a part of
  std::uint32_t asked_ms = 0;  ///< when it began to ask, in milliseconds of the owner's clock modulo 2^32
  std::uint64_t image_bytes = 0;  ///< of the image
  std::uint32_t tensors = 0;  ///< of the image
  std::uint32_t tensors_done = 0;  ///< that `bytes` hold whole; only kept if progress is told
  recipient_state state = recipient_state::unseen;  ///< how far it is
  recipient_state announced = recipient_state::unseen;  ///< the state of its last progress event
  recipient_state before = recipient_state::unseen;  ///< vanished: the state to which it returns
  errc ended_by = errc::timed_out;  ///< absent, unfinished or vanished: why it has not completed
  bool expected = false;  ///< by name
  bool moved = false;  ///< bytes have left since its last progress event
  bool at_end = false;  ///< the last byte of what is served under `nonce` was sent
  bool anonymous = false;  ///< it has no ID of its own: another connection cannot continue it

  /// Its last byte was handed to a transport.
  void sent_to_the_end() noexcept {
    at_end = true;
    if (state == recipient_state::acquired) state = recipient_state::provisional;
  }
};

/// The description of a publication for a peer that is no recipient of it yet.
struct publication_facts {
  std::uint64_t version = 0;  ///< which is published
  std::uint64_t image_bytes = 0;  ///< of the whole image
  std::uint64_t fingerprint = 0;  ///< of its schema
  bool verifiable = false;  ///< whether `version` is the image's digest
};

/// The bounds by which transfer_ends counts durations, in milliseconds.
inline constexpr std::array<std::uint32_t, 15> transfer_bounds_ms{100,     200,     500,       1'000,     2'000,
                                                                  5'000,   10'000,  20'000,    50'000,    100'000,
                                                                  200'000, 500'000, 1'000'000, 2'000'000, 5'000'000};

/// How the recipients of an owner have ended since it was made. Those of an image beside others do not count.
struct transfer_ends {
  /// times that a recipient of a reference has ended so, by recipient_state; one that has a digest later counts once
  std::uint64_t ended[10] = {};
  std::uint64_t completed_ms = 0;  ///< from asking to completing, of all that have completed, to within a driver's
                                   ///< ticks
  /// those of them that took at most this of transfer_bounds_ms, and longer than the one before
  std::uint64_t within[transfer_bounds_ms.size()] = {};

  /// One that has completed took so long.
  constexpr void took(std::uint32_t ms) noexcept {
    completed_ms += ms;
    for (std::size_t i = 0; i < transfer_bounds_ms.size(); ++i)
      if (ms <= transfer_bounds_ms[i]) return void(++within[i]);
  }
  /// Times that a recipient has completed a reference, with or without a digest.
  constexpr std::uint64_t completed() const noexcept {
    return ended[static_cast<std::size_t>(recipient_state::completed)] +
           ended[static_cast<std::size_t>(recipient_state::completed_unverified)];
  }
};

/// The totals of an owner.
struct owner_totals {
  std::uint64_t references = 0;  ///< that are published now
  std::uint64_t bytes_sent = 0;  ///< payload handed to transports since the owner was made
  transfer_ends transfers{};  ///< how recipients have ended since then
  /// recipients that are remembered, by recipient_state; not those of an image beside others
  std::uint64_t recipients[10] = {};
  std::uint64_t active = 0;  ///< of these, those that have not ended and have a connection
};

/// The memory that an owner borrows as long as it lives.
struct owner_memory {
  std::span<publication> slots;  ///< one for each reference that is published at a time
  std::span<transaction> transactions;  ///< one for each transaction under way, and some more
  std::span<recipient_record> records;  ///< one for each recipient of each reference
  std::span<std::uint32_t> buckets;  ///< for finding records; as many as records
};

/// How much an owner is asked to have room for; 0: as much as its limits say.
struct owner_room_size {
  std::size_t references = 0;  ///< that are published at a time
  std::size_t recipients = 0;  ///< of all of them together
};

/// An image of a transaction that is published as a whole, and what it is published as.
struct transaction_image {
  source_view image{};  ///< borrowed until the transaction has settled
  reference as{};  ///< its ID, and the image's version and fingerprint
};

/// Holds an owner's memory: for `References` references at a time, and `Recipients` recipients of all of them together.
template <std::size_t References, std::size_t Recipients>
class owner_storage {
 public:
  /// Borrows it; valid as long as this object is.
  owner_memory view() noexcept { return {slots_, transactions_, records_, buckets_}; }
  operator owner_memory() noexcept { return view(); }
  /// Whether there is as much room as is wanted.
  static constexpr bool has(const owner_room_size& wanted) noexcept {
    return wanted.references <= References && wanted.recipients <= Recipients;
  }

 private:
  std::array<publication, References> slots_{};
  // a version that replaces another has one while the other ends
  std::array<transaction, References + 2> transactions_{};
  std::array<recipient_record, Recipients> records_{};
  std::array<std::uint32_t, Recipients> buckets_{};
};

}  // namespace tensorpull
