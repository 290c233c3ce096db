// Whether there is room for what is to be published and for its recipients' records, and which records may go.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/protocol/owner/detail/owner_tables.hpp>
#include <tensorpull/protocol/owner/detail/transaction_rules.hpp>

#include <cstddef>
#include <cstdint>

namespace tensorpull::detail {

/// A look at an owner's tables: it changes nothing. Room that it promises is there until the owner's lock is released.
class table_room {
 public:
  explicit table_room(owner_tables& all) noexcept : all_(all) {}

  /// Whether another publication can join, instead of `old` if there is one. invalid_argument: the transaction is
  /// not open, or has it already; table_full. `beside` its references it can join until that has settled, or else
  /// unknown_reference; nobody's record is made for it before somebody asks.
  result<void> admits(transaction_id in, publication* old, bool beside = false) const noexcept {
    const transaction* const t = all_.find(in);
    const bool there = old != nullptr && old->now == publication::state::published;
    if (beside && (t == nullptr || !is_under_way(*t))) return failure(errc::unknown_reference);
    if (t == nullptr || (t->now != transaction::state::open && !beside) ||
        (there && old->transaction == in && !(beside && old->beside)))
      return failure(errc::invalid_argument);
    if (beside) return {};
    if (const auto counted = remembers(awaited(*t), all_.published_of(*t) + 1); !counted) return counted;
    if (there) old->leaving = true;
    const auto free = has_room(t->options.named.size());
    if (there) old->leaving = false;
    return free;
  }
  /// Whether all of these images can join a transaction that has none yet, each instead of what is published under
  /// its ID. After that nothing about them can fail, until the owner's lock is released. Errors: as owner::publish_all.
  template <class Images>
  result<void> admits_all(transaction_id in, const Images& images) const noexcept {
    const transaction* const t = all_.find(in);
    if (t == nullptr || t->now != transaction::state::open || t->outcome.references != 0 || images.size() == 0)
      return failure(errc::invalid_argument);
    std::size_t free_slots = 0;
    for (const publication& p : all_.publications.all())
      free_slots += p.now == publication::state::empty ||
                    (p.now == publication::state::withdrawn && p.pins == 0 && !needs(p));
    if (free_slots < images.size()) return failure(errc::table_full, all_.publications.all().size());
    for (std::size_t i = 0; i < images.size(); ++i) {
      bool wrong = !images[i].as.id || images[i].as.version == 0;
      for (std::size_t k = 0; k < i; ++k) wrong = wrong || images[k].as.id == images[i].as.id;
      if (wrong) return failure(errc::invalid_argument, i);
    }
    if (const auto counted = remembers(awaited(*t), images.size()); !counted) return counted;
    const auto leave = [&](bool all) {
      for (publication& p : all_.publications.all())
        for (std::size_t i = 0; i < images.size(); ++i)
          if (images[i].as.id == p.id && !p.replaced) p.leaving = all;  // what was replaced before stays
    };
    leave(true);
    const auto free = has_room(std::uint64_t{images.size()} * t->options.named.size());
    leave(false);
    return free;
  }
  /// Whether the transaction of `p` still needs the slot of `p`.
  bool needs(const publication& p) const noexcept {
    const transaction* const t = all_.find(p.transaction);
    return t != nullptr && t->now != transaction::state::delivered;
  }
  /// Whether other references of its transaction continue without `p`, so that its slot has to keep the result of `p`.
  bool shares(const publication& p) const noexcept {
    const transaction* const t = all_.find(p.transaction);
    return t != nullptr &&
           (t->now == transaction::state::open || (t->now == transaction::state::sealed && t->outcome.references > 1));
  }

  /// table_full: there are fewer records than recipients that count, each with one for each reference. Those without a
  /// record would be told `busy` for ever, and the others would wait for them.
  result<void> remembers(std::uint64_t recipients, std::uint64_t references) const noexcept {
    const std::uint64_t most = all_.records.all().size();
    if (recipients * references > most) return failure(errc::table_full, most, {"recipients"});
    return {};
  }
  /// Whether so many records can only be made by forgetting how recipients have ended before that has been told.
  bool forgets_ends(std::uint64_t wanted) const noexcept {
    std::uint64_t room = 0;
    bool untold = false;
    for (const recipient_record& r : all_.records.all()) {
      untold = untold || ends_untold(r);
      room += !r.who || held(r) == recipient_table::gone;
    }
    return untold && room < wanted;
  }

  /// Whether a recipient has ended, and no progress event has told it yet.
  bool ends_untold(const recipient_record& r) const noexcept {
    const transaction* const t = is_final(r.state) && !all_.is_beside(r) ? all_.transaction_of(r) : nullptr;
    return t != nullptr && is_due(r, *t, all_.now);
  }
  /// Why a record is kept now. One whose end is not told yet stays for that: the next event that is told makes room.
  recipient_table::worth held(const recipient_record& r) const noexcept {
    return ends_untold(r) ? recipient_table::counted_on : worth(r);
  }
  /// Why it is kept once everything has been told.
  recipient_table::worth worth(const recipient_record& r) const noexcept {
    const publication& p = all_.publications.at(r.slot);
    const transaction* const t = all_.is_of(r, p) ? all_.find(p.transaction) : nullptr;
    if (t == nullptr || !is_under_way(*t)) return recipient_table::gone;
    if (counts_ends(*t) && tells_an_end(r, *t) && !p.beside) return recipient_table::counted_on;
    return p.now != publication::state::published ? recipient_table::gone : recipient_table::current;
  }

 private:
  /// Whether so many records can be made, once each publication that is `leaving` is over.
  result<void> has_room(std::uint64_t wanted) const noexcept {
    if (wanted == 0) return {};  // no records are made before somebody asks
    std::uint64_t room = 0;
    for (const recipient_record& r : all_.records.all()) {
      const auto why = r.who ? worth(r) : recipient_table::gone;
      bool free = why == recipient_table::gone;
      if (why == recipient_table::counted_on) {
        free = !goes_on(*all_.transaction_of(r));
      } else if (!free) {
        const publication* const p = all_.publication_of(r);
        free = (p != nullptr && p->leaving) || (!r.expected && r.connection == 0);
      }
      room += free;
    }
    if (room < wanted) return failure(errc::table_full, all_.records.all().size());
    return {};
  }
  /// Whether a transaction under way has, or may get, references that are not leaving.
  bool goes_on(const transaction& t) const noexcept {
    if (t.now == transaction::state::open) return true;
    for (const publication& p : all_.publications.all())
      if (p.is_part_of(t.outcome.id) && p.now == publication::state::published && !p.leaving && !p.beside) return true;
    return false;
  }

  owner_tables& all_;
};

}  // namespace tensorpull::detail
