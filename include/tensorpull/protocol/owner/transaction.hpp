// How references are published, how far each recipient is, and how a transaction ended: the values that an owner takes
// and gives.
#pragma once

#include <tensorpull/core/ids.hpp>
#include <tensorpull/protocol/progress.hpp>
#include <tensorpull/std/chrono.hpp>
#include <tensorpull/std/functional.hpp>

#include <cstdint>
#include <span>
#include <string_view>

namespace tensorpull {

/// Names a transaction of one owner; none: {}.
struct transaction_id {
  std::uint32_t index = 0;   ///< its row in the owner's table
  std::uint32_t number = 0;  ///< grows with each transaction; 0: none

  friend constexpr bool operator==(const transaction_id&, const transaction_id&) noexcept = default;
  constexpr explicit operator bool() const noexcept { return number != 0; }
};

/// How a transaction ended. An unknown number of recipients never ends as completed.
enum class verdict : std::uint8_t {
  open,                  ///< it has not ended
  completed,             ///< every expected recipient confirmed every reference with its digest
  completed_unverified,  ///< every expected recipient confirmed, not all with a digest
  quorum,                ///< none of these, but at least as many confirmed as `least` asks for
  failed,                ///< fewer confirmed than were expected
  uncertified,           ///< the number of recipients was not known
  withdrawn,             ///< the owner withdrew or replaced a reference, and it ended as none of the first three
  owner_lost,            ///< this owner only helped another one, which is gone, so nobody here knows how it ended
};

/// The enumerator's name.
constexpr std::string_view to_string(verdict v) noexcept {
  constexpr std::string_view names[]{
      "open", "completed", "completed_unverified", "quorum", "failed", "uncertified", "withdrawn", "owner_lost"};
  return detail::name_among<verdict::owner_lost>(names, v);
}

/// How far one recipient of one reference is, as its owner sees it.
///
/// From `completed` on a state is final, and `failed`, `cancelled` and `vanished` are final for all references of the
/// transaction. A recipient that has completed stays so, whatever its connections still ask for. If it had no digest,
/// it may pull again and confirm with one. One that ended otherwise and asks again before its transaction settles is
/// acquired anew. After settlement nothing changes any more.
enum class recipient_state : std::uint8_t {
  unseen,                ///< is expected by name and has not asked yet
  acquired,              ///< has asked
  provisional,           ///< was sent everything, has not confirmed
  completed,             ///< confirmed with the published digest
  completed_unverified,  ///< confirmed without a digest
  failed,                ///< confirmed, or gave up, with another digest
  cancelled,             ///< gave up, and told the owner
  vanished,              ///< took less than the least rate from every reference over its idle budget
  absent,  ///< did not ask for any reference within the acquire budget, or not for this one before the end
  unfinished,  ///< was under way when the transaction ended
};

/// Whether the recipient has ended.
constexpr bool is_final(recipient_state s) noexcept { return s >= recipient_state::completed; }

/// Whether the recipient has completed, with or without a digest.
constexpr bool has_completed(recipient_state s) noexcept {
  return s == recipient_state::completed || s == recipient_state::completed_unverified;
}

/// The enumerator's name.
constexpr std::string_view to_string(recipient_state s) noexcept {
  constexpr std::string_view names[]{"unseen", "acquired",  "provisional", "completed", "completed_unverified",
                                     "failed", "cancelled", "vanished",    "absent",    "unfinished"};
  return detail::name_among<recipient_state::unfinished>(names, s);
}

/// Counts of one publication. Of a transaction with named recipients only those are counted as ended; others are
/// `unlisted`.
struct publication_status {
  std::uint32_t acquired = 0;  ///< recipients that asked for it
  std::uint32_t completed = 0;  ///< confirmed with the published digest
  std::uint32_t completed_unverified = 0;  ///< confirmed without a digest
  std::uint32_t failed = 0;  ///< confirmed, or gave up, with another digest
  std::uint32_t cancelled = 0;  ///< gave up, and told the owner
  std::uint32_t vanished = 0;  ///< dropped by the idle budget
  std::uint32_t absent = 0;  ///< expected and not seen in time
  std::uint32_t unfinished = 0;  ///< under way when it ended
  std::uint32_t unlisted = 0;  ///< asked without being expected
  std::uint32_t lost = 0;  ///< times that a connection ended before a confirmation; the recipient may return
  std::uint64_t bytes_sent = 0;  ///< payload handed to transports

