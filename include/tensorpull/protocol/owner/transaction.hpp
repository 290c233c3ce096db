// References that are published together, the recipients that are expected, and how it ended.
#pragma once

#include <tensorpull/std/functional.hpp>
#include <tensorpull/protocol/progress.hpp>
#include <tensorpull/protocol/owner/publication.hpp>
#include <tensorpull/core/ids.hpp>

#include <cstdint>
#include <span>

namespace tensorpull {

/// Budgets on the owner's clock, in milliseconds; 0: none.
struct transaction_budgets {
  std::uint64_t acquire_ms = 0;                  ///< from publishing to a recipient's first request
  std::uint64_t recipient_idle_ms = 600'000;     ///< in which a recipient takes less than the least rate
  std::uint64_t transaction_idle_ms = 0;         ///< in which nothing happens at all
  std::uint64_t least_bytes_per_second = 64;
};

/// A transaction's outcome as a value. A recipient counts as what it did worst among the references.
struct settlement {
  transaction_id id{};
  tensorpull::verdict verdict = verdict::open;
  std::uint32_t references = 0;
  std::uint32_t expected = 0;   ///< 0: not known
  publication_status counts{};
  std::uint64_t lasted_ms = 0;
};

/// What a transaction is opened with. Everything borrowed must live until it has settled, the names until it is sealed.
struct transaction_options {
  std::uint32_t recipients = 0;                         ///< how many are expected; 0: not known
  std::span<const recipient_id> named{};                ///< or who
  std::uint32_t least = 0;                              ///< completed recipients that are enough when it ends; 0: all
  transaction_budgets budgets{};
  callback<const settlement&> settled{};                ///< called once, before the sources are released
  callback<const progress_event&> progress{};
  std::uint64_t progress_interval_ms = 30'000;
};

/// The place of the first name that has come before; names.size() without one. Two who are one would never both be done.
constexpr std::size_t repeated_name(std::span<const recipient_id> names) noexcept {
  for (std::size_t i = 0; i < names.size(); ++i)
    for (std::size_t k = 0; k < i; ++k)
      if (names[i] == names[k]) return i;
  return names.size();
}

/// A slot of an owner's table.
struct transaction {
  enum class state : std::uint8_t { empty, open, sealed, settled, delivered };

  transaction_options options{};
  settlement outcome{};
  std::uint64_t started_ms = 0;
  std::uint64_t moved_ms = 0;  ///< the last time that anything happened
  state now = state::empty;
  bool named = false;          ///< expected by name, so others do not count
  bool by_hand = false;        ///< the owner withdrew a part of it
};

/// Whether somebody who ended so has to be remembered: forgotten, it would count again when it comes back, and stand for somebody who has not.
constexpr bool counts_on(const transaction& t, recipient_state s) noexcept {
  const bool confirmed = s == recipient_state::completed || s == recipient_state::completed_unverified;
  return confirmed && !t.named && (t.outcome.expected != 0 || t.options.least != 0);
}

}  // namespace tensorpull