  /// Recipients that have ended.
  constexpr std::uint32_t final() const noexcept {
    return completed + completed_unverified + failed + cancelled + vanished + absent + unfinished;
  }
  /// The counter of a final state.
  constexpr std::uint32_t& of(recipient_state s) noexcept {
    switch (s) {
      case recipient_state::completed: return completed;
      case recipient_state::completed_unverified: return completed_unverified;
      case recipient_state::failed: return failed;
      case recipient_state::cancelled: return cancelled;
      case recipient_state::vanished: return vanished;
      case recipient_state::absent: return absent;
      default: return unfinished;
    }
  }
};

/// A transaction's outcome. Over several references a recipient counts once: as failed, cancelled or vanished if it was
/// that in one of them, as absent if it asked for none, as unfinished if it has not completed all; otherwise as
/// completed.
struct settlement {
  transaction_id id{};  ///< which transaction
  tensorpull::verdict verdict = verdict::open;  ///< how it ended
  std::uint32_t references = 0;  ///< how many it had
  std::uint32_t expected = 0;  ///< 0: not known
  publication_status counts{};  ///< of its recipients, over all references
  /// from opening to settling, to within the interval of the driver's ticks (0.2 s of a host)
  std::chrono::milliseconds lasted{};
};

/// Budgets on the owner's clock. 0 or less: no such budget. Those of recipients are judged over all references: a
/// recipient that takes one is not late for another.
struct transaction_budgets {
  std::chrono::milliseconds acquire{};  ///< from opening the transaction to a recipient's first request
  std::chrono::milliseconds recipient_idle{600'000};  ///< how long a recipient may take less than the least rate
  /// how long no recipient may do anything before it settles; not before it is sealed
  std::chrono::milliseconds transaction_idle{600'000};
  std::uint64_t least_bytes_per_second = 64;  ///< the least rate from one reference, averaged over `recipient_idle`
  constexpr bool operator==(const transaction_budgets&) const noexcept = default;
};

/// How a transaction of several references is opened. Borrowed objects must live until it has settled, which the
/// owner's destructor sees to at the latest; the names only until it is sealed.
struct transaction_options {
  /// how many are expected; 0: not known, or `named` lists them; with names, no other number than theirs
  std::uint32_t recipients = 0;
  std::span<const recipient_id> named{};  ///< the recipients that are expected; others do not count
  std::uint32_t least = 0;  ///< confirmed recipients that are enough when it ends; 0: all; not more than are expected
  transaction_budgets budgets{};  ///< how long it waits
  callback<const settlement&> settled{};  ///< called once, before the sources are released
  callback<const progress_event&> progress{};  ///< called with each progress event
  std::chrono::milliseconds progress_interval{30'000};  ///< the least time between two `active` events of a recipient
};

/// How one reference is published: for whom, for how long, and under which ID. Borrowed objects must live as above.
struct publish_options {
  std::uint32_t recipients = 0;  ///< how many are expected; 0: not known, or `named` lists them
  std::span<const recipient_id> named{};  ///< the recipients that are expected; others do not count
  std::uint32_t least = 0;  ///< confirmed recipients that are enough when it ends; 0: all; not more than are expected
  transaction_budgets budgets{};  ///< how long it waits
  /// called once, before the source is released; by the end of the owner at the latest
  callback<const settlement&> settled{};
  callback<const progress_event&> progress{};  ///< called with each progress event
  std::chrono::milliseconds progress_interval{30'000};  ///< the least time between two `active` events of a recipient
  ref_id id{};  ///< chosen before, to publish again under the same ID; none: a random one
  /// publishes in this open transaction, whose options hold: those above, except `id`, are ignored
  transaction_id transaction{};
  /// publishes beside what is published under this ID, such as a difference that leads there: a recipient that takes
  /// this has asked for that and is not idle, nobody has to take this, and it ends with that. Of the other options only
  /// `id`, `version` and `tensor_digests` hold. One more error: unknown_reference
  ref_id beside{};
  /// The version that this one replaces under `id` stays for the recipients that have begun with it, until they have
  /// ended: nobody begins anew because a newer one is there, however slow the line is. Its memory is read until then.
  /// One version stays at a time: those that are replaced meanwhile do not. Not for references of a transaction of
  /// several, and not without a free slot.
  bool replaced_stays = false;
  /// The image's version, if the caller knows it from a reference to the same bytes. The pass over the bytes is saved.
  /// Nothing checks it here. If the bytes are others, a pull of the whole image fails with `digest_mismatch`. A pull of
  /// some of its tensors compares a digest of those alone, and takes them. 0: it is computed.
  std::uint64_t version = 0;
  /// The image's metadata has the digest of each tensor (`tensorpull.digests`), so that a recipient that has an
  /// earlier version pulls those that have changed: download_changes in C++, `base=` in Python. It is another image
  /// then, with another version. Costs one more pass over the bytes, 16 bytes a tensor of each recipient's header, and
  /// 72 bytes a tensor of this owner's memory as long as it is published. One more error: out_of_memory. A model that
  /// lies in memory shared with other programs is copied there once more.
  bool tensor_digests = false;

  /// The options of a transaction of this reference alone.
  constexpr transaction_options alone() const noexcept {
    return {recipients, named, least, budgets, settled, progress, progress_interval};
  }
};

}  // namespace tensorpull
